"""`sut-report`: pictures of a sentence and of average steps, and what it refuses."""

from __future__ import annotations

import csv
import re
import shlex
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from sut_fairseq.cli import report
from tests.integration.commands import SIZES, TINY, run, train, words


def pictures(
    checkpoint: Path, data: Path, out: Path, *arguments: object, folder: str = ""
) -> tuple[str, list[str]]:
    """What the command said first, and the files it wrote in a folder of `out`: all that is there.

    A sentence has a folder of its own; `sentence.txt` in it says whose it is.
    """
    fixed = ("--path", checkpoint, "--data", data, "--out", out)
    finished = run("sut-report", *fixed, *arguments)
    (summary,) = (one for one in finished.stderr.splitlines() if one.startswith("sut-report: "))
    lines = finished.stdout.splitlines()
    files = sorted(Path(line).name for line in lines if line.startswith(str(out)))
    assert re.match(rf"sut-report: {len(files)} (pictures?|files?) .*\d s\.$", summary)
    out = out / folder
    there = sorted(path.name for path in out.iterdir())
    assert there == sorted([*files, *(["sentence.txt"] if folder else [])])
    for name in files:
        if name.endswith(".png"):
            image = imread(out / name)
            assert min(image.shape[:2]) > 200 and image[..., :3].std() > 0.02
        elif name.endswith(".pdf"):
            content = (out / name).read_bytes()
            assert content.startswith(b"%PDF") and content.rstrip().endswith(b"%%EOF")
    return "\n".join(line for line in lines if not line.startswith(str(out))), files


def test_pictures_of_a_translation(trained: Path, data: Path, tmp_path: Path) -> None:
    options = words("--number 11 --max-len 9 --format png")
    said, files = pictures(trained, data, tmp_path / "a" / "b", *options, folder="test_11")
    first, second = said.splitlines()
    assert first.startswith("source: ") and first.endswith(" </s>")
    assert second.startswith("answer: ") and len(second.split()) <= 10
    assert files == [
        "decoder_cross_attention_maximum.png",
        "decoder_halting.png",
        "decoder_self_attention_maximum.png",
        "encoder_halting.png",
        "encoder_self_attention_maximum.png",
    ]


def test_pictures_of_a_given_pair(trained: Path, data: Path, tmp_path: Path) -> None:
    pair = ("--sentence", "turn  left", "--target", "I_TURN_LEFT")
    said, files = pictures(trained, data, tmp_path, *pair, *words("--head 2"), folder="turn_left")
    assert said == "source: turn left </s>\nanswer: I_TURN_LEFT"
    assert len(files) == 10 and "encoder_self_attention_head_2.pdf" in files


def test_every_sentence_has_a_folder_of_its_own(trained: Path, data: Path, tmp_path: Path) -> None:
    """Two with the same name do not share one, and the same sentence comes back to its own."""
    fixed = ("--path", trained, "--data", data, "--out", tmp_path, "--format", "svg")
    both = ("--sentence", "turn left", "--sentence", "turn, left")
    for asked in (both, ("--number", 2), both[2:]):
        run("sut-report", *fixed, *asked, "--max-len", 5)
    # As after a kill that left a single picture.
    for picture in (tmp_path / "turn_left_2").glob("encoder*.svg"):
        picture.unlink()
    run("sut-report", *fixed, *both[2:], "--max-len", 5)
    folders = sorted(path.name for path in tmp_path.iterdir())
    assert folders == ["test_2", "turn_left", "turn_left_2"]
    assert (tmp_path / "turn_left_2" / "sentence.txt").read_text().startswith("turn, left\n")
    assert all(len(list(folder.iterdir())) == 6 for folder in tmp_path.iterdir())


def test_words_of_experts(trained: Path, data: Path, tmp_path: Path) -> None:
    options = words("--experts --gen-subset train --format png --out")
    said = run("sut-report", "--path", trained, "--data", data, *options, tmp_path).stdout
    assert re.search(
        r"^encoder feed forward, expert 1: [\d.]+ % of all choices; ", said, re.MULTILINE
    )
    layers = ("encoder_self_attention", "encoder_feed_forward", "decoder_self_attention")
    layers += ("decoder_cross_attention", "decoder_feed_forward")
    assert {path.name for path in tmp_path.iterdir()} == {
        "experts.csv",
        *(f"{layer}_experts.png" for layer in layers),
    }
    with open(tmp_path / "experts.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    shares: dict[tuple[str, ...], float] = defaultdict(float)
    for row in rows:
        shares[row["loop"], row["layer"], row["text"]] += float(row["share"])
    assert all(total == pytest.approx(1, abs=1e-5) for total in shares.values())


def test_unknown_words_are_drawn_and_named(trained: Path, data: Path, tmp_path: Path) -> None:
    fixed = ("--path", trained, "--data", data, "--out", tmp_path, "--format", "svg")
    finished = run("sut-report", *fixed, "--sentence", "turn lefft <pad>", "--target", "I_TURN_LFT")
    first, second, *_ = finished.stderr.splitlines()
    assert first.startswith(
        "sut-report: the model does not know `lefft` and reads it as <unk>; similar ones that it "
        "knows: left"
    )
    assert second.startswith("sut-report: the model does not know `<pad>`")
    assert finished.stdout.splitlines()[0] == "source: turn lefft <pad> </s>"
    for stack, unknown in (("encoder", ["lefft", "&lt;pad&gt;"]), ("decoder", ["I_TURN_LFT"])):
        drawn = (tmp_path / "turn_lefft_pad" / f"{stack}_halting.svg").read_text()
        assert all(f"<!-- ? {word} -->" in drawn for word in unknown)
        assert "<!-- ?: unknown to the model -->" in drawn


def test_what_the_font_lacks_is_told_once(trained: Path, data: Path, tmp_path: Path) -> None:
    fixed = ("--path", trained, "--data", data, "--out", tmp_path, "--format", "svg", "png")
    said = run("sut-report", *fixed, "--sentence", "turn \u6f22\u5b57", "--target", "I_TURN_LEFT")
    assert "Glyph" not in said.stderr and said.stderr.count("sut-report: the font") == 1
    assert "lacks \u6f22 \u5b57 and draws boxes" in said.stderr


def test_pictures_of_a_data_router(router: Path, classes: Path, tmp_path: Path) -> None:
    overrides = ("--model-overrides", "{'encoder_layers': 6}")
    said, files = pictures(
        router, classes, tmp_path, "--sentence", "b c a", *overrides, folder="b_c_a"
    )
    assert said.splitlines()[0] == "source: <s> b c a </s>"
    assert said.splitlines()[1] in ("answer: odd", "answer: even")
    names = ("encoder_gates", "encoder_halting", "encoder_self_attention_maximum")
    assert files == [f"{name}.{ending}" for name in names for ending in ("pdf", "png")]


def test_average_steps(router: Path, classes: Path, tmp_path: Path) -> None:
    for by, groups in (
        ("length", ["3", "4", "5"]),
        ("kind", ["last", "other"]),
    ):
        out = tmp_path / by
        said, files = pictures(router, classes, out, "--steps-by", by, "--max-tokens", 20)
        assert files == [f"steps_by_{by}.{ending}" for ending in ("csv", "pdf", "png")]
        with open(out / f"steps_by_{by}.csv", newline="") as file:
            rows: list[dict[str, Any]] = list(csv.DictReader(file))
        assert [row["group"] for row in rows] == groups
        assert sum(int(row["sentences"]) for row in rows) == 12
        assert all(1 <= float(row["encoder_steps"]) <= 4 for row in rows)
        assert {row["encoder_greatest"] for row in rows} == {"4"}
        assert len(said.splitlines()) == len(groups)


def test_average_steps_of_several_splits(trained: Path, data: Path, tmp_path: Path) -> None:
    """Together they are the mean over the tokens of both."""
    overrides = ("--model-overrides", "{'alpha_threshold': 0.4}")
    found: list[dict[str, dict[str, str]]] = []
    for subset in ("valid", "test", "valid,test"):
        asked = words(f"--steps-by source_length --format png --gen-subset {subset}")
        pictures(trained, data, tmp_path, *asked, *overrides)
        with open(tmp_path / "steps_by_source_length.csv", newline="") as file:
            found.append({row["group"]: row for row in csv.DictReader(file)})
    valid, test, both = found
    assert list(both) == sorted({*valid, *test}, key=int)
    for group, row in both.items():
        own = [rows[group] for rows in (valid, test) if group in rows]
        counts = [int(one["sentences"]) for one in own]
        assert int(row["sentences"]) == sum(counts)
        # Sources of a group have the same length, so their tokens weigh like their number.
        steps = sum(n * float(one["encoder_steps"]) for n, one in zip(counts, own)) / sum(counts)
        assert float(row["encoder_steps"]) == pytest.approx(steps)


def test_average_steps_are_those_of_evaluation(trained: Path, data: Path, tmp_path: Path) -> None:
    """With stick-breaking a token is read out where it stops."""
    overrides = ("--model-overrides", "{'alpha_threshold': 0.4}", "--gen-subset", "train")
    pictures(trained, data, tmp_path, *words("--steps-by target_length --format png"), *overrides)
    with open(tmp_path / "steps_by_target_length.csv", newline="") as file:
        found = {row["group"]: row for row in csv.DictReader(file)}
    table = tmp_path / "evaluated.csv"
    run(
        "sut-evaluate", "--path", trained, "--data", data, *overrides, "--csv", table,
        *words("--by target_length --device cpu"),
    )  # fmt: skip
    with open(table, newline="") as file:
        expected = {row["group"]: row for row in csv.DictReader(file)}
    expected.pop("all")
    assert found.keys() == expected.keys()
    assert sum(int(row["sentences"]) for row in found.values()) == SIZES["train"]
    for group, row in found.items():
        for stack in ("encoder", "decoder"):
            steps = float(row[f"{stack}_steps"])
            assert steps == pytest.approx(float(expected[group][f"{stack}_depth"]))
            assert steps < int(row[f"{stack}_greatest"])


@pytest.fixture(scope="module")
def steady(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that does not halt."""
    folder = tmp_path_factory.mktemp("steady")
    train(data, folder, *TINY, *words("--encoder-halting none --decoder-halting none"))
    return folder / "checkpoint_last.pt"


BAD_INPUT = {
    "--sentence ''": "`sentence` must be at least one word",
    "--sentence 'turn left' --target ' '": "`--target` must be at least one word",
    "--sentence a --sentence b --target x": "--target is for one sentence",
    "--html --target x": "--target is for one sentence",
    "--sentence a --number 1": "--sentence and --number both name sentences",
    "--log nowhere.log": "only a page has them: give --html or --serve: leave --log out",
    "--thresholds 0.5": "only a page has them: give --html or --serve: leave --thresholds out",
    "--html --head 1": "a page shows all heads: leave --head out",
    "--html --format svg": "a page writes no pictures: leave --format out",
    "--serve --max-tokens 9 --format png pdf": "a page writes no pictures: leave --format out",
    "--html --thresholds 0 0.5": "`--thresholds` must be greater than 0, at most 1",
    "--html --thresholds 0.5": "--thresholds needs a model that halts by a threshold",
    "--html --log nowhere.log": "There is no log `nowhere.log`",
    "--html no/folder.html": "there is no folder",
    "--html /": "--html / is a folder: give the name of a file",
    "--html --gen-subset nothing": "has no split `nothing`",
    "--serve 80 --target x": "a served page is not written: leave --out and --target out",
    "--head 3": "`--head` must be between 1 and 2, the heads of the encoder, but is 3",
    "--number 12": "`--number` must be between 1 and the 11 sentences of `test`, but is 12",
    "--gen-subset nothing": "has no split `nothing`: check --gen-subset",
    "--steps-by length": "all tokens of this model take all its steps",
    "--steps-by nothing --html": "all tokens of this model take all its steps",
    "--steps-by length --head 1": "--steps-by draws no sentence: leave --head out",
    "--steps-by length --experts": "--steps-by and --experts draw different things",
    "--experts --number 2": "--experts draws no sentence: leave --number out",
    "--sentence a --gen-subset valid": "--sentence is of no split: leave --gen-subset out",
    "--experts --beam 1": "--experts draws no sentence: leave --beam out",
    "--steps-by length --beam 2 --max-len 9": "draws no sentence: leave --beam and --max-len out",
    "--sentence a --target x --max-len 9": "with --target nothing is generated: leave --max-len",
    "--max-tokens 9 --max-sentences 2": "a split: leave --max-sentences and --max-tokens out",
    "--model-overrides '{\"layers\": 3}'": "the model has no option `layers`",
    "--path nowhere.pt": "There is no checkpoint `nowhere.pt`",
    "--data nowhere": "There is no dict.src.txt with dict.tgt.txt in ",
}


@pytest.mark.parametrize("line", BAD_INPUT)
def test_bad_input_is_told_in_one_sentence(
    line: str, steady: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    fixed = ["--path", str(steady), "--data", str(data), "--out", str(out)]
    assert report.main([*fixed, *shlex.split(line)]) == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert message.startswith("sut-report: error: ") and BAD_INPUT[line] in message
    assert not out.exists()


def test_more_bad_input(
    trained: Path, router: Path, classes: Path, data: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "file").write_text("")
    long = " ".join(["turn"] * 1100)
    for checkpoint, folder, out, arguments, expected in (
        (trained, data, "file", [], "is a file; choose another place"),
        (trained, data, "out", ["--sentence", long], "at most 1024 tokens long, but is 1101"),
        (trained, data, "out", ["--sentence", "turn left", "--target", long], "is 1101"),
        (trained, data, "out", ["--steps-by", "colour"], "has no column `colour`"),
        (
            *(trained, data, "page", ["--sentence", "turn left", "--html", "--gen-subset", "tset"]),
            "has no split `tset`: check --gen-subset",
        ),
        (router, classes, "out", ["--target", "odd"], "--target is for translation models"),
    ):
        fixed = ["--path", str(checkpoint), "--data", str(folder), "--out", str(tmp_path / out)]
        assert report.main([*fixed, *arguments]) == 2
        assert expected in capsys.readouterr().err
        assert not (tmp_path / "out").exists()
