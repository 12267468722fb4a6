#!/usr/bin/env bash
# Multi30k -> a folder that fairseq-train reads. Every option: multi30k.sh --help
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_common.sh"

python="$(find_python)"
exec "$python" "$data_prep/generators/multi30k.py" "$@"
