# Shared by the scripts of this folder; sourced, never run.

unset CDPATH
data_prep="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)"
repository="$(dirname -- "$data_prep")"

# die STATUS SENTENCE: one sentence on standard error, then exit.
die() {
    printf '%s: error: %s\n' "${0##*/}" "$2" >&2
    exit "$1"
}

# find_python: print the interpreter to use, the repository's own environment first.
find_python() {
    local candidate
    for candidate in "$repository/.venv/bin/python" python3 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    die 1 "no Python 3.8 or newer was found: install one, \
or make the environment with \`bash scripts/test.sh\`."
}
