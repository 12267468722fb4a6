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
  --search               really generate (greedy search), rather than run on the reference targets
                         and count what greedy search would find, which gives the same score
  --max-sentences N      only the first N
  --help                 show this

The best checkpoint of the run is evaluated. Table and picture are put into the folder of the run.
HELP
}

# read_evaluation_options "$@": sets run, data, subset, by, alpha_threshold, search, max_sentences, and
# the variable that $own_option (`--name`, if the script sets it) is called like.
read_evaluation_options() {
    run="" data="" subset="${subset:-test}" by="" alpha_threshold="" search="" max_sentences=""
    local name
    while [ $# -gt 0 ]; do
        case "$1" in
            -h | --help)
                usage
                evaluation_options
                exit 0
                ;;
            --search) search=1 ;;
            --run | --data | --subset | --by | --alpha-threshold | --max-sentences | ${own_option:---run})
                [ $# -ge 2 ] || die "$1 needs a value; --help explains every option."
                name="${1#--}"
                printf -v "${name//-/_}" %s "$2"
                shift
                ;;
            *) die "unknown option \`$1\`; --help lists the options there are." ;;
        esac
        shift
    done
    [ -n "$run" ] || die "--run is missing: name the folder that the training script made."
    checkpoint="$run/checkpoints/checkpoint_best.pt"
    [ -f "$checkpoint" ] || die "--run $run has no checkpoints/checkpoint_best.pt: train first."
}

# published_of SPLIT NAME=NUMBER...: set $published to the number of the split, empty if there is none.
published_of() {
    local split="$1" pair
    published=()
    [ -n "$split" ] || return 0
    shift
    for pair in "$@"; do
        [ "${pair%%=*}" != "$split" ] || published=(--published "all=${pair#*=}")
    done
    [ ${#published[@]} -gt 0 ] || die "--split must be one of: ${*%%=*}, but is \`$split\` instead."
}

# evaluate OPTIONS...: sut-evaluate with the options of the user and these.
evaluate() {
    prepare_machine
    local result="$run/$subset${by:+-by-$by}${alpha_threshold:+-$alpha_threshold}${sweep:+-sweep}${search:+-search}"
    sut-evaluate --path "$checkpoint" --gen-subset "$subset" ${data:+--data "$data"} \
        ${by:+--by "$by"} ${alpha_threshold:+--thresholds "$alpha_threshold"} \
        ${search:+--modes search} ${max_sentences:+--max-sentences "$max_sentences"} \
        --csv "$result.csv" --plot "$result.png" "$@"
    say "rows: $result.csv, picture: $result.png"
}
