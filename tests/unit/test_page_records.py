"""What the page of `sut-report` is made of: packed maps, experts of a split, logs, safe JSON."""

from __future__ import annotations

import base64
import json
import math
from collections import Counter, defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.data import LanguagePairDataset
from torch import Tensor

from sut_data.text.tokenization import TextSide
from sut_fairseq.analysis.complexity import count
from sut_fairseq.analysis.depth import skipped, units_with_threshold
from sut_fairseq.analysis.page import answers, split, training
from sut_fairseq.analysis.page.document import THRESHOLDS, thresholds_of
from sut_fairseq.analysis.sentences import Answered, Reader, Word
from sut_fairseq.analysis.traces import trace
from sut_fairseq.cli import _page
from sut_fairseq.errors import InputError
from tests.models import HALTING, MIXTURE, dictionary, small_model

PAIRS = [([4, 5, 6, 5], [4, 5]), ([7, 4], [6, 6, 4]), ([5, 5, 5], [5]), ([4], [4, 4, 4, 4])]


class Task(SimpleNamespace):
    """As much of a translation task as a model in these tests meets."""

    source_dictionary = dictionary()
    target_dictionary = dictionary(7, "v")

    def dataset(self, name: str) -> LanguagePairDataset:
        sides: list[list[Tensor]] = [
            [torch.tensor([*one, 2]) for one in side] for side in zip(*PAIRS)
        ]
        sizes = [[len(one) for one in side] for side in sides]
        words = (self.source_dictionary, self.target_dictionary)
        return LanguagePairDataset(
            sides[0], sizes[0], words[0], sides[1], sizes[1], words[1], shuffle=False
        )


def test_packed_maps_are_the_rows_of_the_computed_tokens() -> None:
    """Read as the page reads them: start of the step, then head, row, key."""
    torch.manual_seed(1)
    computed = torch.tensor([[1, 1, 1, 1], [0, 1, 1, 0], [0, 0, 1, 0]]).bool()
    maps = torch.rand(3, 2, 4, 5).masked_fill(~computed[:, None, :, None], torch.nan)
    for each_head, shown in ((True, maps), (False, maps.amax(dim=1, keepdim=True))):
        packed = answers.pack_maps(maps, computed, each_head)
        assert (packed["num_heads"], packed["num_keys"]) == (2, 5)
        assert packed["kept"] == shown.shape[1]
        weights = base64.b64decode(packed["weights"])
        assert len(weights) == packed["kept"] * 7 * 5
        start = 0
        for step, row in enumerate(computed.tolist()):
            active = [place for place, one in enumerate(row) if one]
            for head in range(packed["kept"]):
                for place, token in enumerate(active):
                    begin = start + (head * len(active) + place) * 5
                    found = torch.tensor(list(weights[begin : begin + 5])) / 255
                    torch.testing.assert_close(found, shown[step, head, token], rtol=0, atol=0.002)
            start += packed["kept"] * len(active) * 5


def test_an_answer_as_plain_data() -> None:
    model = small_model(**MIXTURE, **HALTING)
    model.encoder.stack.halting.alpha_threshold = 0.6
    reader = Reader(model, *_task_that_answers([6, 5, 2]), TextSide(), TextSide())
    answered = reader.ask(reader.sentence("w0 huh w1"))
    record = json.loads(json.dumps(answers.answer_record(answered), allow_nan=False))
    assert record["text"] == "v2 v1" and record["words"] == [["v2"], ["v1"], ["</s>"]]
    assert record["macs"] > 0
    encoder, decoder = record["stacks"]["encoder"], record["stacks"]["decoder"]
    assert encoder["reads"] == [["w0"], ["huh", 1], ["w1"], ["</s>"]]
    assert decoder["reads"] == [["<s>"], ["v2"], ["v1"]]
    run = possible = 0
    for name, stack in (("encoder", encoder), ("decoder", decoder)):
        steps = answered.stacks[name]
        assert stack["steps"] == 4 and stack["depth"] == steps.depth[0].tolist()
        assert [list(map(int, row)) for row in stack["computed"]] == steps.computed[
            :, 0
        ].int().tolist()
        assert stack["gates"] is None and stack["halted"][0] == [0.0] * len(stack["reads"])
        run += sum(row.count("1") for row in stack["computed"])
        possible += 4 * len(stack["reads"])
        for indices, weights in (one.values() for one in stack["experts"].values()):
            for row, own, shares in zip(stack["computed"], indices, weights):
                assert [one is not None for one in own] == [one == "1" for one in row]
                assert all(one is None or abs(sum(one) - 1) < 0.01 for one in shares)
    assert run < possible and record["skipped"] == pytest.approx(1 - run / possible, abs=1e-4)


@pytest.mark.parametrize("halting", ["stick-breaking", "none"])
def test_the_share_of_skipped_steps_is_that_of_sut_macs(halting: str) -> None:
    """A loop of fixed depth does not count."""
    model = small_model(encoder_halting=halting)
    for unit in units_with_threshold(model):
        unit.alpha_threshold = 0.6
    reader = Reader(model, *_task_that_answers([6, 5, 2]), TextSide(), TextSide())
    sentence = reader.sentence("w0 w2 w1")
    record = answers.answer_record(reader.ask(sentence))
    inputs = {**sentence.sample["net_input"], "prev_output_tokens": torch.tensor([[2, 6, 5]])}
    expected = skipped(count(model, [inputs]).halting.values())
    assert record["skipped"] == pytest.approx(expected, abs=1e-4)
    assert (expected > 0) == (halting != "none")


def test_long_sentences_keep_the_greatest_head_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MOST_MAP_BYTES", 100)
    reader = Reader(small_model(), *_task_that_answers([6, 2]), TextSide(), TextSide())
    record = answers.answer_record(reader.ask(reader.sentence("w0 w1 w2"), costs=False))
    for stack in record["stacks"].values():
        assert all(
            one["kept"] == 1 and one["num_heads"] == 2 for one in stack["attention"].values()
        )


def _task_that_answers(tokens: list[int]) -> tuple[Any]:
    """A task whose search always finds the same."""

    def dataset(sources: list[Tensor], lengths: list[int]) -> LanguagePairDataset:
        return LanguagePairDataset(sources, lengths, Task.source_dictionary)

    return (
        Task(
            build_generator=lambda models, settings: None,
            inference_step=lambda search, models, sample: [[{"tokens": torch.tensor(tokens)}]],
            build_dataset_for_inference=dataset,
        ),
    )


def test_what_is_no_sentence_is_refused() -> None:
    reader = Reader(small_model(), *_task_that_answers([2]), TextSide(), TextSide())
    for text, expected in (
        (" \n", "`sentence` must be at least one word"),
        ("\ud800", "`sentence` is not Unicode text"),
        ("w0 " * 40, "`source sentence` must be at most 40 tokens long, but is 41"),
    ):
        with pytest.raises(InputError, match=expected):
            reader.sentence(text)
    # What fairseq calls its special symbols are words that nobody knows.
    assert reader.sentence("<pad> </s> w0").words == [
        *(Word("<pad>", True), Word("</s>", True), Word("w0"), Word("</s>")),
    ]


def test_thresholds_hold_the_models_own() -> None:
    model = small_model(**HALTING, alpha_threshold=0.65)
    reader = Reader(model, *_task_that_answers([2]), TextSide(), TextSide())
    assert thresholds_of(reader, [0.9, 0.2]) == [0.2, 0.65, 0.9]
    assert thresholds_of(reader, None) == sorted([*THRESHOLDS, 0.65])
    fixed = Reader(small_model(), *_task_that_answers([2]), TextSide(), TextSide())
    assert thresholds_of(fixed, None) == [None]


@pytest.mark.parametrize("layout", ["compact", "masked"])
def test_experts_of_a_split_by_hand(layout: str) -> None:
    """From the traces of one sentence after the other, in plain loops."""
    model = small_model(**MIXTURE, **HALTING, token_layout=layout)
    model.encoder.stack.halting.alpha_threshold = 0.6
    task = Task()
    done: list[int] = []
    found = split.expert_record(model, task, "x", [0, 1, 2], max_tokens=20, progress=done.append)
    assert found["sentences"] == sum(done) == 3
    layers = {name: list(own) for name, own in found["layers"].items()}
    assert layers == {
        "encoder": ["self_attention", "feed_forward"],
        "decoder": ["self_attention", "cross_attention", "feed_forward"],
    }
    dataset = task.dataset("x")
    for name, own in layers.items():
        for layer in own:
            experts = 3 if layer == "feed_forward" else 4
            load, seen = Counter[int](), Counter[str]()
            weight: defaultdict[tuple[str, int], float] = defaultdict(float)
            for number in range(3):
                sample = dataset.collater([dataset[number]])
                side = "src_tokens" if name == "encoder" else "prev_output_tokens"
                words = (
                    task.source_dictionary if name == "encoder" else task.target_dictionary
                ).symbols
                read = [words[token] for token in sample["net_input"][side][0]]
                if name == "decoder":
                    read[0] = "<s>"  # for which fairseq takes the same token as for the end
                seen.update(read)
                steps = trace(model, sample).stacks[name].experts[layer]
                for indices, weights in zip(
                    steps.indices[:, 0].tolist(), steps.weights[:, 0].tolist()
                ):
                    for word, chosen, shares in zip(read, indices, weights):
                        for expert, share in zip(chosen, shares):
                            if expert >= 0:
                                load[expert] += 1
                                weight[word, expert] += share
            record = found["layers"][name][layer]
            assert len(record) == experts
            for expert, one in enumerate(record):
                assert one["load"] == pytest.approx(load[expert] / load.total(), abs=1e-4)
                expected = {
                    word: weight[word, expert] / sum(weight[word, e] for e in range(experts))
                    for word in seen
                    if seen[word] >= 3
                }
                expected = {word: share for word, share in expected.items() if share > 1 / experts}
                assert {word: share for word, share, _ in one["words"]} == {
                    word: pytest.approx(share, abs=1e-3) for word, share in expected.items()
                }
                assert all(count == seen[word] for word, _, count in one["words"])
                shares = [share for _, share, _ in one["words"]]
                assert shares == sorted(shares, reverse=True)
    assert task.target_dictionary[2] == "</s>", "the task still knows it as the end"


def test_curves_are_thinned_and_have_numbers_only() -> None:
    points = [(number, "train", "loss", float(number)) for number in range(1, 1001)]
    broken = [(1, "valid", "bleu", math.nan), (2, "valid", "bleu", 3.0), (3, "valid", "bleu", 4.0)]
    alone = [(1, "valid", "nll_loss", 1.0), (1, "test", "nll_loss", 1.0)]
    record = training.training_record("train.log", [*points, *broken, *alone])
    assert record is not None and record["log"] == "train.log"
    assert record["curves"].keys() == {"loss", "bleu"}
    assert record["curves"]["bleu"] == {"valid": [(2, 3.0), (3, 4.0)]}
    thinned = record["curves"]["loss"]["train"]
    assert training.MOST_POINTS / 2 < len(thinned) <= training.MOST_POINTS
    assert thinned[0] == (1, 1.0) and thinned[-1] == (1000, 1000.0)
    assert training.training_record("train.log", alone) is None
    once = (9, "valid", "loss", 1.5)
    for number in (299, 300, 301, 599, 600, 601, 900):
        record = training.training_record("train.log", [*points[:number], once])
        assert record is not None and record["curves"]["loss"]["valid"] == [(9, 1.5)]
        kept = record["curves"]["loss"]["train"]
        assert len(kept) == number if number <= 300 else 150 < len(kept) <= 300
        assert kept[-1] == (number, number)


def test_json_cannot_end_its_element() -> None:
    document = {"</script><!--": ["\u2028&<img src=x>", "\ud800", "\u00e4"]}
    text = _page.to_json(document)
    assert text.isascii() and not {"<", ">", "&"} & set(text)
    assert json.loads(text) == document
    with pytest.raises(ValueError, match="not JSON compliant"):
        _page.to_json({"x": float("nan")})


def test_the_scripts_make_no_markup_of_text() -> None:
    """Whatever parses markup, runs text or reaches out is not in them, but for the one request."""
    source = "\n".join(_page._part(f"{name}.js") for name in _page.SCRIPTS)
    forbidden = ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "Function(")
    forbidden += ("createContextualFragment", "DOMParser", "srcdoc", "XMLHttpRequest", "import(")
    assert [word for word in forbidden if word in source] == []
    assert source.count("fetch(") == 1 and 'fetch("/ask"' in source
    for name in ("http:", "https:", "//cdn", "@import", "url("):
        styles = "\n".join(_page._part(f"{name}.css") for name in _page.STYLES)
        assert name not in styles
    assert source.replace("http://www.w3.org/2000/svg", "").count("http") == 0


def test_without_macs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose MACs nobody can count is shown without."""
    from sut_fairseq.analysis import complexity

    def refuse(*arguments: Any) -> Any:
        raise InputError("has layers that are not counted here")

    monkeypatch.setattr(complexity, "count", refuse)
    reader = Reader(small_model(), *_task_that_answers([6, 2]), TextSide(), TextSide())
    answered: Answered = reader.ask(reader.sentence("w0"))
    assert answered.macs is None
    assert answers.answer_record(answered)["macs"] is None
