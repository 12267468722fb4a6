"""What the page of `sut-report` says of a model, and what thresholds change in it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
import torch
from fairseq.data import LanguagePairDataset

from sut_data.text.tokenization import TextSide
from sut_fairseq.analysis import average_steps
from sut_fairseq.analysis.complexity import count
from sut_fairseq.analysis.page import split
from sut_fairseq.analysis.page.document import model_record, sentences_record
from sut_fairseq.analysis.sentences import Reader
from sut_fairseq.analysis.traces import trace
from sut_fairseq.errors import InputError
from tests.models import HALTING, MIXTURE, small_model
from tests.unit.test_page_records import Task, _task_that_answers

LENGTHS = (3, 11, 3, 1, 11, 2)  # of sources, without their ends


class Longer(Task):
    """Sentences whose lengths sort otherwise as text than as numbers; targets have two words."""

    def dataset(self, name: str) -> LanguagePairDataset:
        sources = [torch.tensor([4 + n % 5 for n in range(own)] + [2]) for own in LENGTHS]
        targets = [torch.tensor([4 + number, 5, 2]) for number in range(len(LENGTHS))]
        sizes = [[len(one) for one in side] for side in (sources, targets)]
        words = (self.source_dictionary, self.target_dictionary)
        return LanguagePairDataset(
            sources, sizes[0], words[0], targets, sizes[1], words[1], shuffle=False
        )


def test_average_steps_at_thresholds_by_hand() -> None:
    """From one sentence after the other; a loop of fixed depth has no averages."""
    model: Any = small_model(encoder_halting="stick-breaking")
    task, thresholds = Longer(), (0.3, 0.6)
    done: list[int] = []
    options: dict[str, Any] = dict(max_tokens=100, progress=done.append)
    record = split.depth_record(model, task, "x", range(6), "length", thresholds, **options)
    assert [group["name"] for group in record["groups"]] == ["2", "3", "4", "12"]
    assert [group["sentences"] for group in record["groups"]] == [1, 1, 2, 2]
    assert record["greatest"] == {"encoder": 4} and record["sentences"] == 6
    assert sum(done) == 12
    dataset = task.dataset("x")
    means = []
    for threshold, found in zip(thresholds, record["steps"]):
        model.encoder.stack.halting.alpha_threshold = threshold
        steps: defaultdict[int, list[int]] = defaultdict(list)
        for number in range(6):
            sample = dataset.collater([dataset[number]])
            steps[LENGTHS[number]] += trace(model, sample).stacks["encoder"].depth[0].tolist()
        means.append([sum(own) / len(own) for _, own in sorted(steps.items())])
        assert list(found) == ["encoder"]
        assert found["encoder"] == pytest.approx(means[-1], abs=1e-3)
    assert means[0] != means[1]
    # All in one group: padding of the shorter sentences counts for nothing.
    (row,) = average_steps.by_group(model, task, {"x": range(6)}, "target_length", **options)
    words = [own + 1 for own in (1, 2, 3, 11)]
    shares = [number * own for number, own in zip((1, 1, 2, 2), words)]
    expected = sum(n * mean for n, mean in zip(shares, means[1])) / sum(shares)
    assert row["encoder_steps"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("stick-breaking", "stick-breaking"),
        ("act", "adaptive computation time"),
        ("none", "fixed depth"),
    ],
)
def test_a_model_as_plain_data(kind: str, said: str) -> None:
    model = small_model(**MIXTURE, encoder_halting=kind)
    reader = Reader(model, *_task_that_answers([2]), TextSide(), TextSide())
    record = model_record(reader, name="sut", checkpoint="a.pt", data="bin", updates=7)
    assert record["stacks"]["encoder"] == {
        "steps": 4,
        "halting": said,
        "experts": {"self_attention": [4, 2], "feed_forward": [3, 2]},
    }
    assert record["stacks"]["decoder"]["halting"] == "fixed depth"
    assert record["parameters"] == sum(p.numel() for p in model.parameters())
    assert (record["updates"], record["labels"]) == (7, False)


def test_the_models_own_threshold_is_restored() -> None:
    model = small_model(**HALTING, alpha_threshold=0.65)
    reader = Reader(model, *_task_that_answers([6, 5, 2]), TextSide(), TextSide())
    done: list[None] = []
    records = sentences_record(
        reader,
        [reader.sentence(text) for text in ("w0 w1", "w2")],
        [0.2, 0.65, 1.0],
        target=None,
        progress=lambda: done.append(None),
    )
    assert reader.alpha_threshold == 0.65 and len(done) == 6
    assert [record["text"] for record in records] == ["w0 w1", "w2"]
    for record in records:
        assert [one["threshold"] for one in record["answers"]] == [0.2, 0.65, 1.0]
        skipped = [one["skipped"] for one in record["answers"]]
        assert skipped == sorted(skipped, reverse=True) and skipped[0] > skipped[-1]


@pytest.mark.parametrize(("asked", "longest"), [(200, 39), (39, 39), (5, 5)])
def test_answers_that_the_model_can_read(asked: int, longest: int) -> None:
    """It reads as many tokens as an answer has, the end included."""
    (task,) = _task_that_answers([2])
    given: list[Any] = []
    task.build_generator = lambda models, options: given.append(options)
    reader = Reader(small_model(), task, TextSide(), TextSide(), max_len=asked)
    assert (given[0].max_len_a, given[0].max_len_b) == (0, longest)
    sentence = reader.sentence("w0 w1")
    answered = reader.ask(sentence, target="v0 " * 39)
    assert len(answered.reads["decoder"]) == 40
    inputs = {**sentence.sample["net_input"]}
    inputs["prev_output_tokens"] = torch.tensor([[2, *[4] * 39]])
    assert answered.macs == count(reader.model, [inputs]).macs_full
    with pytest.raises(InputError, match="`target sentence` must be at most 40 tokens long, but"):
        reader.ask(sentence, target="v0 " * 40)
