"""Classifiers of whole sentences through the real commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils

from sut_fairseq.analysis import untrained
from sut_fairseq.checkpoints.reading import load_as_fairseq
from sut_fairseq.errors import InputError
from sut_fairseq.models.classifier_architectures import CLASSIFIERS
from sut_fairseq.tasks.balanced import BalancedLengths
from sut_fairseq.tasks.labels import LabelTaskConfig
from sut_fairseq.tasks.sequence_classification import SequenceClassificationTask
from tests.integration.commands import Finished, generate, on_cpu, run, train, words

SIZES = {"train": 120, "valid": 12, "valid_deep": 10, "test": 15}
LABELS = ("low", "mid", "top")
TASK = words(
    "--task sequence_classification --criterion classification --group-column size "
    "--valid-subset valid,valid_deep"
)
ENCODER = words(
    "--arch encoder_classifier --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 "
    "--encoder-attention-heads 2 --encoder-layers 2"
)
RECURRENT = words("--arch recurrent_classifier --encoder-embed-dim 8 --encoder-hidden-size 8")
MODELS = {
    "encoder": [*ENCODER, *words("--readout first --training-steps-beyond-length 0")],
    "universal": [
        *ENCODER,
        *words("--encoder-halting stick-breaking --ffn-experts 3 --ffn-top-k 2"),
        *words("--attention-experts 3 --attention-top-k 2 --encoder-normalize-before"),
    ],
    "lstm": RECURRENT,
    "bilstm": [*RECURRENT, *words("--encoder-bidirectional --encoder-layers 2")],
    "dnc": [*RECURRENT, *words("--recurrent-kind dnc --dnc-cells 4 --dnc-read-heads 2")],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sources whose first word decides the label; their length is a column.

    Those of `valid_deep` are longer, and every second label there is wrong.
    """
    folder = tmp_path_factory.mktemp("classes")
    (folder / "text").mkdir()
    for split, size in SIZES.items():
        lines: dict[str, list[str]] = {"src": [], "tgt": [], "size": []}
        for number in range(size):
            deep = split == "valid_deep"
            length = 1 + number // 3 % 4 + 4 * deep
            lines["src"].append(" ".join(["abc"[number % 3], *["x"] * (length - 1)]))
            lines["tgt"].append(LABELS[(number + (deep and number % 2)) % 3])
            lines["size"].append(str(length))
        for name, column in lines.items():
            (folder / "text" / f"{split}.{name}").write_text("\n".join(column) + "\n")
    text = folder / "text"
    run(
        "fairseq-preprocess", *words("-s src -t tgt --destdir"), folder,
        "--trainpref", text / "train", "--testpref", text / "test",
        "--validpref", f"{text / 'valid'},{text / 'valid_deep'}",
    )  # fmt: skip
    for file in folder.glob("valid1.*"):  # fairseq's name for the second set
        file.rename(folder / file.name.replace("valid1", "valid_deep"))
    return folder


@pytest.fixture(scope="module")
def learnt(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Finished]:
    """A run that has learnt it: 60 updates."""
    folder = tmp_path_factory.mktemp("learnt")
    return folder / "checkpoint_best.pt", learn(data, folder)


def learn(data: Path, folder: Path, *arguments: object) -> Finished:
    return train(
        data, folder, *ENCODER, *TASK, *words("--max-update 60 --lr 0.005 --batch-size 40"),
        *words("--weight-decay 0.01 --clip-norm 5 --dropout 0 --validate-interval 4"),
        *words("--save-interval 4 --no-epoch-checkpoints --best-checkpoint-metric accuracy"),
        "--maximize-best-checkpoint-metric", *arguments,
    )  # fmt: skip


def evaluate(checkpoint: Path, data: Path, *arguments: object) -> dict[str, Any]:
    fixed = ("--path", checkpoint, "--data", data, "--device", "cpu", "--json")
    return json.loads(run("sut-evaluate", *fixed, *arguments).stdout)


# Of the published sizes, those of table lookup; the others are the same kinds in other sizes.
REMAINDER = words("--encoder-halting act --remainder-weight 0.03")
BY_TOKEN = words("--encoder-halting act-ut")
RESUMED = ("ndr_ctl_lstm", "ndr_ctl_dnc")
ARCHITECTURES = [
    # An LSTM and a DNC are trained by `test_every_model_trains_resumes_and_is_evaluated`.
    *(
        pytest.param(arch, (), marks=[pytest.mark.slow] if arch in RESUMED else [])
        for arch in CLASSIFIERS
        if arch.startswith("ndr_ctl")
    ),
    ("ndr_ctl_geometric", REMAINDER),
    ("ndr_ctl_transformer", BY_TOKEN),
    *(
        pytest.param(arch, options, marks=pytest.mark.slow)
        for arch, options in (
            ("ndr_ctl_rel", REMAINDER),
            ("ndr_ctl_rel", BY_TOKEN),
            ("ndr_ctl_geometric", BY_TOKEN),
        )
    ),
]


@pytest.mark.parametrize(("arch", "options"), ARCHITECTURES)
def test_every_architecture_trains(
    arch: str, options: tuple[str, ...], data: Path, tmp_path: Path
) -> None:
    """Two updates each."""
    arguments = (*TASK, *words("--balance-lengths --batch-size 16 --weight-decay 0"), *options)
    finished = train(data, tmp_path, "--arch", arch, *arguments)
    assert [line["num_updates"] for line in finished.logged("train_inner")] == ["1", "2"]
    assert ("remainder_loss" in finished.logged("train_inner")[0]) == bool(options)


@pytest.mark.parametrize("arch", CLASSIFIERS)
def test_every_architecture_scores_labels(arch: str) -> None:
    """All published sizes are built, and score as many labels as there are."""
    model, _ = untrained.build(arch, 20)
    batch = {"src_tokens": torch.tensor([[0, 5, 6, 2], [0, 7, 2, 1]])}
    scores, _ = model.eval()(**batch)
    assert scores.shape == (2, 16) and scores.isfinite().all()


@pytest.mark.parametrize(
    ("arch", "dropped"),
    [
        ("ndr_ctl", 0),
        ("ndr_ctl_geometric", 0),
        ("ndr_listops_rel", 0),
        ("ndr_ctl_transformer", 0.1),
    ],
)
def test_relative_positions_leave_embedded_words_intact(arch: str, dropped: float) -> None:
    """As in the authors' code; a copy gate would hand on what dropout makes of them."""
    model, _ = untrained.build(arch, 20)
    assert model.encoder.embedding.dropout.p == dropped
    model, _ = untrained.build(arch, 20, ["--embedding-dropout", "0.3"])
    assert model.encoder.embedding.dropout.p == 0.3


@pytest.mark.parametrize(
    "name",
    # In the default tests another recurrent one is resumed, and ndr_ctl_bilstm is trained.
    [pytest.param(name, marks=[pytest.mark.slow] if name == "bilstm" else []) for name in MODELS],
)
def test_every_model_trains_resumes_and_is_evaluated(name: str, data: Path, tmp_path: Path) -> None:
    for updates in (2, 4):
        finished = train(data, tmp_path, *MODELS[name], *TASK, "--max-update", updates)
        numbers = [line["num_updates"] for line in finished.logged("train_inner")]
        assert numbers == [str(updates - 1), str(updates)]
        (valid,), (deep,) = finished.logged("valid"), finished.logged("valid_deep")
        groups = [{key for key in line if "accuracy_size_" in key} for line in (valid, deep)]
        assert groups[0] == {f"valid_accuracy_size_{size}" for size in "1234"}
        assert groups[1] == {f"valid_deep_accuracy_size_{size}" for size in "5678"}
        assert 0 <= float(valid["valid_accuracy"]) <= 100
        assert (
            ("valid_encoder_skipped" in valid)
            == ("load_balance_loss" in str(valid))
            == (name == "universal")
        )
    checkpoint = tmp_path / "checkpoint_last.pt"
    result = evaluate(checkpoint, data, *words("--by size --gen-subset valid_deep"))
    assert result["measure"] == "accuracy"
    assert [row["group"] for row in result["rows"]] == ["5", "6", "7", "8", "all"]
    assert round(result["rows"][-1]["percent"], 3) == float(deep["valid_deep_accuracy"])


def test_it_is_learnt_and_generated(learnt: tuple[Path, Finished], data: Path) -> None:
    last = learnt[1].logged("valid")[-1]
    assert float(last["valid_accuracy"]) == 100
    assert float(learnt[1].logged("train")[-1]["train_accuracy"]) == 100
    rows = evaluate(learnt[0], data, *words("--by source_length --modes reference search"))["rows"]
    assert [row["group"] for row in rows[:5]] == ["1", "2", "3", "4", "all"]  # words alone
    assert [row["percent"] for row in rows] == [100] * 10
    finished = generate(data, learnt[0], "--task", "sequence_classification", "--nbest", 1)
    found, wanted = (
        [line.split("\t")[-1] for line in finished.stdout.splitlines() if line[:2] == kind]
        for kind in ("H-", "T-")
    )
    assert len(wanted) == SIZES["test"] and found == wanted
    asked = on_cpu(
        "fairseq-interactive", data, "--path", learnt[0], "--task", "sequence_classification",
        stdin="b x x\n",
    )  # fmt: skip
    (best, *_) = [line for line in asked.stdout.splitlines() if line.startswith("H-0")]
    assert best.endswith("\tmid")


def test_the_reference_is_scored(learnt: tuple[Path, Finished], data: Path) -> None:
    """With the log-probability that it has among all labels."""
    fixed = (data, learnt[0], *words("--task sequence_classification --gen-subset valid_deep"))
    scored, every = (
        generate(*fixed, *options).stdout.splitlines()
        for options in (["--score-reference"], ["--nbest", len(LABELS)])
    )
    probabilities = {tuple(line.split("\t")[::2]): line for line in every if line[:2] == "H-"}
    answers = [line for line in scored if line[:2] == "H-"]
    references = [line for line in scored if line[:2] == "T-"]
    assert len(answers) == len(references) == SIZES["valid_deep"]
    for answer, reference in zip(answers, references):
        number, label = reference.split("\t")
        assert answer == probabilities[f"H-{number[2:]}", label]


@pytest.mark.parametrize(
    ("command", "options", "sentence"),
    [
        ("fairseq-generate", "--print-alignment", "leave --print-alignment out."),
        (
            "fairseq-generate",
            "--sampling --beam 1 --temperature 2 --min-len 3",
            "ranks all labels, without a search: leave --sampling and --temperature and --min-len",
        ),
        ("fairseq-generate", "--prefix-size 1", "leave --prefix-size and --constraints out."),
        ("fairseq-interactive", "--score-reference", "--score-reference needs sentences with"),
    ],
)
def test_searches_that_labels_do_not_know(
    command: str, options: str, sentence: str, learnt: tuple[Path, Finished], data: Path
) -> None:
    asked = (command, data, "--path", learnt[0], *words("--task sequence_classification"))
    finished = on_cpu(*asked, *words(options), stdin="b x\n", ok=False)
    assert finished.status == 1 and "Traceback" not in finished.stderr
    assert sentence in finished.last_line


def test_fairseq_validate(learnt: tuple[Path, Finished], data: Path) -> None:
    finished = on_cpu(
        "fairseq-validate", data, "--path", learnt[0], *TASK, *words("--batch-size 8"),
        *words("--log-format json"),
    )  # fmt: skip
    for split in ("valid", "valid_deep"):
        (now,), then = finished.logged(split), learnt[1].logged(split)[-1]
        assert now[f"{split}_accuracy"] == then[f"{split}_accuracy"]


def test_every_sentence_is_scored_once(learnt: tuple[Path, Finished], data: Path) -> None:
    """However often training with balanced lengths saw it."""
    overrides = {"data": str(data), "balance_lengths": True}
    state = load_as_fairseq(str(learnt[0]), overrides)
    _, settings, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(learnt[0])], overrides, state=state
    )
    task.load_dataset("train", task_cfg=settings.task)  # as fairseq-validate does
    assert len(task.dataset("train")) == SIZES["train"]
    task.load_dataset("train")
    assert isinstance(task.dataset("train"), BalancedLengths)


def test_repeated_sentences_are_not_validated_on(data: Path, tmp_path: Path) -> None:
    options = words("--arch ndr_ctl --balance-lengths --valid-subset train,valid")
    finished = train(data, tmp_path, *TASK, *options, ok=False)
    assert finished.status == 1 and "Traceback" not in finished.stderr
    assert finished.last_line == (
        "error: --balance-lengths repeats sentences of `train`, which --valid-subset names too: "
        "validate on other sets, and score this one after training with fairseq-validate "
        "--valid-subset train."
    )


def test_steps_at_test_time(learnt: tuple[Path, Finished], data: Path) -> None:
    """More steps change what the model computes, and only through the depth."""
    states = {}
    for steps in (2, 7):
        overrides = f"{{'encoder_layers': {steps}}}"
        asked = ("fairseq-generate", data, "--path", learnt[0], "--task", "sequence_classification")
        finished = on_cpu(*asked, "--model-overrides", overrides, "--batch-size", 5)
        assert f"steps: encoder {steps}; " in finished.stdout + finished.stderr
        states[steps] = [line for line in finished.stdout.splitlines() if line[:2] == "H-"]
        result = evaluate(learnt[0], data, "--model-overrides", overrides)
        assert result["rows"][0]["sentences"] == SIZES["test"]
    assert states[2] != states[7]


def test_selection_by_any_set(learnt: tuple[Path, Finished], data: Path, tmp_path: Path) -> None:
    """fairseq selects by the first set that is named."""
    deep_first = learn(data, tmp_path, *words("--valid-subset valid_deep,valid --max-update 24"))
    for split, finished, checkpoint in (
        ("valid", learnt[1], learnt[0]),
        ("valid_deep", deep_first, tmp_path / "checkpoint_best.pt"),
    ):
        curve = [float(line[f"{split}_accuracy"]) for line in finished.logged(split)]
        best = torch.load(checkpoint, weights_only=True)["extra_state"]["val_loss"]
        assert len(curve) > 1 and round(best, 3) == max(curve)
    assert max(curve) < 100  # unlike on the other set


def test_truncated_sources_fit(data: Path) -> None:
    """Begin and end are among the most tokens that a model takes."""
    options = dict(data=str(data), source_lang="src", target_lang="tgt", dataset_impl="mmap")
    config = LabelTaskConfig(
        **options, train_subset="train", required_seq_len_multiple=1, truncate_source=True
    )
    config.max_source_positions = 4
    task = SequenceClassificationTask.setup_task(config)
    task.load_dataset("valid_deep")
    found, dictionary = task.dataset("valid_deep"), task.source_dictionary
    assert max(found.src_sizes) <= 4 == task.max_positions()[0]
    sources = (data / "text" / "valid_deep.src").read_text().splitlines()
    for pair, source in zip(found, sources, strict=True):
        words = [dictionary.index(word) for word in source.split()[:2]]
        assert pair["source"].tolist() == [dictionary.bos(), *words, dictionary.eos()]
    config.max_source_positions = 2
    with pytest.raises(InputError, match="must be more than 2, with --truncate-source, but is 2"):
        task.load_dataset("valid")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--criterion cross_entropy", "needs --criterion classification, not cross_entropy."),
        (
            "--task translation",
            "score for each label: give --task sequence_classification",
        ),
        ("--arch sut_tiny", "needs a model that gives one score for each label, (8, 3) here"),
        ("--arch sut_tiny --task translation", "needs --task sequence_classification."),
        ("--group-column depth", "has no column `depth`; its columns are: size."),
        ("--readout middle", "invalid choice: 'middle'"),
        ("--num-batch-buckets 2", "pads sentences for TPUs, on which these models do not run"),
    ],
)
def test_bad_combinations(arguments: str, sentence: str, data: Path, tmp_path: Path) -> None:
    both = {"--task": "sequence_classification", "--criterion": "classification"}
    given = words(arguments)
    both |= dict(zip(given[::2], given[1::2]))
    model = [] if "--arch" in both else ENCODER
    finished = train(
        data, tmp_path, *model, *(word for pair in both.items() for word in pair), ok=False
    )
    assert finished.status != 0 and "Traceback" not in finished.stderr
    assert sentence in finished.last_line


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("mid low", "pair 1 of the split `test` has a target of 2 words"),
        ("high", "pair 1 of the split `test` has a label that training does not have"),
    ],
)
def test_bad_targets(
    target: str, sentence: str, learnt: tuple[Path, Finished], data: Path, tmp_path: Path
) -> None:
    (tmp_path / "test.src").write_text("a x\nb\n")
    (tmp_path / "test.tgt").write_text(f"low\n{target}\n")
    dictionaries = ("--srcdict", data / "dict.src.txt", "--tgtdict", data / "dict.tgt.txt")
    run(
        "fairseq-preprocess", *words("-s src -t tgt"), *dictionaries,
        "--testpref", tmp_path / "test", "--destdir", tmp_path / "bin",
    )  # fmt: skip
    finished = run("sut-evaluate", "--path", learnt[0], "--data", tmp_path / "bin", ok=False)
    assert finished.status == 2 and "Traceback" not in finished.stderr
    assert sentence in finished.last_line


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ("{'encoder_layer': 3}", "the model has no option `encoder_layer`; similar ones are"),
        ("{'encoder_layers': 0}", "`encoder_layers` must be at least 1, but is 0 instead."),
        ("encoder_layers=3", "must be a dictionary like {'encoder_layers': 24}, but is"),
    ],
)
def test_bad_overrides(
    overrides: str, sentence: str, learnt: tuple[Path, Finished], data: Path
) -> None:
    asked = ("sut-evaluate", "--path", learnt[0], "--data", data, "--model-overrides", overrides)
    finished = run(*asked, ok=False)
    assert finished.status == 2 and "Traceback" not in finished.stderr
    assert sentence in finished.last_line
