#!/usr/bin/env bash
# Compositional table lookup -> a folder that fairseq-train reads. Every option: ctl.sh --help
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_common.sh"

python="$(find_python)"
exec "$python" "$data_prep/generators/ctl.py" "$@"
