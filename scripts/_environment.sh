# Makes .venv in the repository and installs the package into it; sourced, never run.
# Usage:  . scripts/_environment.sh; prepare_environment [test]
# Afterwards $repository and $python are set and .venv/bin is first on PATH.
# PYTHON=<interpreter> chooses the Python that a new .venv is made from.

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

# fits INTERPRETER: whether it runs and is a version that the pinned packages exist for.
fits() {
    "$1" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null
}

# find_base_python: print the interpreter that .venv is made from.
find_base_python() {
    local candidate
    if [ -n "${PYTHON:-}" ]; then
        fits "$PYTHON" || die "PYTHON=$PYTHON is not a Python 3.11 or 3.12: \
point it to one, or unset it (for older versions see the README)."
        printf '%s\n' "$PYTHON"
        return
    fi
    # Each is run, not just looked up: a name on PATH can stand for a version that is not there.
    for candidate in python3.11 python3.12 python3; do
        if fits "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    die "no Python 3.11 or 3.12 was found: install one (with its headers and venv), \
or set PYTHON to it (for older versions see the README)."
}

# check_compiler: fairseq is compiled on installation, which needs a C++ compiler and Python.h.
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

# make_venv: create .venv where there is none, or one that does not run.
make_venv() {
    local base
    if "$python" -m pip --version >/dev/null 2>&1; then
        fits "$python" || die ".venv has $("$python" --version 2>&1), but 3.11 or 3.12 is needed: \
remove .venv, and this script makes a new one."
        return
    fi
    base="$(find_base_python)"
    say "making .venv with $("$base" --version 2>&1)"
    "$base" -m venv --clear "$repository/.venv" ||
        die "$base could not make .venv: install its venv module (package python3-venv)."
}

# check_distributions: two distributions provide `fairseq`; both at once overwrite each other.
# Exit status 3 stands for a package that is not there yet.
check_distributions() {
    "$python" - <<'CHECK'
import sys
from importlib.metadata import PackageNotFoundError, version


def installed(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None


if installed("fairseq") and installed("fairseq-fixed"):
    sys.exit(
        "error: both `fairseq` and `fairseq-fixed` are installed and overwrite each other's files: "
        "run `.venv/bin/pip uninstall fairseq fairseq-fixed`, then this script again."
    )
torch = installed("torch")
if torch and tuple(int(part) for part in torch.split("+")[0].split(".")[:2]) < (2, 6):
    sys.exit(
        f"error: torch {torch} is too old, 2.6 or newer is needed: "
        "`.venv/bin/pip install -U torch`."
    )
if not (torch and installed("fairseq-fixed") and installed("sut_fairseq")):
    sys.exit(3)
CHECK
}

# fingerprint EXTRA: what an installation depends on; the place too, since it is an editable one.
fingerprint() {
    printf '%s %s ' "$repository" "$1"
    cat "$repository/setup.py" "$repository/pyproject.toml" "$repository/sut_fairseq/constraints.txt" |
        cksum
}

# prepare_environment [test]: make .venv if needed and install; `test` adds the test tools.
prepare_environment() {
    local extra="${1:-}" stamp found status=0
    SECONDS=0
    make_venv
    export PATH="$repository/.venv/bin:$PATH"
    check_distributions || status=$?
    [ "$status" -eq 0 ] || [ "$status" -eq 3 ] || exit 1
    # The installation with the test tools serves those who do not need them as well.
    for stamp in "" test; do
        [ "$stamp" = "$extra" ] || [ "$stamp" = test ] || continue
        found="$(cat "$repository/.venv/installed-$stamp" 2>/dev/null || true)"
        if [ "$status" -eq 0 ] && [ "$found" = "$(fingerprint "$stamp")" ]; then
            return
        fi
    done
    check_compiler
    say "installing sut_fairseq and what it needs into .venv \
(the first time takes minutes: fairseq is compiled)"
    rm -f "$repository"/.venv/installed-*
    # As an environment variable the pins hold for the compilation of fairseq too.
    PIP_CONSTRAINT="$repository/constraints.txt" \
        PIP_BUILD_CONSTRAINT="$repository/constraints.txt" PIP_DISABLE_PIP_VERSION_CHECK=1 \
        "$python" -m pip install --editable "$repository${extra:+[$extra]}" |
        { grep --line-buffered -v '^Requirement already satisfied' || true; } ||
        die "the installation failed; pip says why above."
    check_distributions || die "the installation is incomplete: remove .venv and try again."
    fingerprint "$extra" >"$repository/.venv/installed-$extra"
    say "the environment is ready"
}
