#!/usr/bin/env bash
# _common.sh NAME.sh OPTIONS: what every door of this folder does. It finds a Python and has the
# package beside it prepare the data set NAME; the door's name is what messages begin with.
set -euo pipefail
unset CDPATH

data_prep="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)"

# The repository's own environment comes first.
for python in "${data_prep%/*}/.venv/bin/python" python3 python; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        export PYTHONPATH="$data_prep${PYTHONPATH:+:$PYTHONPATH}"
        exec "$python" -P -m sut_data "$@"
    fi
done
echo "${1:-_common.sh}: error: no Python 3.11 or newer was found: install one, or make the \
environment with \`bash scripts/test.sh\`." >&2
exit 1
