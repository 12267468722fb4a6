#!/usr/bin/env bash
# SCAN -> a folder that fairseq-train reads. Every option: scan.sh --help
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_common.sh"

python="$(find_python)"
exec "$python" "$data_prep/generators/scan.py" "$@"
