# shellcheck shell=bash
# Finds or makes the environment that the scripts run in; sourced, never run.
# Usage:  . scripts/_environment.sh; prepare_environment [EXTRAS]
# Afterwards $repository and $python are set and the environment's commands are first on PATH.
#
# An active environment (venv or conda) that this repository is installed in is used as it is, and
# so is a .venv that somebody else made. Otherwise .venv in the repository is made and installed
# into; PYTHON=<interpreter> chooses the Python that a new .venv is made from.

unset CDPATH
repository="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)"
python="$repository/.venv/bin/python"

# die SENTENCE: one sentence on standard error, then exit.
die() {
    printf '%s: error: %s\n' "${0##*/}" "$1" >&2
    exit 1
}

# say SENTENCE: a progress line with the seconds since the start.
say() {
    printf '[%4d s] %s\n' "$SECONDS" "$1"
}

# fits INTERPRETER: whether it runs and is new enough.
fits() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# find_base_python: print the interpreter that .venv is made from.
find_base_python() {
    local candidate
    if [ -n "${PYTHON:-}" ]; then
        fits "$PYTHON" || die "PYTHON=$PYTHON is not a Python 3.11 or newer: \
point it to one, or unset it."
        printf '%s\n' "$PYTHON"
        return
    fi
    # First those that the tests run with. Each is run, not just looked up: a name on PATH can
    # stand for a version that is not installed.
    for candidate in python3.11 python3.12 python3; do
        if fits "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    die "no Python 3.11 or newer was found: install one (with its headers and venv), \
or set PYTHON to it."
}

# make_venv: create .venv where there is none, or one that does not run.
make_venv() {
    local base
    if "$python" -m pip --version >/dev/null 2>&1; then
        fits "$python" || die ".venv has $("$python" --version 2>&1), but 3.11 or newer is needed: \
remove .venv, and this script makes a new one."
        return
    fi
    base="$(find_base_python)"
    say "making .venv with $("$base" --version 2>&1)"
    "$base" -m venv --clear "$repository/.venv" ||
        die "$base could not make .venv: install its venv module (package python3-venv)."
}

# check_compiler: compiling fairseq needs a C++ compiler and Python.h.
check_compiler() {
    local candidate
    for candidate in ${CXX:+"$CXX"} g++ c++ clang++; do
        if command -v "${candidate%% *}" >/dev/null; then
            "$python" -c 'import pathlib, sys, sysconfig
sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())' ||
                die "the Python headers (Python.h) are missing, and fairseq is compiled \
against them: install them (python3-dev, python3-devel)."
            return
        fi
    done
    die "no C++ compiler was found (g++, c++ or clang++), and fairseq is compiled on installation: \
install one (package g++ or build-essential)."
}

# check_installed: check that the requirements are met; status 3 if something is not installed yet.
check_installed() {
    "$python" -P "$repository/sut_fairseq/_requirements.py"
}

# made_here ENVIRONMENT: whether it is the .venv that these scripts install into.
made_here() {
    [ "$1" = "$repository/.venv" ] && compgen -G "$1/installed-*" >/dev/null
}

# is_installed PYTHON EXTRA: whether this repository is installed there, for `test` in editable form
# and with the tools.
is_installed() {
    "$1" -P - "$repository" "$2" <<'CHECK'
import json, sys
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

repository, extra = sys.argv[1:]
try:
    source = json.loads(distribution("sut_fairseq").read_text("direct_url.json") or "{}")
except PackageNotFoundError:
    sys.exit(1)
here = source.get("url") == Path(repository).as_uri()
if extra == "test":
    tools = ("pytest", "xdist", "hypothesis", "ruff", "mypy", "matplotlib", "sacremoses")
    here &= source.get("dir_info", {}).get("editable", False) and all(map(find_spec, tools))
sys.exit(not here)
CHECK
}

# installed_python EXTRA: print the interpreter of the active environment, or of a .venv that these
# scripts did not make, if this repository is installed there.
installed_python() {
    local found
    for found in "${VIRTUAL_ENV:-${CONDA_PREFIX:-}}" "$repository/.venv"; do
        if [ -n "$found" ] && ! made_here "$found" && fits "$found/bin/python" &&
            is_installed "$found/bin/python" "$1"; then
            printf '%s\n' "$found/bin/python"
            return
        fi
    done
    return 1
}

# fingerprint EXTRA: what an installation depends on; its path too, since it is an editable one.
fingerprint() {
    printf '%s %s ' "$repository" "$1"
    cat "$repository/setup.py" "$repository/pyproject.toml" "$repository/sut_fairseq/constraints.txt" |
        cksum
}

# install_step WHAT PIP-ARGUMENT...: run `pip install`, with a line every 15 seconds.
install_step() {
    local what="$1" ticker status=0
    shift
    say "installing $what"
    # Ends with this script, however that ends; the sleep must not keep a pipe open.
    while sleep 15 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
        say "still installing $what"
    done &
    ticker=$!
    "$python" -m pip install "$@" |
        { grep --line-buffered -v '^Requirement already satisfied' || true; } || status=$?
    kill "$ticker" 2>/dev/null || true
    wait "$ticker" 2>/dev/null || true
    [ "$status" -eq 0 ] || die "$what could not be installed; pip says why above."
}

# install_torch_and_fairseq: one after the other, since fairseq is compiled against torch unless
# there is a wheel of it for this machine.
install_torch_and_fairseq() {
    if "$python" -m pip install --quiet --dry-run --no-deps --only-binary :all: fairseq-fixed \
        >/dev/null 2>&1; then
        install_step "torch and fairseq" torch fairseq-fixed
        return
    fi
    check_compiler
    install_step torch torch
    install_step "build tools" setuptools wheel ninja Cython numpy
    # Without isolation pip does not install a second torch for the build. Debugging information,
    # which Python's own flags ask for, would double the compile time.
    CFLAGS="${CFLAGS:+$CFLAGS }-g0" install_step "fairseq, which is compiled" \
        --no-build-isolation fairseq-fixed
}

# prepare_environment [EXTRAS]: make the environment if needed, with these extras of the package.
prepare_environment() {
    local extra="${1:-plots,text}" ready stamp found status=0
    SECONDS=0
    if ready="$(installed_python "$extra")"; then
        python="$ready"
        export PATH="${ready%/*}:$PATH"
        check_installed || exit 1
        return
    fi
    make_venv
    export PATH="$repository/.venv/bin:$PATH"
    check_installed || status=$?
    [ "$status" -eq 0 ] || [ "$status" -eq 3 ] || exit 1
    # An installation with the test tools also serves scripts that do not need them.
    for stamp in "$extra" test; do
        found="$(cat "$repository/.venv/installed-$stamp" 2>/dev/null || true)"
        if [ "$status" -eq 0 ] && [ "$found" = "$(fingerprint "$stamp")" ]; then
            return
        fi
    done
    rm -f "$repository"/.venv/installed-*
    : >"$repository/.venv/installed-partly"  # made by this script all the same
    # As a URL, since pip accepts several files here and splits the text at spaces.
    PIP_CONSTRAINT="$(python -c 'import pathlib, sys; print(pathlib.Path(sys.argv[1]).as_uri())' \
        "$repository/constraints.txt")"
    export PIP_CONSTRAINT
    export PIP_DISABLE_PIP_VERSION_CHECK=1
    if [ "$status" -eq 3 ]; then
        say "installing into .venv; the first time takes some minutes"
        install_torch_and_fairseq
    fi
    # pip leaves an older egg-info as it is, and Python would read the console commands from it.
    rm -rf "$repository/sut_fairseq.egg-info"
    install_step "sut_fairseq and the rest" --editable "${repository}[$extra]"
    unset PIP_CONSTRAINT PIP_DISABLE_PIP_VERSION_CHECK
    check_installed || die "the installation is incomplete: remove .venv and try again."
    fingerprint "$extra" >"$repository/.venv/installed-$extra"
    rm "$repository/.venv/installed-partly"
    say "the environment is ready"
}
