# Shared by the training scripts of the Neural Data Router's tasks; sourced after _experiment.sh.

router_models="ndr transformer rel rel_gate abs_rel_gate geometric transformer_act transformer_act_ut \
rel_act rel_act_ut geometric_act geometric_act_ut lstm bilstm dnc"

router_usage() {
    cat <<'HELP'
`ndr` is the Neural Data Router; it is compared with a Transformer (`transformer`), relative positions
(`rel`), these and a copy gate (`rel_gate`), absolute or relative positions and a gate
(`abs_rel_gate`), geometric attention without a gate (`geometric`), and recurrent networks. `_act` in
a name adds adaptive computation time as Graves has it, `_act_ut` as Dehghani has it.

Checkpoints are selected by accuracy on the validation set that is deeper than the training set.
HELP
}

# router_settings TASK: what the paper's Tables 7 to 9 have in common, and --arch ndr_<TASK>...
router_settings() {
    local arch="ndr_$1" kind="${model%%_act*}"
    [ "$kind" = ndr ] || arch="${arch}_$kind"
    settings=(
        --task sequence_classification --criterion classification --group-column depth
        --valid-subset valid_deep,valid
        --arch "$arch" --optimizer adam --adam-betas '(0.9, 0.999)' --lr-scheduler fixed
        --expected-depth-weight 0 --mutual-information-weight 0
    )
    case "$model" in
        *_act) settings+=(--encoder-halting act --remainder-weight 0.03) ;;
        *_act_ut) settings+=(--encoder-halting act-ut --remainder-weight 0.03) ;;
    esac
}

# small_router_settings UPDATES BATCH OPTIONS...: for 2 CPU cores, so many updates of so many sources
# unless the user says otherwise, at a rate that is held for two thirds of them and then decays; the
# options are for those that are not recurrent.
small_router_settings() {
    updates="${updates:-$1}"
    settings+=(
        --lr 1e-3 --batch-size "$2" --weight-decay 0.01 --dropout 0.1
        --lr-scheduler tri_stage --warmup-steps 200 --decay-steps $((updates / 3 + 1))
        --hold-steps $((updates - updates / 3 > 200 ? updates - updates / 3 - 200 : 0))
        --final-lr-scale 0.01
    )
    if is_model lstm bilstm dnc; then
        settings+=(--lr 3e-3)
    else
        settings+=("${@:3}")
    fi
}

# train_small_router THIRDS:LONGEST...: `train` after parts of so many thirds as many updates on sources of
# at most so many tokens, all their lengths equally frequent: without, single operations are learned
# very slowly.
train_small_router() {
    local part longest short
    for part in "$@"; do
        longest="${part#*:}" short=$(((updates * ${part%:*} + 2) / 3))
        # Each source has a symbol before and after it.
        train_part "up-to-$longest" "$short" accuracy 500 --balance-lengths --valid-subset valid \
            --max-source-positions $((longest + 2)) --skip-invalid-size-inputs-valid-test \
            --hold-steps "$short" --decay-steps 1
    done
    train accuracy 500
}

# is_model NAME...: whether the model is one of these, ACT or not.
is_model() {
    case " $* " in
        *" ${model%%_act*} "*) return 0 ;;
        *) return 1 ;;
    esac
}
