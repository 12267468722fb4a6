# Shared by evaluate_*.sh and sweep_alpha_threshold.sh; sourced, never run. Such a script defines
# `usage`, calls `read_evaluation_options "$@"` and then `evaluate OPTIONS...`.

. "$(dirname -- "${BASH_SOURCE[0]}")/_experiment.sh"

evaluation_options() {
    cat <<'HELP'
  --run DIR              folder of a run, made by the training script
  --data DIR             prepared folder (default: that of the training)
  --subset NAME          which split (default: test)
  --by COLUMN            other groups than the usual ones
  --alpha-threshold A    halting threshold (default: that of the training)
  --steps N              steps of the encoder (default: as many as in the training)
  --search               really generate (greedy search), rather than run on the reference targets
                         and count what greedy search would find, which gives the same score
  --max-sentences N      only the first N
  --help                 show this

The best checkpoint of the run is evaluated, and the paper's numbers for the same data and model stand
beside ours. Table and picture are put into the folder of the run.
HELP
}

# read_evaluation_options "$@": sets run, data, subset, by, alpha_threshold, steps, search,
# max_sentences.
read_evaluation_options() {
    run="" data="" subset="" by="" alpha_threshold="" steps="" search="" max_sentences="" sweep=""
    local name
    while [ $# -gt 0 ]; do
        case "$1" in
            -h | --help)
                usage
                evaluation_options
                exit 0
                ;;
            --search) search=1 ;;
            --run | --data | --subset | --by | --alpha-threshold | --steps | --max-sentences)
                [ $# -ge 2 ] || die "$1 needs a value; --help explains every option."
                name="${1#--}"
                printf -v "${name//-/_}" %s "$2"
                shift
                ;;
            *) die "unknown option \`$1\`; --help lists the options there are." ;;
        esac
        shift
    done
    case "${steps:-1}" in
        "" | *[!0-9]* | 0) die "--steps takes a whole number from 1, not \`$steps\`." ;;
    esac
    [ -n "$run" ] || die "--run is missing: name the folder that the training script made."
    checkpoint="$run/checkpoints/checkpoint_best.pt"
    [ -f "$checkpoint" ] || die "--run $run has no checkpoints/checkpoint_best.pt: train first."
}

# evaluate OPTIONS...: sut-evaluate with the options of the user and these.
evaluate() {
    prepare_machine
    subset="${subset:-test}"
    local name="$subset${by:+-by-$by}${alpha_threshold:+-$alpha_threshold}${sweep:+-$sweep}" published=()
    name="$name${steps:+-$steps-steps}${search:+-search}${max_sentences:+-first-$max_sentences}"
    name="$name${data:+-$(basename "$data")}"
    local overrides=()
    [ -z "$steps" ] || overrides=(--model-overrides "{'encoder_layers': $steps}")
    if [ -z "$max_sentences$sweep$steps" ]; then
        read -r -a published <<<"$("$python" "$repository/scripts/_published.py" "$run" \
            "${data:-$(cat "$run/data")}" "$subset" "$by")"
    fi
    sut-evaluate --path "$checkpoint" --gen-subset "$subset" ${data:+--data "$data"} \
        ${by:+--by "$by"} ${alpha_threshold:+--thresholds "$alpha_threshold"} \
        ${overrides[@]+"${overrides[@]}"} ${search:+--modes search} \
        ${max_sentences:+--max-sentences "$max_sentences"} \
        ${published[@]+--published "${published[@]}"} \
        --csv "$run/$name.csv" --plot "$run/$name.png" "$@"
    say "rows: $run/$name.csv, picture: $run/$name.png"
}
