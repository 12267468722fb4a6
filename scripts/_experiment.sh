# Shared by train_*.sh; sourced, never run. Such a script defines `usage`, sets `experiment` (its
# name) and `models` (the first one is the default), calls `read_training_options "$@"`, puts flags
# of fairseq-train into the array `settings`, and ends with `train METRIC [UPDATES]`.

. "$(dirname -- "${BASH_SOURCE[0]}")/_environment.sh"

# paper_settings: the optimisation of Table 7 for formal languages (4 batches for each update, on
# however many GPUs), the dense model of the paper's CFQ runs, the experts of its logical inference model in as many steps, or
# the baseline of its Appendix B.3, fairseq's Transformer for IWSLT; or a Neural Data Router.
paper_settings() {
    settings=(
        --label-smoothing 0.1 --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-9
        --lr 7e-4 --lr-scheduler inverse_sqrt --warmup-updates 4000
        --max-tokens 16384 --max-epoch 450
    )
    batches=4
    case "$model" in
        sut) settings+=(--arch sut_logical_inference --encoder-layers 8 --decoder-layers 8) ;;
        ut) settings+=(--arch ut_cfq) ;;
        ndr) settings+=(--arch ndr_seq2seq) ;;
        transformer) settings+=(--arch transformer_iwslt_de_en) ;;
    esac
}

# small_settings UPDATES [absolute]: states of 128, and a learning rate that decays to zero, without
# which few updates do not reach far. With `absolute` positions are absolute too.
small_settings() {
    updates="${updates:-$1}"
    settings=(
        --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-9 --clip-norm 1.0
        --lr 1.5e-3 --lr-scheduler polynomial_decay --warmup-updates 100
        --total-num-update "$updates" --max-tokens 2048
    )
    case "$model" in
        # Lengths unseen in training need positions that are relative only.
        sut | ut)
            settings+=(--arch "${model}_tiny")
            [ "${2:-}" = absolute ] || settings+=(--no-token-positional-embeddings)
            ;;
        ndr) settings+=(--arch ndr_seq2seq_tiny) ;;
        transformer)
            settings+=(
                --arch transformer --encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 128
                --encoder-ffn-embed-dim 256 --encoder-attention-heads 8
                --decoder-attention-heads 8 --encoder-normalize-before
                --decoder-normalize-before --dropout 0.1
            )
            ;;
    esac
}

training_options() {
    cat <<HELP
  --data DIR      folder made by data-prep/
  --model NAME    one of: $models (default: ${models%% *})
  --small         small model and training, for 2 CPU cores
  --out DIR       folder of the run (default: runs/$experiment/<data>-<model>[-small]-seed-<N>)
  --seed N        default: 1
  --updates N     stop after N updates (with --small also the length of the schedule)
  --dry-run       print the command of fairseq-train, as on a machine with one GPU, and stop
  --help          show this
  -- OPTION ...   more options for fairseq-train; they win over those of the script

An interrupted training goes on where it stopped. The log is train.log in the folder of the run.
HELP
}

# read_training_options "$@": sets data, model, small, out, seed, updates and more; and the variable
# that $own_option (`--name`, if the script sets it) is called like.
read_training_options() {
    data="" model="${models%% *}" small="" out="" seed=1 updates="" dry_run="" more=()
    batches=1 evaluation="evaluate_$experiment.sh --run OUT"
    while [ $# -gt 0 ]; do
        case "$1" in
            -h | --help)
                usage
                training_options
                exit 0
                ;;
            --small) small=1 ;;
            --dry-run) dry_run=1 ;;
            --data | --model | --out | --seed | --updates | ${own_option:---data})
                [ $# -ge 2 ] || die "$1 needs a value; --help explains every option."
                printf -v "${1#--}" %s "$2"
                shift
                ;;
            --)
                shift
                more=("$@")
                break
                ;;
            *) die "unknown option \`$1\`; --help lists the options there are." ;;
        esac
        shift
    done
    case " $models " in
        *" $model "*) ;;
        *) die "--model must be one of: $models, but is \`$model\` instead." ;;
    esac
    for number in "$seed" "${updates:-1}"; do
        case "$number" in
            "" | *[!0-9]* | 0) die "--seed and --updates take whole numbers from 1, not \`$number\`." ;;
        esac
    done
    [ -n "$data" ] || die "--data is missing: name the folder that data-prep/ made."
    [ -f "$data/dict.src.txt" ] || die "--data $data has no dict.src.txt: \
make the folder with data-prep/ first."
    data="$(cd -- "$data" && pwd -P)"
}

# run_folder: print the folder of the run, the one given with --out or the default.
run_folder() {
    realpath -m -- \
        "${out:-$repository/runs/$experiment/$(basename "$data")-$model${small:+-small}-seed-$seed}"
}

# prepare_machine: the environment, one thread for each core, and the number of GPUs that fairseq will
# use as $gpus.
prepare_machine() {
    prepare_environment
    export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$("$python" -c 'import os; print(os.cpu_count() or 1)')}"
    gpus="$("$python" -c 'import torch; print(torch.cuda.device_count())')"
}

# machine_flags: print what depends on the machine: the device, its data workers, and so many batches
# for each GPU and update that $batches come together.
machine_flags() {
    if [ "$gpus" -eq 0 ]; then
        printf '%s ' --cpu --num-workers 0 --update-freq "$batches"
    else
        printf '%s ' --num-workers 2 --update-freq $(((batches + gpus - 1) / gpus))
    fi
}

# train METRIC [UPDATES]: run fairseq-train with `settings` and what every experiment shares, the user's
# own options last; validate and save after each so many updates (default: 1000), and keep the best
# by METRIC.
train() {
    local maximize=(--maximize-best-checkpoint-metric) every="${2:-1000}"
    [ "$1" != nll_loss ] || maximize=()
    [ "$every" -le "${updates:-$every}" ] || every="$updates"
    local machine
    gpus=1
    [ -n "$dry_run" ] || prepare_machine
    read -r -a machine <<<"$(machine_flags)"
    out="$(run_folder)"
    [ -n "$dry_run" ] || mkdir -p "$out"
    local command=(
        fairseq-train "$data" --user-dir "$repository/sut_fairseq" --source-lang src --target-lang tgt
        --criterion cross_entropy_with_auxiliary
        --mutual-information-weight 0.001 --expected-depth-weight 0.0001 "${settings[@]}"
        --best-checkpoint-metric "$1" ${maximize[@]+"${maximize[@]}"}
        --validate-interval 100000 --validate-interval-updates "$every" --save-interval 100000
        --save-interval-updates "$every" --keep-interval-updates 1 --no-epoch-checkpoints
        --save-dir "$out/checkpoints"
        --required-batch-size-multiple 1 --seed "$seed" --log-format json --log-interval 20
        ${updates:+--max-update "$updates"} ${more[@]+"${more[@]}"}
    )
    if [ -n "$dry_run" ]; then
        printf '%q ' "${command[@]:0:2}" "${machine[@]}" "${command[@]:2}"
        printf '\n'
        return
    fi
    # A run of other settings must not be continued as if it were this one; on another machine it may.
    printf '%q ' "${command[@]}" >"$out/command.new"
    if [ -e "$out/command" ] && ! cmp -s "$out/command" "$out/command.new"; then
        die "$out holds a run of other settings (see the files command and command.new in it): \
choose another --out."
    fi
    mv "$out/command.new" "$out/command"
    printf '%s\n' "$model" >"$out/model"
    printf '%s\n' "$data" >"$out/data"
    if [ -e "$out/trained" ]; then
        say "already trained: $out"
    else
        say "training $model on $data (log: $out/train.log)"
        "${command[@]:0:2}" "${machine[@]}" "${command[@]:2}" 2>&1 | tee -a "$out/train.log" |
            "$python" "$repository/scripts/_progress.py" ${updates:+--total "$updates"} ||
            die "the training failed; $out/train.log ends: $(tail -n 1 "$out/train.log")"
        say "trained"
        touch "$out/trained"
    fi
    [ -z "$evaluation" ] || say "evaluate it: bash scripts/${evaluation/OUT/$out}"
}

# train_part FOLDER UPDATES METRIC EVERY [OPTION...]: `train` with so many updates and these options, in a
# folder of that name within the run's; what is trained next starts with the parameters that come out.
train_part() {
    local whole_run
    whole_run="$(run_folder)"
    (
        out="$whole_run/$1" updates="$2" evaluation=""
        settings+=("${@:5}")
        train "$3" "$4"
    )
    settings+=(--finetune-from-model "$whole_run/$1/checkpoints/checkpoint_last.pt")
}
