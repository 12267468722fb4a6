"""Classification as translation: trained, validated by group, generated and evaluated."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from sut_fairseq.analysis.evaluation import macro_f1
from tests.integration.commands import TINY, Finished, document_of, generate, run, train, words

SIZES = {"train": 120, "valid": 12, "test": 15}
LABELS = ("low", "mid", "top")
SIDES = ("encoder", "decoder")
FAIRSEQ = words(
    "--arch transformer --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-layers 1 "
    "--decoder-layers 1 --encoder-attention-heads 2 --decoder-attention-heads 2"
)
TASK = ["--task", "classification_as_translation"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sources of 1 to 4 words, the first of which decides the label; their length is a column."""
    folder = tmp_path_factory.mktemp("classes")
    (folder / "text").mkdir()
    for split, size in SIZES.items():
        sources, labels, lengths = [], [], []
        for number in range(size):
            length = 1 + number // 3 % 4
            sources.append(" ".join(["abc"[number % 3], *["x"] * (length - 1)]))
            labels.append(LABELS[number % 3])
            lengths.append(str(length))
        for name, lines in (("src", sources), ("tgt", labels), ("size", lengths)):
            (folder / "text" / f"{split}.{name}").write_text("\n".join(lines) + "\n")
    prefixes = [word for split in SIZES for word in (f"--{split}pref", folder / "text" / split)]
    run("fairseq-preprocess", *words("-s src -t tgt"), *prefixes, "--destdir", folder)
    return folder


@pytest.fixture(scope="module")
def learnt(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Finished]:
    """A run that has learnt it: 60 updates."""
    folder = tmp_path_factory.mktemp("learnt")
    finished = train(
        data, folder, *TINY, *TASK, *words("--group-column size --max-update 60 --lr 0.005"),
        *words("--batch-size 40 --best-checkpoint-metric accuracy --dropout 0"),
        *words("--validate-interval 20 --save-interval 20"),  # epochs, of an update each
        "--maximize-best-checkpoint-metric",
    )  # fmt: skip
    return folder / "checkpoint_best.pt", finished


def test_validation_reports_accuracy_by_group(learnt: tuple[Path, Finished]) -> None:
    last = learnt[1].logged("valid")[-1]
    assert float(last["valid_accuracy"]) == 100
    assert {f"valid_accuracy_size_{size}" for size in "1234"} < last.keys()
    assert float(last["valid_exact_match"]) <= float(last["valid_accuracy"])


def test_generation_predicts_one_label(learnt: tuple[Path, Finished], data: Path) -> None:
    finished = generate(data, learnt[0], *TASK, "--nbest", 5)
    answers = [line.split("\t") for line in finished.stdout.splitlines() if line[:2] == "H-"]
    assert len(answers) == SIZES["test"] * len(LABELS)  # every label is a hypothesis
    assert {answer[2] for answer in answers} == set(LABELS)
    best = [a[2] for a, before in zip(answers, [[""], *answers]) if a[0] != before[0]]
    references = [line.split("\t") for line in finished.stdout.splitlines() if line[:2] == "T-"]
    assert best == [label for _, label in references]


def test_evaluation(learnt: tuple[Path, Finished], data: Path, tmp_path: Path) -> None:
    table, picture = tmp_path / "rows.csv", tmp_path / "picture.png"
    finished = run(
        "sut-evaluate", "--path", learnt[0], "--data", data, "--json",
        *words("--by size --modes reference search --published all=50 --device cpu"),
        "--csv", table, "--plot", picture,
    )  # fmt: skip
    result = json.loads(finished.stdout)
    assert result["measure"] == "accuracy"
    rows = [row for row in result["rows"] if row["mode"] == "reference"]
    assert [row["group"] for row in rows] == ["1", "2", "3", "4", "all"]
    assert sum(row["sentences"] for row in rows[:-1]) == rows[-1]["sentences"] == SIZES["test"]
    assert rows[-1]["percent"] == 100 and rows[-1]["published"] == 50
    assert rows == [{**row, "mode": "reference"} for row in result["rows"][5:]]
    with open(table, newline="") as file:
        assert [row["right"] for row in csv.DictReader(file)] == [
            str(row["right"]) for row in result["rows"]
        ]
    assert b"\r" not in table.read_bytes()
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_confusion(learnt: tuple[Path, Finished], data: Path) -> None:
    asked = ("sut-evaluate", "--path", learnt[0], "--data", data, "--confusion")
    result = json.loads(run(*asked, "--json").stdout)
    assert result["macro_f1"] == 100
    assert result["confusion"]["low"] == {"low": 5, "mid": 0, "top": 0}
    table = run(*asked).stdout
    assert "macro-F1 100.00 %" in table and "label (rows) taken for label (columns)" in table


def test_words_of_experts(learnt: tuple[Path, Finished], data: Path, tmp_path: Path) -> None:
    """Of a label the decoder reads the begin alone, in the table and on the page."""
    asked = ("sut-report", "--path", learnt[0], "--data", data, "--out", tmp_path)
    run(*asked, *words("--experts --format svg"))
    with open(tmp_path / "experts.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert b"\r" not in (tmp_path / "experts.csv").read_bytes()
    read = {loop: {row["text"] for row in rows if row["loop"] == loop} for loop in SIDES}
    assert read == {"encoder": {*"abcx", "</s>"}, "decoder": {"<s>"}}
    assert {row["seen"] for row in rows if row["text"] in ("<s>", "</s>")} == {str(SIZES["test"])}

    run(*asked, "--html", "--thresholds", 0.5)
    document = document_of(tmp_path / "report.html")
    (experts,) = {len(one) for one in document["experts"]["layers"]["decoder"].values()}
    assert experts == 4 and document["depth"]["sentences"] == SIZES["test"]


def test_macro_f1_by_hand() -> None:
    """Labels a (1 of 2 found, precision 1/2), b (0 of 1), and c, which is only predicted."""
    pairs = [("a", "a"), ("a", "c"), ("b", "a")]
    assert macro_f1(pairs) == pytest.approx(100 * (1 / 2 + 0 + 0) / 3)


def test_one_dictionary_for_both_sides(data: Path, joined_data: Path, tmp_path: Path) -> None:
    finished = train(joined_data, tmp_path, *TINY, *TASK, ok=False)
    assert "prepare the data without --joined." in finished.last_line


def test_a_model_of_fairseq(data: Path, tmp_path: Path) -> None:
    finished = train(data, tmp_path, *FAIRSEQ, *TASK)
    assert 0 <= float(finished.logged("valid")[-1]["valid_accuracy"]) <= 100
    checkpoint = tmp_path / "checkpoint_last.pt"
    finished = run("sut-evaluate", "--path", checkpoint, "--data", data, "--device", "cpu")
    assert "accuracy" in finished.stdout and "depth" not in finished.stdout


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("--left-pad-target", "labels and exact match are read from the first column of targets"),
        ("--num-batch-buckets 2", "pads sentences for TPUs"),
        ("--ignore-prefix-size 1", "leaves the label, the only word of a target, out of the loss"),
    ],
)
def test_options_that_labels_do_not_know(
    given: str, sentence: str, data: Path, tmp_path: Path
) -> None:
    """With a model and a criterion of fairseq, which read none of ours."""
    finished = train(data, tmp_path, *FAIRSEQ, *TASK, *words(given), ok=False)
    assert "Traceback" not in finished.stderr and sentence in finished.last_line


@pytest.mark.parametrize(
    "criterion", ["cross_entropy_with_auxiliary", "label_smoothed_cross_entropy"]
)
def test_accuracy_is_that_of_labels(criterion: str, data: Path, tmp_path: Path) -> None:
    """Also where the criterion reports that of symbols, ends included, by the same name."""
    reported = ("--criterion", criterion, "--report-accuracy", *words("--group-column size"))
    last = train(data, tmp_path, *TINY, *TASK, *reported).logged("valid")[-1]
    by_size = [float(last[f"valid_accuracy_size_{size}"]) for size in "1234"]
    assert float(last["valid_accuracy"]) == pytest.approx(sum(by_size) / 4, abs=1e-2)
    assert "valid_n_correct" not in last


def test_r_drop(data: Path, tmp_path: Path) -> None:
    """The criterion computes each batch twice in one pass, in validation too."""
    rdrop = words("--criterion label_smoothed_cross_entropy_with_rdrop --rdrop-alpha 1")
    plain = words("--criterion label_smoothed_cross_entropy")
    options = (*TINY, *TASK, *words("--lr 0 --dropout 0"))
    accuracy = [
        train(data, tmp_path / name, *options, *criterion).logged("valid")[-1]["valid_accuracy"]
        for name, criterion in (("rdrop", rdrop), ("plain", plain))
    ]
    assert accuracy[0] == accuracy[1]


@pytest.mark.parametrize(
    ("side", "sentence"),
    [
        ("src", "the source words of the data are others than those that the model was trained"),
        ("tgt", "the target words of the data are others than those that the model was trained"),
    ],
)
def test_dictionaries_of_the_same_size_with_other_words(
    learnt: tuple[Path, Finished], data: Path, tmp_path: Path, side: str, sentence: str
) -> None:
    folder = tmp_path / "other"
    shutil.copytree(data, folder)
    dictionary = folder / f"dict.{side}.txt"
    first, second, *others = dictionary.read_text().splitlines(keepends=True)
    dictionary.write_text("".join([second, first, *others]))
    finished = run("sut-evaluate", "--path", learnt[0], "--data", folder, ok=False)
    assert finished.status == 2
    assert sentence.format(folder) in finished.last_line and "Traceback" not in finished.stderr


@pytest.mark.parametrize("model", [TINY, FAIRSEQ], ids=["ours", "of fairseq"])
def test_resuming_with_other_labels(model: list[str], data: Path, tmp_path: Path) -> None:
    """fairseq reads the state of the model then, and not that of the task."""
    run_, folder = tmp_path / "run", tmp_path / "other"
    train(data, run_, *model, *TASK)
    shutil.copytree(data, folder)
    first, second, *others = (data / "dict.tgt.txt").read_text().splitlines(keepends=True)
    (folder / "dict.tgt.txt").write_text("".join([second, first, *others]))
    finished = train(folder, run_, *model, *TASK, "--max-update", 4, ok=False)
    assert finished.status == 1 and "Traceback" not in finished.stderr
    assert finished.last_line.startswith("error: the target words of the data are others than thos")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"test.tgt": "low\nmid low\n"}, "pair 1 of the split `test` has a target of 2 words"),
        ({"test.tgt": "low\nhigh\n"}, "pair 1 of the split `test` has a label that training"),
        ({"test.size": "1\n"}, "has 1 values, but the split has 2 sentence pairs"),
        ({"test.size": None}, "has no column `size`; its columns are: none; source_length and"),
    ],
    ids=["two words", "unseen label", "short column", "no column"],
)
def test_bad_data(
    learnt: tuple[Path, Finished],
    data: Path,
    tmp_path: Path,
    change: dict[str, str | None],
    sentence: str,
) -> None:
    files = {"test.src": "a x\nb\n", "test.tgt": "low\nmid\n", "test.size": "2\n1\n", **change}
    (tmp_path / "text").mkdir()
    for name, content in files.items():
        if content is not None:
            (tmp_path / "text" / name).write_text(content)
    for side in ("src", "tgt"):
        (tmp_path / f"dict.{side}.txt").write_text((data / f"dict.{side}.txt").read_text())
    dictionaries = ("--srcdict", tmp_path / "dict.src.txt", "--tgtdict", tmp_path / "dict.tgt.txt")
    run(
        "fairseq-preprocess", *words("-s src -t tgt"), *dictionaries,
        "--testpref", tmp_path / "text" / "test", "--destdir", tmp_path / "bin",
    )  # fmt: skip
    (tmp_path / "text").rename(tmp_path / "bin" / "text")
    evaluated = ("sut-evaluate", "--path", learnt[0], "--data", tmp_path / "bin", "--by", "size")
    finished = run(*evaluated, ok=False)
    assert finished.status == 2
    assert sentence in finished.last_line and "Traceback" not in finished.stderr
