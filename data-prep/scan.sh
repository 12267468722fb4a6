#!/usr/bin/env bash
# SCAN -> a folder that fairseq-train reads.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_common.sh"

usage() {
    cat <<'HELP'
usage: scan.sh [--split NAME] [--raw DIR] [--valid-size N] [--limit N] --out DIR

Prepare SCAN (commands such as `jump twice`, actions such as `I_JUMP I_JUMP`) for fairseq.
Without --raw the pairs come from the grammar: nothing is downloaded, and it takes seconds.

  --split NAME     simple (default), length, addprim_jump, addprim_turn_left or
                   template_around_right
  --raw DIR        read the published files (tasks_train_<split>.txt, tasks_test_<split>.txt,
                   plain or .gz, also one folder further down) instead of generating
  --valid-size N   pairs taken out of the training set for validation (default: 500), so that
                   the test set is never used for it
  --limit N        for a quick look, N random pairs of each of train, valid and test
  --out DIR        folder to make; reused when nothing has changed
  --help           show this

The `simple` split was published as one random draw; generated, it is a draw of our own of the
same sizes (16,728 and 4,182). The others hold exactly the published pairs.
HELP
}

out=""
generator_options=()
while [ $# -gt 0 ]; do
    case "$1" in
        -h | --help)
            usage
            exit 0
            ;;
        --split | --raw | --valid-size | --limit | --out)
            [ $# -ge 2 ] || die 2 "$1 needs a value; \`scan.sh --help\` explains every option."
            if [ "$1" = --out ]; then out="$2"; else generator_options+=("$1" "$2"); fi
            shift 2
            ;;
        *) die 2 "unknown option \`$1\`; \`scan.sh --help\` lists the options there are." ;;
    esac
done
[ -n "$out" ] || die 2 "--out is missing: name the folder to make, for example --out data-bin/scan."

python="$(find_python)"
text="$(mktemp -d)"
trap 'rm -rf "$text"' EXIT
"$python" "$data_prep/generators/scan.py" --out "$text" \
    ${generator_options[@]+"${generator_options[@]}"}
"$BASH" "$data_prep/parallel_text.sh" --out "$out" --arch sut_tiny \
    --train "$text/train.src" "$text/train.tgt" \
    --valid "$text/valid.src" "$text/valid.tgt" \
    --test "$text/test.src" "$text/test.tgt"
