"""`sut-translate` against fairseq-generate on the same sentences, and what it cannot translate."""

from __future__ import annotations

import io
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from subword_nmt.learn_bpe import learn_bpe

import sut_fairseq
from sut_data.text.tokenization import TextSide, save_tokenization
from sut_fairseq.cli._generated import read_generated
from sut_fairseq.cli.translate import main as translate_main
from sut_fairseq.cli.translate import read_lines
from sut_fairseq.experiments import provenance, records
from sut_fairseq.inference.model import Model
from sut_fairseq.inference.results import Translation
from sut_fairseq.inference.text import LONGEST
from sut_fairseq.models import UniversalTransformerModel
from tests.integration.commands import (
    SMALL,
    Finished,
    document_of,
    generate,
    on_cpu,
    run,
    train,
    words,
)

LANGUAGES = {"src": "en", "tgt": "de"}
SIZES = {"train": 60, "valid": 6, "test": 11}
TRANSFORMER = words(
    "--arch transformer --encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 32 "
    "--encoder-ffn-embed-dim 32 --encoder-attention-heads 2 --decoder-attention-heads 2 "
    "--share-all-embeddings"
)
LEARNING = words("--share-all-embeddings --max-update 40 --lr 0.01 --max-source-positions 60")
SCRIPTS = sysconfig.get_path("scripts")
SEARCH = words("--beam 3 --lenpen 0.4 --max-len-b 12")

WORDS = {
    "The dog": "Der Hund",
    "A girl": "Ein M\u00e4dchen",
    "The well-known man": "Der wohl-bekannte Mann",
    "sees": "sieht",
    "doesn't see": "sieht nicht:",
    "the green car, doesn't it?": "das gr\u00fcne Auto, nicht wahr?",
    "\u201ca house\u201d & a tree!": "\u201eein Haus\u201c & einen Baum!",
}


def sentences(count: int, seed: int) -> list[tuple[str, str]]:
    """Pairs of raw sentences."""
    generator = random.Random(seed)
    subjects, verbs, objects = (list(WORDS)[part] for part in (slice(3), slice(3, 5), slice(5, 7)))
    pairs = []
    for _ in range(count):
        english = [generator.choice(part) for part in (subjects, verbs, objects)]
        pairs.append((" ".join(english), " ".join(WORDS[words] for words in english)))
    return pairs


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Raw text as data-prep makes a folder of it: Moses, joint BPE, one dictionary."""
    folder = tmp_path_factory.mktemp("prepared")
    text = folder / "text"
    text.mkdir()
    raw = {split: sentences(size, seed) for seed, (split, size) in enumerate(SIZES.items())}
    corpus = [
        TextSide(language).tokenize(pair[side])
        for side, language in enumerate(LANGUAGES.values())
        for pair in raw["train"]
    ]
    with open(folder / "subwords.bpe", "w", encoding="utf-8") as codes:
        learn_bpe(io.StringIO("\n".join(corpus)), codes, 30)
    sides = {
        name: TextSide(language, "bpe", folder / "subwords.bpe")
        for name, language in LANGUAGES.items()
    }
    save_tokenization(folder, sides)
    for split, pairs in raw.items():
        for number, (name, side) in enumerate(sides.items()):
            lines = [pair[number] for pair in pairs]
            write(text / f"{split}.raw.{name}", lines)
            write(text / f"{split}.{name}", [side.encode(line) for line in lines])
    splits = [word for split in SIZES for word in (f"--{split}pref", text / split)]
    languages = ("--source-lang", "src", "--target-lang", "tgt")
    run("fairseq-preprocess", *languages, *splits, "--destdir", folder, "--joined-dictionary")
    return folder


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def checkpoint(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small `sut_tiny` that has learnt a little, and whose tokens halt at different steps."""
    folder = tmp_path_factory.mktemp("sut")
    saving = words("--no-epoch-checkpoints --validate-interval 5 --save-interval 5")  # its last
    train(prepared, folder, "--arch", "sut_tiny", *SMALL, *LEARNING, *saving)
    state = torch.load(folder / "checkpoint_last.pt", weights_only=True)
    generator = torch.Generator().manual_seed(1)
    for name, tensor in state["model"].items():
        if name.endswith("halting.output.weight"):
            tensor.normal_(generator=generator)
    path = tmp_path_factory.mktemp("halting") / "checkpoint_best.pt"
    torch.save(state, path)
    return path


@pytest.fixture(scope="module")
def expected(prepared: Path, checkpoint: Path) -> list[str]:
    """What fairseq-generate makes of the test set, detokenised."""
    return generated(prepared, checkpoint)


def generated(prepared: Path, checkpoint: Path) -> list[str]:
    output = generate(prepared, checkpoint, *SEARCH).stdout
    path = checkpoint.parent / "generated.txt"
    path.write_text(output, encoding="utf-8")
    side = TextSide("de", "bpe", prepared / "subwords.bpe")
    return [side.decode(hypothesis) for _, hypothesis in read_generated(path, SIZES["test"])]


def translate(model: Path, *arguments: object, **options: object) -> Finished:
    return run("sut-translate", model, "--device", "cpu", *arguments, **options)  # type: ignore


def test_equals_fairseq_generate(prepared: Path, checkpoint: Path, expected: list[str]) -> None:
    """From a file in one block, and line by line, with the data folder of the training."""
    assert len(set(expected)) > 2, "the model says something"
    raw = prepared / "text" / "test.raw.src"
    finished = translate(checkpoint, "--input", raw, *SEARCH)
    assert finished.stdout.splitlines() == expected
    assert finished.stderr == ""
    small = translate(checkpoint, *SEARCH, "--buffer", 4, "--batch-size", 3, stdin=raw.read_text())
    assert small.stdout.splitlines() == expected
    assert translate(checkpoint.parent, *SEARCH, stdin=raw.read_text()).stdout == finished.stdout


def test_fairseq_transformer(prepared: Path, tmp_path: Path) -> None:
    options = words("--criterion cross_entropy --no-epoch-checkpoints --save-interval 5")
    train(prepared, tmp_path, *TRANSFORMER, *LEARNING, *options)
    checkpoint = tmp_path / "checkpoint_last.pt"
    raw = prepared / "text" / "test.raw.src"
    output = translate(checkpoint, "--input", raw, *SEARCH, "--json").stdout
    records = [json.loads(line) for line in output.splitlines()]
    assert [record["translation"] for record in records] == generated(prepared, checkpoint)
    assert all(record["macs_teacher_forced"] > 0 for record in records)
    for key in ("alpha_threshold", "encoder_depth", "decoder_depth"):
        assert {record[key] for record in records} == {None}, "nothing halts"
    finished = translate(checkpoint, "--alpha-threshold", 0.5, ok=False)
    assert_refused(finished, "nothing in this model halts by a threshold, so leave it out.")


def test_json_says_what_it_cost(
    prepared: Path, checkpoint: Path, expected: list[str], tmp_path: Path
) -> None:
    """MACs and depth are those of `sut-macs` on the pairs of sentence and translation."""
    raw = prepared / "text" / "test.raw.src"
    options = ("--input", raw, *SEARCH, "--json")
    records = [json.loads(line) for line in translate(checkpoint, *options).stdout.splitlines()]
    assert [record["source"] for record in records] == raw.read_text().splitlines()
    assert [record["translation"] for record in records] == expected
    assert {record["alpha_threshold"] for record in records} == {0.999}

    lines = (checkpoint.parent / "generated.txt").read_text().splitlines()
    found = dict(line[2:].split("\t", 1) for line in lines if line.startswith("H-"))
    hypotheses = [found[str(number)].split("\t") for number in range(SIZES["test"])]
    assert [r["score"] for r in records] == pytest.approx([float(s) for s, _ in hypotheses])
    shutil.copy(prepared / "text" / "test.src", tmp_path)
    write(tmp_path / "test.tgt", [hypothesis for _, hypothesis in hypotheses])
    dictionaries = ("--srcdict", prepared / "dict.src.txt", "--tgtdict", prepared / "dict.tgt.txt")
    languages = ("--source-lang", "src", "--target-lang", "tgt", "--testpref", tmp_path / "test")
    run("fairseq-preprocess", *languages, *dictionaries, "--destdir", tmp_path / "bin")
    macs = run("sut-macs", "--path", checkpoint, "--data", tmp_path / "bin", "--json")
    report = json.loads(macs.stdout)
    mean = sum(record["macs_teacher_forced"] for record in records) / len(records)
    assert mean == pytest.approx(report["macs_full"], abs=1)

    output = translate(checkpoint, *options, "--alpha-threshold", 0.2).stdout
    earlier = [json.loads(line) for line in output.splitlines()]
    assert {record["alpha_threshold"] for record in earlier} == {0.2}
    for key, most in (("encoder_depth", 2), ("decoder_depth", 3), ("macs_teacher_forced", 1e9)):
        assert all(0 < record[key] <= most for record in [*records, *earlier])
        assert sum(r[key] for r in earlier) < sum(r[key] for r in records)
    depths = report["halting"]["encoder"]["depth"]
    tokens = [len(line.split()) + 1 for line in (tmp_path / "test.src").read_text().splitlines()]
    steps = sum(count * record["encoder_depth"] for count, record in zip(tokens, records))
    assert steps / sum(tokens) == pytest.approx(depths)


def test_every_line_gets_a_line(checkpoint: Path, tmp_path: Path) -> None:
    lines = [b"\xef\xbb\xbfThe dog sees", b"", b"   ", b"The " * 70, b"caf\xe9", b"A girl\r", b"A"]
    text = tmp_path / "text"
    text.write_bytes(b"\n".join(lines))
    finished = translate(checkpoint, "--input", text, *SEARCH)
    output = finished.stdout.split("\n")
    assert len(output) == len(lines) + 1 and output[-1] == ""
    assert [bool(line) for line in output[:-1]] == [True, False, False, False, False, True, True]
    long, bytes_ = finished.stderr.splitlines()
    assert long.startswith("sut-translate: line 4: the sentence has ")
    assert long.endswith(" tokens with its end, but the model takes at most 60; split it.")
    assert bytes_.startswith("sut-translate: line 5: the line is not UTF-8;")
    plain = translate(checkpoint, *SEARCH, stdin="The dog sees\nA girl\nA\n").stdout
    assert plain.splitlines() == [output[0], output[5], output[6]]
    records = translate(checkpoint, "--input", text, *SEARCH, "--json").stdout.splitlines()
    assert len(records) == len(lines)
    assert [bool(json.loads(record).get("error")) for record in records] == [
        *(False, False, False, True, True, False, False)
    ]
    assert json.loads(records[1])["macs_teacher_forced"] is None
    assert translate(checkpoint, stdin="").stdout == ""


def test_answers_while_it_is_asked(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --buffer 1, each line is answered before the next one is there."""
    (asked, asking), (answered, answering) = os.pipe(), os.pipe()
    lines = ("The dog sees", "", "A girl")

    def ask() -> list[str]:
        with open(asking, "w") as questions, open(answered) as answers:
            found = []
            for line in lines:
                print(line, file=questions, flush=True)
                found.append(answers.readline())
            questions.close()
            return [*found, answers.read()]

    with ThreadPoolExecutor(1) as pool:
        asker = pool.submit(ask)
        with open(asked) as stdin, open(answering, "w") as stdout, monkeypatch.context() as changed:
            changed.setattr(sys, "stdin", stdin)
            changed.setattr(sys, "stdout", stdout)
            short = words("--device cpu --beam 1 --max-len-b 8 --buffer 1")
            assert translate_main([str(checkpoint), *short]) == 0
        *found, rest = asker.result()
    assert rest == ""
    for line, answer in zip(lines, found, strict=True):
        assert answer.endswith("\n") and bool(answer.strip()) == bool(line)


def test_a_reader_that_leaves(checkpoint: Path) -> None:
    """`sut-translate ... | head -1` ends without a word, however much is still to come."""
    options = words("--device cpu --beam 1 --max-len-b 8 --buffer 2")
    command = shlex.join([f"{SCRIPTS}/sut-translate", str(checkpoint), *options])
    line = f"yes The dog sees | {command} | head -1; echo ${{PIPESTATUS[1]}}"
    finished = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    translation, status = finished.stdout.splitlines()
    assert translation and (status, finished.stderr) == ("0", "")


def test_without_standard_streams(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What Python makes of streams that are closed from the start is None."""
    line = [str(checkpoint), *words("--device cpu --beam 1 --max-len-b 8")]
    monkeypatch.setattr(sys, "stdin", None)
    assert translate_main(line) == 2
    shown = capfd.readouterr()
    assert shown.err.endswith("standard input is closed: name a file with --input.\n")
    assert shown.out == "" and "Traceback" not in shown.err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"The dog\n")))
    monkeypatch.setattr(sys, "stdout", None)
    assert translate_main(line) == 0
    shown = capfd.readouterr()
    assert shown.out == "" and "Traceback" not in shown.err


@pytest.mark.slow
@pytest.mark.parametrize("stream", ["0<&-", "1>&-"])
def test_a_stream_that_is_closed_from_the_start(checkpoint: Path, stream: str) -> None:
    command = shlex.join([f"{SCRIPTS}/sut-translate", str(checkpoint), "--device", "cpu"])
    line = f"echo The dog | {command} {stream}"
    finished = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert finished.stdout == ""
    if stream == "0<&-":
        assert finished.returncode == 2
        assert finished.stderr.endswith("standard input is closed: name a file with --input.\n")
    assert "Traceback" not in finished.stderr


@pytest.mark.slow
def test_20_000_lines_through_a_pipe_keep_the_memory(checkpoint: Path) -> None:
    """From the first thousands on, in which libraries fill their caches.

    Words come again, as in any text: of 50,000 other ones subword-nmt would remember each. oneDNN
    remembers what it did for the last 1,024 shapes of its inputs; here it may not.
    """
    generator, sizes = random.Random(2), {}
    options = ("--beam", 1, "--max-len-b", 3, "--buffer", 50, "--json")
    with installed(checkpoint, *options, ONEDNN_PRIMITIVE_CACHE_CAPACITY="0") as process:
        assert process.stdin is not None and process.stdout is not None
        for number in range(1, 20_001):
            words = generator.choices(list(WORDS), k=generator.randint(0, 9))
            odd = chr(
                generator.choice([0x20, 0x2028, 0x301, 0x5D0, 0x1F600, generator.randint(1, 9)])
            )
            line = " ".join(words) + odd, str(number % 1000)
            print(*line, file=process.stdin, flush=number % 50 == 0)
            if number % 50 == 0:
                records = [json.loads(process.stdout.readline()) for _ in range(50)]
                assert [one["source"].split()[-1] for one in records] == [
                    str(one % 1000) for one in range(number - 49, number + 1)
                ]
            if number % 5000 == 0:
                status = Path(f"/proc/{process.pid}/status").read_text()
                sizes[number] = int(status.partition("VmRSS:")[2].split()[0]) / 1024
        process.stdin.close()
    assert process.returncode == 0
    print({number: f"{size:.1f} MiB" for number, size in sizes.items()})
    assert sizes[20_000] < sizes[5000] + 5, sizes


def installed(*arguments: object, **variables: str) -> subprocess.Popen[str]:
    """The installed command, to talk to, with further environment variables."""
    pipe = subprocess.PIPE
    line = [f"{SCRIPTS}/sut-translate", *map(str, arguments), "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    # Nobody reads its notes here, and a full pipe of them would stop it.
    return subprocess.Popen(
        line,
        stdin=pipe,
        stdout=pipe,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        env=environment,
    )


def test_unknown_words_are_counted(trained: Path) -> None:
    """In a note after the last line, and for each line in the JSON."""
    text = "jump twice\nleap twice and LEAP\n\nleap <unk>\n"
    finished = translate(trained, "--max-len-b", 5, "--json", stdin=text)
    records = [json.loads(line) for line in finished.stdout.splitlines()]
    assert [record["unknown_words"] for record in records] == [0, 2, 0, 2]
    assert finished.last_line == (
        "sut-translate: 4 of 8 source tokens, in 2 of 4 lines, are unknown to the model; the first "
        "are `leap`, `LEAP`, `<unk>`."
    )
    assert "unknown" not in translate(trained, "--max-len-b", 5, stdin="jump\n").stderr


def test_standard_input_is_read_in_blocks(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 1,000 lines unless somebody types them, or --buffer says otherwise."""
    sizes: list[int] = []

    def translate_block(self: Model, lines: list[str], **options: Any) -> list[Translation]:
        sizes.append(len(lines))
        return [Translation(line) for line in lines]

    monkeypatch.setattr(Model, "translate", translate_block)
    for options, typed, expected in (
        ([], False, [1000, 200]),
        ([], True, [1] * 1200),
        (["--buffer", "500"], False, [500, 500, 200]),
        (["--buffer", "500"], True, [500, 500, 200]),
    ):
        stdin = io.TextIOWrapper(io.BytesIO(b"The dog\n" * 1200))
        monkeypatch.setattr(stdin, "isatty", lambda typed=typed: typed, raising=False)
        monkeypatch.setattr(sys, "stdin", stdin)
        sizes.clear()
        assert translate_main([str(checkpoint), "--device", "cpu", *options]) == 0
        assert sizes == expected
        assert len(capsys.readouterr().out.splitlines()) == 1200


@pytest.mark.parametrize("chunk", [b"x", "\u00e9".encode(), "\U0001f600".encode(), b"\xff"])
def test_of_a_line_without_end_little_is_kept(chunk: bytes) -> None:
    """And the next line is the next one."""
    stream = io.BytesIO(b"a\n" + chunk * (5 * LONGEST) + b"\nb\r\nc")
    first, long, *rest = read_lines(stream)
    assert (first, rest) == ("a", ["b", "c"])
    assert LONGEST < len(long) <= 4 * LONGEST + 3


def test_python_translates_alike(prepared: Path, checkpoint: Path, expected: list[str]) -> None:
    """Our own object, and fairseq's, which is told how the data were tokenised."""
    raw = (prepared / "text" / "test.raw.src").read_text(encoding="utf-8").splitlines()
    options: dict[str, Any] = {"beam": 3, "lenpen": 0.4, "max_len_b": 12}
    model = sut_fairseq.load(checkpoint, device="cpu")
    assert [one.text for one in model.translate(raw, **options)] == expected
    place = (str(checkpoint.parent), checkpoint.name, str(prepared))
    hub = UniversalTransformerModel.from_pretrained(*place)
    assert hub.translate(raw, **options) == expected
    plain = UniversalTransformerModel.from_pretrained(*place, tokenizer="space")
    assert plain.translate(raw, **options) != expected, "what is asked for is done"


def test_export(prepared: Path, checkpoint: Path, expected: list[str], tmp_path: Path) -> None:
    """An exported folder works alone, wherever it is."""
    state = torch.load(checkpoint, weights_only=True)
    state["cfg"]["task"]["data"] = str(tmp_path / "gone")
    torch.save(state, tmp_path / "moved.pt")
    moved = tmp_path / "moved.pt"
    assert_refused(
        translate(moved, ok=False), "name the data folder that the model was trained on (`data`)"
    )
    options = ("--data", prepared, "--export", tmp_path / "first")
    assert f"wrote {tmp_path / 'first'}" in run("sut-translate", moved, *options).stdout
    folder = (tmp_path / "first").rename(tmp_path / "second")
    names = {path.name for path in folder.iterdir()}
    languages = {"dict.src.txt", "dict.tgt.txt"}
    assert names == {"checkpoint.pt", "README.md", "tokenization.json", "subwords.bpe", *languages}
    exported = torch.load(folder / "checkpoint.pt", weights_only=True)
    assert "last_optimizer_state" not in exported
    assert exported["cfg"]["task"]["source_lang"] == "src"
    finished = translate(folder, "--input", prepared / "text" / "test.raw.src", *SEARCH)
    assert finished.stdout.splitlines() == expected
    assert translate(folder, "--data", prepared, *SEARCH, stdin="A girl\n").stderr == ""
    assert_refused(run("sut-translate", moved, *options[:2], "--export", folder, ok=False), "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["moved.pt", "second"]
    (folder / "subwords.bpe").unlink()
    assert_refused(translate(folder, ok=False), "names subwords.bpe, which is not there")


def test_other_words_of_the_same_size(prepared: Path, checkpoint: Path, tmp_path: Path) -> None:
    """Whatever loads the checkpoint sees them; one that says nothing of words is as before."""
    other = shutil.copytree(prepared, tmp_path / "other")
    lines = (prepared / "dict.src.txt").read_text(encoding="utf-8").splitlines()
    for side in LANGUAGES:
        write(other / f"dict.{side}.txt", [lines[1], lines[0], *lines[2:]])
    sentence = "words of the data are others than those that the model was trained with (2 of"
    for command in (
        ("sut-translate", checkpoint),
        ("sut-evaluate", "--path", checkpoint),
        ("sut-macs", "--path", checkpoint),
        ("sut-report", "--path", checkpoint, "--out", tmp_path / "report"),
    ):
        finished = run(*command, "--data", other, ok=False)
        assert_refused_by(command[0], finished, sentence)
    trainings = ("--share-all-embeddings", "--arch", "sut_tiny", *SMALL, "--save-dir", tmp_path)
    for finished in (
        generate(other, checkpoint, *SEARCH, ok=False),
        on_cpu("fairseq-interactive", other, "--path", checkpoint, ok=False, stdin="A"),
        train(other, tmp_path, *trainings, "--restore-file", checkpoint, ok=False),
        train(other, tmp_path, *trainings, "--finetune-from-model", checkpoint, ok=False),
    ):
        assert finished.status == 1 and "Traceback" not in finished.stderr
        assert (
            finished.last_line.startswith("error: the source ") and sentence in finished.last_line
        )

    state = torch.load(checkpoint, weights_only=True)
    for name in [name for name in state["model"] if "words" in name]:
        del state["model"][name]
    torch.save(state, tmp_path / "old.pt")
    old = translate(tmp_path / "old.pt", "--data", other, *SEARCH, stdin="A girl\n")
    assert old.stderr == "" and len(old.stdout.splitlines()) == 1


def test_words_as_they_stand(trained: Path, data: Path) -> None:
    """Formal languages have no tokenisation."""
    finished = translate(trained, "--max-len-b", 5, stdin="jump twice\nrun\n")
    assert finished.stderr.startswith(f"sut-translate: {data} has no tokenization.json: the words")
    assert len(finished.stdout.splitlines()) == 2


def test_refused(checkpoint: Path, tmp_path: Path) -> None:
    for model, arguments, sentence in (
        ("absent.pt", "", "There is no checkpoint `absent.pt`; check its path."),
        (".", "", "`.` has no checkpoint (*.pt, model.safetensors)"),
        (checkpoint, "--beam 0", "argument --beam: must be a whole number of at least 1"),
        (checkpoint, "--alpha-threshold 2", "`alpha_threshold` must be greater than 0"),
        (checkpoint, "--max-len-a -1", "`max_len_a` must be a number from 0 to 1,000,000, but is"),
        (checkpoint, "--export x --alpha-threshold 0.3 --json", "leave --alpha-threshold and --js"),
        (checkpoint, "--input absent.txt", "`absent.txt`: No such file or directory."),
        (checkpoint, "--device abacus", "The device abacus cannot be used here"),
        (checkpoint, "--user-dir absent", "--user-dir absent: there is no such folder; check its"),
    ):
        options = dict(cwd=tmp_path, ok=False)
        assert_refused(run("sut-translate", model, *words(arguments), **options), sentence)
    for name in ("checkpoint1.pt", "checkpoint2.pt"):
        shutil.copy(checkpoint, tmp_path / name)
    assert_refused(translate(tmp_path, ok=False), "has 2 checkpoints, and none is called")


def assert_refused(finished: Finished, sentence: str) -> None:
    assert_refused_by("sut-translate", finished, sentence)


def assert_refused_by(command: str, finished: Finished, sentence: str) -> None:
    assert finished.status == 2
    assert finished.stdout == ""
    assert finished.last_line.startswith(f"{command}: error: ")
    assert sentence in finished.last_line
    assert "Traceback" not in finished.stderr


@pytest.mark.slow
def test_a_report_reads_raw_text_as_translation_does(
    prepared: Path, checkpoint: Path, expected: list[str], tmp_path: Path
) -> None:
    """The tokenisation is found; answers at a threshold are those of fairseq-generate at it."""
    text = "The dog doesn't see the gr\u00fcne Zebra!"
    fixed = ("--path", checkpoint, "--out", tmp_path)
    finished = run("sut-report", *fixed, "--sentence", text, "--format", "svg")
    symbols = TextSide("en", "bpe", prepared / "subwords.bpe").encode(text).split()
    known = {line.split()[0] for line in (prepared / "dict.src.txt").read_text().splitlines()}
    unknown = [symbol for symbol in symbols if symbol not in known]
    assert len(symbols) > 8 and len(unknown) >= 1
    assert finished.stdout.splitlines()[0] == f"source: {' '.join(symbols)} </s>"
    told = [line for line in finished.stderr.splitlines() if "does not know" in line]
    assert [line.split("`")[1] for line in told] == list(dict.fromkeys(unknown))

    numbers = range(1, SIZES["test"] + 1)
    asked = ("--number", *numbers, *words("--max-len 12 --html --thresholds 0.3 0.6"))
    run("sut-report", *fixed, *asked)
    document = document_of(tmp_path / "report.html")
    assert document["thresholds"] == [0.3, 0.6, 0.999] and document["chosen"] == 2
    raw = (prepared / "text" / "test.raw.src").read_text().splitlines()
    references = (prepared / "text" / "test.raw.tgt").read_text().splitlines()
    assert [one["name"] for one in document["sentences"]] == [f"test {n}" for n in numbers]
    assert [one["text"].replace(" ", "") for one in document["sentences"]] == [
        line.replace(" ", "").replace("\u201c", '"').replace("\u201d", '"') for line in raw
    ]
    assert len(references) == len(document["sentences"])
    side = TextSide("de", "bpe", prepared / "subwords.bpe")
    skipped = []
    for number, threshold in enumerate(document["thresholds"]):
        overrides = ("--model-overrides", f"{{'alpha_threshold': {threshold}}}")
        path = tmp_path / "generated.txt"
        path.write_text(
            generate(prepared, checkpoint, *words("--beam 1 --max-len-b 12"), *overrides).stdout
        )
        generated = [side.decode(text) for _, text in read_generated(path, SIZES["test"])]
        answers = [one["answers"][number] for one in document["sentences"]]
        assert [one["text"] for one in answers] == generated
        skipped.append(sum(one["skipped"] for one in answers))
    assert skipped[0] > skipped[1] > skipped[2]


def test_evaluation(prepared: Path, checkpoint: Path, tmp_path: Path) -> None:
    """`sut-experiment` averages, translates, scores and counts, and says what it did."""
    save_dir = tmp_path / "run" / "checkpoints"
    save_dir.mkdir(parents=True)
    shutil.copy(checkpoint, save_dir)
    folders = ("--data", prepared, "--checkpoints", save_dir, "--out", "out")
    line = ("evaluate", *folders, *words("--beam 2 --cpu"))
    shown = run("sut-experiment", *line, cwd=tmp_path).stdout
    assert "note: there are fewer than the 5 asked for" in shown
    assert "note: chosen by loss" in shown
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["scores"]["sentences"] == results["cost"]["sentences"] == SIZES["test"]
    assert (results["beam"], results["lenpen"], results["alpha_threshold"]) == (2, 0.4, None)
    table = shown.partition("s] done\n")[2]
    for name, value in (
        ("tokenised BLEU", f"{results['scores']['tokenized_bleu']:.2f}"),
        ("compound-split BLEU", f"{results['scores']['tokenized_bleu_compound_split']:.2f}"),
        ("sacreBLEU", f"{results['scores']['sacrebleu']:.2f}"),
        ("encoder steps per token", f"{results['cost']['halting']['encoder']['depth']:.2f}"),
    ):
        (line_,) = [one for one in table.splitlines() if one.startswith(name)]
        assert line_.removeprefix(name).split()[0] == value

    # An evaluation that fails leaves the earlier one as it is.
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    failed = run("sut-experiment", *line, "--log", "typo.log", cwd=tmp_path, ok=False)
    assert "typo.log" in failed.last_line
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert set(before) == {
        *("average.pt", "average.json", "macs.json", "generated.txt", "generate.log"),
        *("bleu.json", "results.json"),
    }
    assert json.loads(before["average.json"])["output"] == "out/average.pt"

    # Results on other data are not replaced; those of a run have folders of their own.
    other = tmp_path / "other"
    shutil.copytree(prepared, other)
    (other / "dict.src.txt").write_text((prepared / "dict.src.txt").read_text() + "one 1\n")
    line = ("evaluate", "--data", other, *folders[2:], "--cpu")
    refused = run("sut-experiment", *line, cwd=tmp_path, ok=False)
    assert f"out has the results on {prepared}: name another folder for those on" in refused.stderr

    # A run of an experiment knows its data, and its scores can be compared.
    data = provenance.describe_data(prepared)
    chosen = dict(experiment="multi30k", model="sut", size="small", seed=1)
    records.write_record(tmp_path / "run", records.Record(**chosen, data=data, trainings={"": {}}))
    run("sut-experiment", *words("evaluate run --cpu"), cwd=tmp_path)
    best = save_dir / "evaluation-test-best-5-beam-8-lenpen-0.4"
    scores = json.loads((best / "results.json").read_text())["scores"]
    rows = run("sut-experiment", "compare", "run", cwd=tmp_path).stdout.splitlines()[1:]
    assert [row.split("  ")[-1].strip() for row in rows] == [
        f"{scores[key]:.2f}"
        for key in ("tokenized_bleu", "tokenized_bleu_compound_split", "sacrebleu", "chrf")
    ]


def test_evaluation_refuses(prepared: Path, tmp_path: Path) -> None:
    data, checkpoints = ("--data", prepared), ("--checkpoints", tmp_path)
    for options, sentence in (
        (checkpoints, "--checkpoints needs --data: the folder that `sut-prepare` made."),
        (data, "no run is given: name folders that `sut-experiment train` made, or --data and"),
        ((*data, *checkpoints, "--best", "many"), "must be a whole number of at least 1, but is"),
        ((*data, *checkpoints, "--lenpen", "x"), "invalid float value: 'x'"),
        ((*data, *checkpoints, "--lenpen", "nan"), "`lenpen` must be a number from -10 to 10, but"),
        ((*data, *checkpoints, "--subset", "none"), "has no set `none`: name one of test, train, "),
        ((*data, "--checkpoints", "no"), "--checkpoints no is not a folder: name the --save-dir"),
        ((*data, *checkpoints, "--alpha-threshold", 2), "must be greater than 0, at most 1, but i"),
    ):
        refused = run("sut-experiment", "evaluate", *options, cwd=tmp_path, ok=False)
        assert refused.status == 2 and refused.stdout == ""
        assert refused.last_line.startswith("sut-experiment") and sentence in refused.last_line
