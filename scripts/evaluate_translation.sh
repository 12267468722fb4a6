#!/usr/bin/env bash
# Shows:    translation quality of a training run and what a translation costs.
# Machine:  what the model needs: one GPU for the WMT models, 2 CPU cores for small ones.
# Time:     that of a beam search over the test set.
# Expect:   WMT'14 En-De, tokenised BLEU with compounds split: SUT base 29.2, SUT big 29.4,
#           Transformer base 27.3, big 29.3 (published); ours are in docs/results.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_environment.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/evaluate_translation.sh --run DIR [options]
       bash scripts/evaluate_translation.sh --data DIR --checkpoints DIR [options]

Average the best checkpoints by validation NLL, translate with beam 8 and length penalty 0.4, and
print tokenised BLEU, the same with compounds split, sacreBLEU and chrF with their signatures, and
depth, skipped computation and MACs on the reference translations.

  --run DIR            folder of a run, made by a training script of this repository
  --data DIR           folder made by data-prep/ (default: that of the run)
  --checkpoints DIR    --save-dir of the training (default: that of the run)
  --subset NAME        which set to translate (default: test)
  --best N             how many checkpoints to average (default: 5); all if there are fewer
  --log FILE           output of the training, to take the NLL from; needed if it was not run with
                       --best-checkpoint-metric nll_loss
  --beam N             default: 8
  --lenpen X           length penalty (default: 0.4)
  --alpha-threshold A  halting threshold (default: that of training)
  --max-tokens N       source tokens in a batch (default: 4096)
  --out DIR            folder of the results (default: a new name in the folder of the checkpoints)
  --cpu                use no GPU
  --help               show this

In the folder of the results: average.pt, generated.txt, generate.log, bleu.json, macs.json, and
results.json, which holds everything that was printed.
HELP
}

run="" data="" checkpoints="" subset=test best=5 log="" beam=8 lenpen=0.4 alpha_threshold=""
max_tokens=4096 out="" device=()
while [ $# -gt 0 ]; do
    case "$1" in
        -h | --help)
            usage
            exit 0
            ;;
        --cpu) device=(--cpu) ;;
        --run | --data | --checkpoints | --subset | --best | --log | --beam | --lenpen | \
            --alpha-threshold | --max-tokens | --out)
            [ $# -ge 2 ] || die "$1 needs a value; --help explains every option."
            name="${1#--}"
            printf -v "${name//-/_}" %s "$2"
            shift
            ;;
        *) die "unknown option \`$1\`; --help lists the options there are." ;;
    esac
    shift
done
for number in "$best" "$beam" "$max_tokens"; do
    case "$number" in
        "" | *[!0-9]* | 0) die "--best, --beam and --max-tokens take whole numbers from 1, not \`$number\`." ;;
    esac
done
for number in "$lenpen" "${alpha_threshold:-1}"; do
    [[ "$number" =~ ^[0-9]*\.?[0-9]+$ ]] ||
        die "--lenpen and --alpha-threshold take numbers, not \`$number\`."
done
if [ -n "$run" ]; then
    [ -f "$run/data" ] || die "--run $run is not the folder of a run: name what the training script made."
    data="${data:-$(cat "$run/data")}" checkpoints="${checkpoints:-$run/checkpoints}"
fi
[ -n "$data" ] || die "--data is missing: name the folder that data-prep/ made, or a run with --run."
[ -n "$checkpoints" ] || die "--checkpoints is missing: name the --save-dir of the training."
[ -f "$data/text/$subset.tgt" ] || die "--data $data has no text/$subset.tgt: \
make the folder with data-prep/ first, and name one of its sets with --subset."
[ -d "$checkpoints" ] || die "--checkpoints $checkpoints is not a folder: \
name the --save-dir of the training."

prepare_environment
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$("$python" -c 'import os; print(os.cpu_count() or 1)')}"
settings="$subset-best-$best-beam-$beam-lenpen-$lenpen${alpha_threshold:+-alpha-$alpha_threshold}"
out="${out:-$checkpoints/evaluation-$settings}"
mkdir -p "$out"
# Results of an earlier run must not be mistaken for those of this one.
rm -f "$out"/{average.json,generated.txt,bleu.json,macs.json,results.json}

say "averaging the best checkpoints of $checkpoints"
by=()
[ -z "$log" ] || by=(--metric nll_loss --minimize --log "$log")
sut-average --from "$checkpoints" --best "$best" --or-fewer ${by[@]+"${by[@]}"} \
    --output "$out/average.pt" --json >"$out/average.json" || exit 1
"$python" "$repository/scripts/_translation_table.py" chosen "$out"

say "translating $subset (beam $beam, length penalty $lenpen)"
overrides="{${alpha_threshold:+'alpha_threshold': $alpha_threshold}}"
# Five lines for each sentence: source, reference, hypothesis as it is and decoded, its scores.
progress=(cat)
[ ! -t 2 ] || progress=(
    "$python" -m tqdm --desc translating --unit line --total "$((5 * $(wc -l <"$data/text/$subset.tgt")))"
)
fairseq-generate "$data" --user-dir "$repository/sut_fairseq" --path "$out/average.pt" \
    --gen-subset "$subset" --model-overrides "$overrides" --beam "$beam" --lenpen "$lenpen" \
    --max-tokens "$max_tokens" --required-batch-size-multiple 1 --num-workers 0 \
    --log-format none ${device[@]+"${device[@]}"} 2>"$out/generate.log" |
    "${progress[@]}" >"$out/generated.txt.new" ||
    die "the translation failed; $out/generate.log ends: $(tail -n 1 "$out/generate.log")"
mv "$out/generated.txt.new" "$out/generated.txt"
sut-bleu "$out/generated.txt" --data "$data" --gen-subset "$subset" --json >"$out/bleu.json" || exit 1

say "counting MACs"
sut-macs --path "$out/average.pt" --data "$data" --gen-subset "$subset" \
    ${alpha_threshold:+--alpha-threshold "$alpha_threshold"} --json >"$out/macs.json" || exit 1
say "done"
"$python" "$repository/scripts/_translation_table.py" results "$out" \
    "data=$data" "subset=$subset" "beam=$beam" "lenpen=$lenpen" "alpha_threshold=$alpha_threshold"
