#!/usr/bin/env bash
# ListOps by dependency depth -> a folder that fairseq-train reads. Every option: listops_dependency.sh --help
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_common.sh"

python="$(find_python)"
exec "$python" "$data_prep/generators/listops_dependency.py" "$@"
