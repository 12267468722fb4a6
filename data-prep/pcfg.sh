#!/usr/bin/env bash
# PCFG SET -> a folder that fairseq-train reads. Every option: pcfg.sh --help
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_common.sh"

python="$(find_python)"
exec "$python" "$data_prep/generators/pcfg.py" "$@"
