#!/usr/bin/env bash
# Shows:    a Sparse Universal Transformer learns SCAN; lowering alpha_threshold saves computation.
# Machine:  2 CPU cores; no GPU, no download but the Python packages.
# Time:     7 to 17 minutes after the installation.
# Expect:   at least 95 % exact match on all 4,182 held-out commands at alpha_threshold 0.999.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=_environment.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/_environment.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/quickstart.sh [--out DIR] [--seed N] [--updates N] [--limit N] [--help]

Install into .venv, generate SCAN from its grammar, train `sut_tiny` (mixtures of experts and
halting on), generate the test set at two values of alpha_threshold, and print exact match, depth,
skipped computation and MACs for both. What is already there is reused; an interrupted training
goes on where it stopped. PYTHON=INTERPRETER before the command chooses the Python of .venv.

  --out DIR     folder for data, checkpoints and results (default: runs/quickstart)
  --seed N      seed of the training (default: 1)
  --updates N   number of training updates (default: 1600); fewer for a first look
  --limit N     use only N pairs each for training, validation and test (default: all)
  --help        show this
HELP
}

out="" seed=1 updates=1600 limit=""
while [ $# -gt 0 ]; do
    case "$1" in
        -h | --help)
            usage
            exit 0
            ;;
        --out | --seed | --updates | --limit)
            [ $# -ge 2 ] || die "$1 needs a value; --help explains every option."
            case "$1" in
                --out) out="$(mkdir -p -- "$2" && cd -- "$2" && pwd -P)" ;;
                --seed) seed="$2" ;;
                --updates) updates="$2" ;;
                --limit) limit="$2" ;;
            esac
            shift 2
            ;;
        *) die "unknown option \`$1\`; --help lists the options there are." ;;
    esac
done
for number in "$seed" "$updates" "${limit:-1}"; do
    case "$number" in
        "" | *[!0-9]* | 0) die "--seed, --updates and --limit take whole numbers from 1, not \`$number\`." ;;
    esac
done

thresholds=(0.999 0.7)
prepare_environment plots,text
out="${out:-$repository/runs/quickstart}"
mkdir -p "$out"
cd "$repository"
# More threads than cores make decoding many times slower.
cores="$("$python" -c 'import os; print(min(2, os.cpu_count() or 1))')"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$cores}"

data="$out/data${limit:+-limit-$limit}"
say "preparing SCAN"
# Not with data-prep/scan.sh, which looks for a Python itself.
PYTHONPATH="$repository/data-prep${PYTHONPATH:+:$PYTHONPATH}" "$python" -P -m sut_data scan.sh \
    --split simple ${limit:+--limit "$limit"} --out "$data" >"$out/prepare.log" ||
    die "the data could not be prepared; the reason is above."
grep -m 1 '^SCAN' "$out/prepare.log" || true

# The name of the folder contains the settings, the architecture and the flags below as a checksum:
# a training never continues with other settings.
settings="$(cat scripts/quickstart.sh sut_fairseq/models/architectures.py | cksum | cut -d ' ' -f 1)"
run="$out/seed-$seed-updates-$updates${limit:+-limit-$limit}-$settings"
mkdir -p "$run"
if [ ! -e "$run/trained" ]; then
    say "training sut_tiny for $updates updates (log: ${run#"$repository"/}/train.log)"
    fairseq-train "$data" --user-dir sut_fairseq --arch sut_tiny \
        --source-lang src --target-lang tgt \
        --criterion cross_entropy_with_auxiliary \
        --mutual-information-weight 0.001 --expected-depth-weight 0.0001 \
        --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-9 --clip-norm 1.0 \
        --lr 1.5e-3 --lr-scheduler polynomial_decay --warmup-updates 100 \
        --total-num-update "$updates" --max-update "$updates" --max-tokens 2048 \
        --required-batch-size-multiple 1 --num-workers 0 --cpu --seed "$seed" \
        --save-dir "$run/checkpoints" --no-epoch-checkpoints --validate-interval 1000 \
        --save-interval 1000 --save-interval-updates 250 --keep-interval-updates 1 \
        --log-format json --log-interval 20 2>&1 |
        tee -a "$run/train.log" | "$python" -P sut_fairseq/experiments/progress.py --total "$updates" ||
        die "the training failed; $run/train.log ends: $(tail -n 1 "$run/train.log")"
    touch "$run/trained"
fi

checkpoint="$run/checkpoints/checkpoint_last.pt"
for threshold in "${thresholds[@]}"; do
    result="$run/threshold-$threshold"
    if [ -e "$result.macs.json" ]; then continue; fi
    say "generating the test set at alpha_threshold $threshold"
    fairseq-generate "$data" --user-dir sut_fairseq --path "$checkpoint" --gen-subset test \
        --model-overrides "{'alpha_threshold': $threshold}" --beam 1 --max-len-b 60 --batch-size 512 \
        --required-batch-size-multiple 1 --num-workers 0 --cpu --log-format tqdm \
        >"$result.generated" || die "the generation failed; its messages are above."
    sut-exact-match "$result.generated" --data "$data" --json >"$result.exact_match.json"
    say "counting MACs at alpha_threshold $threshold"
    sut-macs --path "$checkpoint" --data "$data" --gen-subset test \
        --alpha-threshold "$threshold" --json >"$result.macs.json.new"
    mv "$result.macs.json.new" "$result.macs.json"
done
say "done"
"$python" scripts/_table.py "$run" "${thresholds[@]}"
