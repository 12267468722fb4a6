#!/usr/bin/env bash
# WMT'14 English-German -> a folder that fairseq-train reads. Every option: wmt14_en_de.sh --help
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_common.sh"

python="$(find_python)"
exec "$python" "$data_prep/generators/wmt14.py" "$@"
