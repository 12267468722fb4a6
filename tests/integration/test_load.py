"""`sut_fairseq.load`: what it answers is what the commands answer, in any number of threads."""

from __future__ import annotations

import ast
import copy
import json
import pickle
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sut_fairseq
from sut_data.text.tokenization import TextSide, save_tokenization
from sut_fairseq.analysis import complexity
from sut_fairseq.cli import evaluate
from sut_fairseq.errors import InputError
from sut_fairseq.inference import costs
from sut_fairseq.inference.sharing import sharing_weights
from sut_fairseq.models import UniversalTransformerModel
from tests.integration.commands import TINY, run, train

LINES = ["run and jump", "", "look twice and walk", "jump", "run <unk> leap"]
DOCS = Path(__file__).resolve().parents[2] / "docs"
OPTIONS = {"beam": 2, "max_len_b": 8}


@pytest.fixture(scope="module")
def checkpoint(data: Path, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small `sut_tiny` whose tokens halt at different steps."""
    state = torch.load(trained, weights_only=True)
    generator = torch.Generator().manual_seed(1)
    for name, tensor in state["model"].items():
        if name.endswith("halting.output.weight"):
            tensor.normal_(generator=generator)
    path = tmp_path_factory.mktemp("load") / "checkpoint_best.pt"
    torch.save(state, path)
    return path


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> sut_fairseq.Model:
    return sut_fairseq.load(checkpoint.parent, device="cpu")


def test_translates_like_the_command(checkpoint: Path, model: sut_fairseq.Model) -> None:
    translations = model.translate(LINES, alpha_threshold=0.5, **OPTIONS)
    options = ("--alpha-threshold", 0.5, "--beam", 2, "--max-len-b", 8, "--device", "cpu")
    text = "".join(f"{line}\n" for line in LINES)
    printed = run("sut-translate", checkpoint.parent, *options, "--json", stdin=text).stdout
    for translation, line in zip(translations, printed.splitlines(), strict=True):
        record = json.loads(line)
        assert record["source"] == translation.source
        assert record["translation"] == translation.text == str(translation)
        assert record["score"] == pytest.approx(translation.score)
        assert record["macs_teacher_forced"] == translation.macs
        assert record["alpha_threshold"] == translation.alpha_threshold == 0.5
        for side in ("encoder", "decoder"):
            assert record[f"{side}_depth"] == translation.depth.get(side)
    first, blank = translations[:2]
    assert first.macs is not None and set(first.depth) == {"encoder", "decoder"}
    assert (blank.text, blank.score, blank.macs) == ("", None, None)
    assert translations[-1].unknown_words == ("<unk>", "leap")


def test_threads_do_not_see_each_other(model: sut_fairseq.Model) -> None:
    """Each call has its own threshold, and counts only what it ran itself."""
    before = model.alpha_threshold
    weights = {name: one.clone() for name, one in model.model.state_dict().items()}
    thresholds = [0.2, 0.8, None] * 2

    def ask(threshold: float | None) -> list[sut_fairseq.Translation]:
        return model.translate(LINES[:3], alpha_threshold=threshold, **OPTIONS)

    def look(threshold: float | None) -> dict[str, list[int]]:
        found = model.trace(LINES[0], alpha_threshold=threshold, beam=1, max_len=8)
        return {name: depth.tolist() for name, depth in found.depth.items()}

    alone = {threshold: (ask(threshold), look(threshold)) for threshold in thresholds[:3]}
    assert len({str(depths) for _, depths in alone.values()}) > 1, "thresholds make a difference"
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(ask, thresholds))
        depths = list(pool.map(look, thresholds))
    for threshold, answer, depth in zip(thresholds, answers, depths, strict=True):
        assert (answer, depth) == alone[threshold]
    assert model.alpha_threshold == before
    assert not any(module.training for module in model.model.modules())
    for name, one in model.model.state_dict().items():
        assert torch.equal(one, weights[name])


def test_a_copy_for_a_thread_takes_no_memory(model: sut_fairseq.Model) -> None:
    copied = sharing_weights(model.model)
    shared = [*model.model.parameters(), *model.model.buffers()]
    for one, other in zip(shared, [*copied.parameters(), *copied.buffers()], strict=True):
        assert one is other
    assert copied.encoder.dictionary is model.model.encoder.dictionary
    assert copied.encoder.stack is not model.model.encoder.stack


def test_one_thread_at_a_time_tokenises(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What tokenises loads its libraries, and remembers words, as it goes."""
    shared = sut_fairseq.load(checkpoint, device="cpu")
    inside: set[int] = set()  # the sides that work

    def alone(method: Any) -> Any:
        def call(side: TextSide, text: str) -> str:
            assert id(side) not in inside
            inside.add(id(side))
            time.sleep(0.001)
            result: str = method(side, text)
            inside.remove(id(side))
            return result

        return call

    for name in ("tokenize", "segment", "detokenize"):
        monkeypatch.setattr(TextSide, name, alone(getattr(TextSide, name)))

    def ask(number: int) -> None:
        if number % 2:
            shared.trace("run", target="I_RUN", costs=False)
        else:
            shared.exact_match(["run", "jump"], ["I_RUN", "I_JUMP"], max_len_b=2)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ask, range(8)))


def test_trace(model: sut_fairseq.Model) -> None:
    trace = model.trace("run  and jump", alpha_threshold=0.5, max_len=8)
    assert trace.words["encoder"] == ("run", "and", "jump", "</s>")
    assert trace.text == model.translate(["run and jump"], alpha_threshold=0.5, max_len_b=8)[0].text
    for name, words in trace.words.items():
        halting, computed = trace.halting[name], trace.computed[name]
        assert halting.shape == computed.shape == (len(halting), len(words))
        assert 1 <= len(halting) <= trace.num_steps[name]
        assert (np.diff(halting, axis=0) >= 0).all(), "a probability of having halted only grows"
        assert (trace.depth[name] == computed.sum(axis=0)).all()
        weights = trace.attention[f"{name}.self_attention"]
        assert weights.shape[0::2][:2] == (len(halting), len(words))
        assert weights[0].sum(axis=-1) == pytest.approx(1, abs=1e-5)
        experts = trace.experts[f"{name}.feed_forward"]
        assert ((experts >= 0).all(axis=-1) == computed).all()
    pictures = trace.plot(head=1)
    assert {"encoder_halting", "decoder_cross_attention_head_1"} <= pictures.keys()
    assert pictures._repr_html_().count("<img ") == len(pictures)
    for head in (99, 0, 1.5):
        with pytest.raises(InputError, match="`head` must be a whole number between 1 and"):
            trace.plot(head=head)


def test_pictures_are_written(model: sut_fairseq.Model, tmp_path: Path) -> None:
    paths = model.trace("jump", max_len=4).plot().save(tmp_path / "new", "svg")
    assert all(path.read_bytes().startswith(b"<?xml") for path in paths)
    with pytest.raises(InputError, match="`ending` must be one of png, pdf, svg, but is gif"):
        model.trace("jump", max_len=4).plot().save(tmp_path / "other", ".gif")


@pytest.mark.parametrize("special", ["<pad>", "<s>", "</s>", "<unk>"])
def test_typed_special_symbols_are_unknown_words(model: sut_fairseq.Model, special: str) -> None:
    """Within a sentence and alone, as source and as reference, and traced alike."""
    lines = [f"run {special} jump", special]
    expected = model.translate(["run leap jump", "leap"], costs=False, **OPTIONS)
    found = model.translate(lines, costs=False, **OPTIONS)
    for line, one, other in zip(lines, found, expected, strict=True):
        assert one.unknown_words == (special,)
        assert one.source_tokens.tolist() == other.source_tokens.tolist()
        assert one.text == other.text
        assert model.trace(line, max_len=2, costs=False).unknown_words == (special,)
    assert model.exact_match(["run"], [f"I_RUN {special}"], max_len_b=2).right == (False,)
    assert -1 in model._text.reference(f"I_RUN {special}")


def test_tokenisation_of_the_other_direction(
    data: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that reads `tgt` and writes `src`: fairseq's interface, ours, and BLEU."""
    folder, symbols = shutil.copytree(data, tmp_path / "data"), TextSide(subwords="symbols")
    save_tokenization(folder, {"src": TextSide(), "tgt": symbols})
    train(folder, tmp_path, *TINY, "--source-lang", "tgt", "--target-lang", "src")
    place = (str(tmp_path), "checkpoint_last.pt", str(folder))
    hub = UniversalTransformerModel.from_pretrained(*place)
    assert hub.bpe.encode(hub.tokenizer.encode("a(b)")) == symbols.encode("a(b)") != "a(b)"
    assert hub.tokenizer.decode(hub.bpe.decode("a ( b )")) == "a ( b )"
    model = sut_fairseq.load(tmp_path, device="cpu")
    assert (model.source_side.subwords, model.target_side.subwords) == ("symbols", "words")
    compared: list[str] = []
    monkeypatch.setattr(
        evaluate, "tokenized_bleu", lambda found, references: compared.extend(references) or 0.0
    )
    asked = ("--path", tmp_path / "checkpoint_last.pt", "--data", folder, "--device", "cpu")
    searched = ("--modes", "search", "--bleu", "--gen-subset", "train")
    assert evaluate.main([*map(str, asked), *searched]) == 0
    assert sorted(compared) == sorted((text / "train.src").read_text().splitlines())


def test_exact_match(model: sut_fairseq.Model) -> None:
    options = {"beam": 1, "max_len_b": 8}
    answers = [answer.text for answer in model.translate(LINES[2:4], costs=False, **options)]
    found = model.exact_match(LINES[2:4], [answers[0], answers[1] + " I_JUMP"], max_len_b=8)
    assert found == sut_fairseq.ExactMatch(50.0, (True, False), tuple(answers))
    unknown = model.exact_match(LINES[2:3], ["unheard-of"], max_len_b=8)
    assert unknown.right == (False,)


@pytest.mark.parametrize(
    ("reference", "limit"),
    [("I_JUMP", 12), ("I_JUMP unheard-of", 13), ("I_JUMP " * 250, 261)],
)
def test_exact_match_searches_beyond_the_longest_reference(
    model: sut_fairseq.Model, monkeypatch: pytest.MonkeyPatch, reference: str, limit: int
) -> None:
    """By 10 tokens, like `sut-evaluate`."""
    answers = model.translate(LINES[2:4], beam=1, max_len_b=limit, costs=False)
    limits: list[int] = []
    translate = sut_fairseq.Model.translate

    def noting(*arguments: Any, **options: Any) -> Any:
        limits.append(options["max_len_b"])
        return translate(*arguments, **options)

    monkeypatch.setattr(sut_fairseq.Model, "translate", noting)
    found = model.exact_match(LINES[2:4], [reference, "I_RUN"])
    assert limits == [limit]
    assert found.answers == tuple(answer.text for answer in answers)


def test_exact_match_refuses_what_the_model_cannot_take(model: sut_fairseq.Model) -> None:
    bad = b"caf\xe9".decode(errors="surrogateescape")
    with pytest.raises(InputError, match=r"source 2 of 3 has no answer: the line is not UTF-8"):
        model.exact_match(["run", bad, "jump"], ["I_RUN"] * 3)
    with pytest.raises(InputError, match=r"source 1 of 1 has no answer: .* model takes at most"):
        model.exact_match(["run " * 2000], ["I_RUN"])
    words = model.max_source_tokens - 1  # and the end
    assert [model._text.read("run " * n).error is None for n in (words, words + 1)] == [True, False]
    assert model.exact_match([""], ["I_RUN"], max_len_b=2).right == (False,)


def test_limits_relative_to_the_source_depend_on_no_neighbour(model: sut_fairseq.Model) -> None:
    lines = [*LINES, "run twice", "walk and look", ""]
    for a, b in ((0.5, 1), (2, 1)):
        options = {"beam": 2, "max_len_a": a, "max_len_b": b, "costs": False}
        together = model.translate(lines, **options)
        assert [one.text for one in together] == [
            model.translate([line], **options)[0].text for line in lines
        ]
        for one in together:
            if one.source_tokens is not None:
                # fairseq's B does not count the end of the sentence.
                assert len(one.target_tokens) <= int(a * len(one.source_tokens) + b) + 1


def test_equal_lines_are_counted_once(
    model: sut_fairseq.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = model.translate(LINES, **OPTIONS)
    counted: list[int] = []

    def count_pair(*arguments: Any) -> Any:
        counted.append(1)
        return complexity.count_pair(*arguments)

    monkeypatch.setattr(costs, "count_pair", count_pair)
    found = model.translate([*LINES, *LINES], **OPTIONS)
    assert [one.macs for one in found] == [one.macs for one in [*before, *before]]
    assert [one.depth for one in found] == [one.depth for one in [*before, *before]]
    assert len(counted) == len(LINES) - 1, "one line has no words"


def test_classes(router: Path, classes: Path) -> None:
    """The same sources as in the split, asked as text."""
    model = sut_fairseq.load(router, device="cpu")
    assert sorted(model.labels) == ["even", "odd"]
    sources = (classes / "text" / "test.src").read_text().splitlines()
    references = (classes / "text" / "test.tgt").read_text().splitlines()
    found = model.classify(sources)
    for one in found:
        assert sum(one.probabilities.values()) == pytest.approx(1, abs=1e-5)
        assert one.label == max(one.probabilities, key=one.probabilities.__getitem__)
    answers = [one.label for one in found]
    assert answers == [one.text for one in model.translate(sources, costs=False)]
    printed = run("sut-evaluate", "--path", router, "--data", classes, "--json").stdout
    score = json.loads(printed)["rows"][-1]["percent"]
    assert model.exact_match(sources, references).percent == pytest.approx(score)
    trace = model.trace(sources[1])
    assert trace.text == answers[1]
    # What is counted is what was answered: the task puts a token before the words.
    assert model.translate(sources[1:2])[0].macs == trace.macs
    assert trace.words["encoder"][1:-1] == tuple(sources[1].split())
    assert trace.gates["encoder"].shape[:2] == trace.computed["encoder"].shape
    with pytest.raises(InputError, match="line 2: classification needs at least one word"):
        model.classify([sources[0], ""])


def test_equally_probable_classes(router: Path) -> None:
    """`classify` takes the one that `translate` takes, whatever their names."""
    model = sut_fairseq.load(router, device="cpu")
    for parameter in model.model.parameters():
        parameter.data.zero_()
    words, labels = model.task.target_dictionary.symbols, model.task.labels.tolist()
    for label, word in zip(labels, sorted(words[label] for label in labels)):
        words[label] = word
    (found,) = model.classify(["a b"])
    assert set(found.probabilities.values()) == {0.5}
    assert found.label == model.translate(["a b"], costs=False)[0].text == model.labels[0]


def test_numbers_of_other_libraries(trained: Path, model: sut_fairseq.Model) -> None:
    """What NumPy and torch compute is as good as Python's own numbers."""
    answers = model.translate(LINES, alpha_threshold=0.5, lenpen=1.0, **OPTIONS)
    half = np.float32(0.5)
    numbers = {"beam": np.int64(2), "max_len_b": np.int64(8), "lenpen": 1}
    same = model.translate(LINES, alpha_threshold=half, **numbers)
    assert same == answers and type(same[0].alpha_threshold) is float
    assert sut_fairseq.load(trained, alpha_threshold=half, device="cpu").alpha_threshold == 0.5
    assert model.translate(LINES[:1], alpha_threshold=1, **OPTIONS)[0].alpha_threshold == 1
    long, short = (model.translate(LINES, lenpen=n, **OPTIONS) for n in (10, -10))
    assert long != short


def test_what_is_refused(
    model: sut_fairseq.Model, router: Path, classes: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="a list of sentences"):
        model.translate("run and jump")
    with pytest.raises(InputError, match="`alpha_threshold` must be greater than 0, at most 1"):
        model.translate(LINES, alpha_threshold=1.5)
    for options in (
        {"beam": 2.5}, {"beam": 0}, {"max_len_b": 0}, {"max_tokens": "1"}, {"batch_size": -1},
        {"lenpen": "1"}, {"max_len_a": None}, {"max_len_a": -0.5}, {"alpha_threshold": "0.5"},
        {"lenpen": float("nan")}, {"max_len_a": float("inf")},
        {"lenpen": 400.0}, {"lenpen": -50}, {"max_len_a": 1e308},  # which overflow in the search
        {"beam": True}, {"alpha_threshold": True},
    ):  # fmt: skip
        with pytest.raises(InputError, match=f"`{next(iter(options))}` must be"):
            model.translate(LINES, **options)
    for lines in (None, [3], [b"run"]):
        with pytest.raises(InputError, match="`lines` must be a list of"):
            model.translate(lines)
        with pytest.raises(InputError, match="`sources` must be a list of"):
            model.exact_match(lines, LINES)
        with pytest.raises(InputError, match="`references` must be a list of"):
            model.exact_match(LINES, lines)
    with pytest.raises(InputError, match="`text` must be one sentence"):
        model.trace(LINES)
    with pytest.raises(InputError, match="`beam` must be"):
        model.trace("run", beam=0)
    with pytest.raises(InputError, match="`max_len` must be"):
        model.trace("run", max_len=0)
    with pytest.raises(InputError, match="`target` must be what a decoder reads, as one text"):
        model.trace("run", target=5)
    with pytest.raises(InputError, match="`path` must be the path of a checkpoint"):
        sut_fairseq.load(None)
    state = torch.load(router, weights_only=True)
    name = next(name for name, weights in state["model"].items() if weights.is_floating_point())
    state["model"][name].view(-1)[0] = torch.nan
    torch.save(state, tmp_path / "nan.pt")
    with pytest.raises(InputError, match=f"its weights `{name}` are not all finite"):
        sut_fairseq.load(tmp_path / "nan.pt", data=classes, device="cpu")
    (tmp_path / "nan.pt").unlink()
    for device in ("meta", 1.5):
        with pytest.raises(InputError, match=f"The device {device} cannot be used here"):
            sut_fairseq.load(router, device=device)
    for folder in (3, b"x"):
        with pytest.raises(InputError, match="`data` must be the path of a data folder, or left"):
            sut_fairseq.load(router, data=folder)
    with pytest.raises(InputError, match="ask it with `translate`"):
        model.classify(LINES)
    with pytest.raises(InputError, match="as many as sources"):
        model.exact_match(LINES, LINES[1:])
    with pytest.raises(InputError, match="has no meaning"):
        sut_fairseq.load(router, device="cpu").translate(["a"], alpha_threshold=0.5)
    with pytest.raises(InputError, match="has no checkpoint"):
        sut_fairseq.load(tmp_path)


def test_loading_again_imports_nothing(checkpoint: Path, model: sut_fairseq.Model) -> None:
    model.translate(LINES[:1], **OPTIONS)
    before = set(sys.modules)
    again = sut_fairseq.load(str(checkpoint), device="cpu")
    assert again.translate(LINES, **OPTIONS) == model.translate(LINES, **OPTIONS)
    assert set(sys.modules) == before


def test_the_import_is_light() -> None:
    program = (
        "import sys, sut_fairseq\n"
        "late = {'sut_fairseq.inference', 'ptflops', 'matplotlib', 'safetensors', 'sacremoses'}\n"
        "print(sorted(late & sys.modules.keys()))\n"
        "print(sut_fairseq.load.__module__, 'load' in dir(sut_fairseq))\n"
        "import logging\n"
        "print(logging.root.handlers, logging.root.level == logging.WARNING)\n"
        "from sut_fairseq.models import UniversalTransformerModel\n"
        "print(UniversalTransformerModel.__name__)\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert finished.stdout.splitlines() == [
        "[]",
        "sut_fairseq.inference.model True",
        "[] True",  # logging is the program's own, although modules of fairseq set it up
        "UniversalTransformerModel",
    ]


def test_the_notebook_runs(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cell by cell as Jupyter does it, in a folder where the quick start has been run."""
    folder = tmp_path / "runs" / "quickstart" / "seed-1" / "checkpoints"
    folder.mkdir(parents=True)
    (tmp_path / "docs" / "notebooks").mkdir(parents=True)
    shutil.copy(trained, folder / "checkpoint_last.pt")
    monkeypatch.chdir(tmp_path / "docs" / "notebooks")
    notebook = json.loads((DOCS / "notebooks" / "python.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    shown = []
    for cell in cells:
        tree = ast.parse(cell)
        last = tree.body[-1]
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            shown.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names))
    assert isinstance(names["model"], sut_fairseq.Model)
    assert any("<img " in one._repr_html_() for one in shown if hasattr(one, "_repr_html_"))
    assert isinstance(shown[-1], sut_fairseq.ExactMatch)


def test_a_model_in_training_mode_answers_the_same(router: Path) -> None:
    """As after a training loop in a notebook."""
    classifier = sut_fairseq.load(router.parent, device="cpu")
    lines = ["7 a b", "000 a"]
    before = classifier.classify(lines)
    dropouts = [module for module in classifier.model.modules() if hasattr(module, "p")]
    for dropout in dropouts:
        dropout.p = 0.5
    classifier.model.train()
    assert dropouts and classifier.classify(lines) == before
    assert classifier.model.training


def test_copies(checkpoint: Path, model: sut_fairseq.Model) -> None:
    """A deep copy has weights of its own; what fairseq cannot pickle is refused in a sentence."""
    before = model.translate(LINES, **OPTIONS)
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in copied.model.parameters():
            parameter.zero_()
    assert copied.translate(LINES, **OPTIONS) != before == model.translate(LINES, **OPTIONS)
    assert copy.copy(model).model is model.model
    with pytest.raises(InputError, match="let each process load its own"):
        pickle.dumps(model)
    state = pickle.loads(pickle.dumps(model.model.state_dict()))
    assert copied.model.load_state_dict(state)
    assert copied.translate(LINES, **OPTIONS) == before


def test_traces_in_bfloat16(checkpoint: Path) -> None:
    """NumPy has no bfloat16: the arrays are float32."""
    model = sut_fairseq.load(checkpoint.parent, device="cpu")
    model.model.bfloat16()
    trace = model.trace(LINES[0], max_len=5)
    assert trace.attention["encoder.self_attention"].dtype == np.float32
    assert trace.expert_weights["encoder.feed_forward"].dtype == np.float32


def test_another_default_device(checkpoint: Path, model: sut_fairseq.Model) -> None:
    """As in a notebook that sets a GPU; `meta` stands for it."""
    before = model.trace(LINES[0], max_len=5)
    torch.set_default_device("meta")
    try:
        loaded = sut_fairseq.load(checkpoint.parent, device="cpu")
        trace = loaded.trace(LINES[0], max_len=5)
    finally:
        torch.set_default_device(None)
    assert trace.text == before.text and trace.macs == before.macs
    np.testing.assert_array_equal(trace.halting["encoder"], before.halting["encoder"])
