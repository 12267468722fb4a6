#!/usr/bin/env bash
# Logical inference (Bowman et al., 2015) -> a folder that fairseq-train reads. Every option: logical_inference.sh --help
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_common.sh"

python="$(find_python)"
exec "$python" "$data_prep/generators/logical_inference.py" "$@"
