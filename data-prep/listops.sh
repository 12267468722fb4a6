#!/usr/bin/env bash
# ListOps -> a folder that fairseq-train reads. Every option: listops.sh --help
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_common.sh"

python="$(find_python)"
exec "$python" "$data_prep/generators/listops.py" "$@"
