#!/usr/bin/env bash
# _common.sh NAME.sh OPTIONS: what every script of this folder calls. It finds a Python and has the
# package beside it prepare the data set NAME; messages begin with the script's name.
set -euo pipefail
unset CDPATH

data_prep="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)"

# suits INTERPRETER MODULE...: whether it runs, is new enough, and finds the modules.
suits() {
    "$1" -P -c 'import sys; from importlib.util import find_spec
sys.exit(sys.version_info < (3, 11) or not all(map(find_spec, sys.argv[2:])))' "$@" 2>/dev/null
}

# An active environment comes before the repository's own. If none has fairseq, the first Python
# that runs shows help, and says how to install it.
active="${VIRTUAL_ENV:-${CONDA_PREFIX:-}}"
candidates=(${active:+"$active/bin/python"} "${data_prep%/*}/.venv/bin/python" python3 python)
for needed in "fairseq torch" ""; do
    for python in "${candidates[@]}"; do
        # shellcheck disable=SC2086  # two words
        if suits "$python" $needed; then
            export PYTHONPATH="$data_prep${PYTHONPATH:+:$PYTHONPATH}"
            exec "$python" -P -m sut_data "$@"
        fi
    done
done
echo "${1:-_common.sh}: error: no Python 3.11 or newer was found: install one, or make the \
environment with \`bash scripts/test.sh\`." >&2
exit 1
