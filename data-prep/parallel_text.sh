#!/usr/bin/env bash
# Parallel text -> a folder that fairseq-train reads. Every option: parallel_text.sh --help
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_common.sh"

python="$(find_python)"
exec "$python" "$data_prep/generators/parallel_text.py" "$@"
