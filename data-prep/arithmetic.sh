#!/usr/bin/env bash
# Simple arithmetic -> a folder that fairseq-train reads. Every option: arithmetic.sh --help
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_common.sh"

python="$(find_python)"
exec "$python" "$data_prep/generators/arithmetic.py" "$@"
