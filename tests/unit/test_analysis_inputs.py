"""What models are asked with and in which groups: batches, pairs, lengths, outcomes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sut_fairseq.analysis import trained, untrained
from sut_fairseq.analysis.evaluation import Answer, Outcome, check_lengths, grouped
from sut_fairseq.errors import InputError
from sut_fairseq.statistics import HaltingStatistics

LENGTHS = (5, 2, 7, 3, 3, 9, 1)


class Dataset:
    """Sentences of these lengths, which are collated into a list of their numbers."""

    def __len__(self) -> int:
        return len(LENGTHS)

    def __getitem__(self, number: int) -> Any:
        return {"id": number, "source": f"s{number}", "target": f"t{number}"}

    def num_tokens(self, number: int) -> int:
        return LENGTHS[number]

    def collater(self, items: list[Any]) -> Any:
        return [item["id"] for item in items]


@pytest.mark.parametrize(
    ("max_tokens", "max_sentences", "expected"),
    [
        (9, 0, [[6, 1, 3], [4], [0], [2], [5]]),
        (6, 0, [[6, 1], [3, 4], [0], [2], [5]]),  # longer sentences are alone
        (100, 0, [[6, 1, 3, 4, 0, 2, 5]]),
        (100, 3, [[6, 1, 3], [4, 0, 2], [5]]),
        (9, 2, [[6, 1], [3, 4], [0], [2], [5]]),
    ],
)
def test_batches_are_as_few_as_the_limits_allow(
    max_tokens: int, max_sentences: int, expected: list[list[int]]
) -> None:
    data: Any = Dataset()
    assert list(trained.batches_of(data, range(7), max_tokens, max_sentences)) == expected


def test_pairs_from_all_over_a_split() -> None:
    task: Any = SimpleNamespace(load_dataset=lambda split: None, dataset=lambda split: Dataset())
    for most, spread, expected in (
        (3, False, [0, 1, 2]),
        (3, True, [0, 2, 4]),
        (2, True, [0, 3]),
        (None, True, [0, 1, 2, 3, 4, 5, 6]),
    ):
        pairs: list[Any] = trained.sentence_pairs(task, "train", most, spread=spread)
        assert pairs == [(f"s{number}", f"t{number}") for number in expected]


def test_groups_are_in_the_order_of_numbers() -> None:
    values = ["10", "9", "word", "10", "100"]
    expected = [("9", [1]), ("10", [0, 3]), ("100", [4]), ("word", [2])]
    assert grouped(values, range(5)) == expected
    assert grouped(values, [3, 1]) == [("9", [1]), ("10", [3])]


def test_sentences_may_be_as_long_as_the_model_takes() -> None:
    sizes = [4, 9, 5, 7]
    dataset = SimpleNamespace(size=lambda number: (sizes[number], sizes[number]))
    task: Any = SimpleNamespace(dataset=lambda split: dataset)

    def check(source: int, target: int, *numbers: int) -> None:
        model = SimpleNamespace(max_positions=lambda: (source, target))
        check_lengths(task, model, "test", numbers)

    check(9, 9, 0, 1, 2, 3)
    check(5, 5, 0, 2)
    longest = r".*longest has 9\): train with --max-{}-positions 9\."
    with pytest.raises(InputError, match="2 source .* more than 5 " + longest.format("source")):
        check(5, 9, 0, 1, 2, 3)
    with pytest.raises(InputError, match="1 target .* more than 8 " + longest.format("target")):
        check(9, 8, 0, 1, 2, 3)


def test_outcomes_add_up() -> None:
    """Of two groups: all answers, the time of both, means over all sentences."""

    def halting(*sums: float) -> HaltingStatistics:
        return HaltingStatistics(*(torch.tensor(one) for one in sums))

    first = Outcome(
        {4: Answer(True, "a", {"loss": 1.0})}, {"encoder": halting(2.0, 3.0, 4.0, 8.0, 0.0)}, 1.5
    )
    second = Outcome(
        {2: Answer(False, "b", {"loss": 4.0}), 7: Answer(False, "c", {"loss": 7.0})},
        {"encoder": halting(3.0, 3.0, 6.0, 12.0, 0.0), "decoder": halting(1.0, 1.0, 5.0, 5.0, 0.0)},
        2.0,
    )
    both = first + second
    assert both.seconds == 3.5 and set(both.answers) == {2, 4, 7}
    assert both.figures() == {
        "sentences": 3,
        "right": 1,
        "percent": pytest.approx(100 / 3),
        "loss": 4.0,
        "encoder_depth": 2.0,
        "decoder_depth": 5.0,
        "skipped": pytest.approx(1 - 15 / 25),
    }
    assert "decoder" not in first.halting


def test_limits_of_untrained_models() -> None:
    """A word besides the special symbols, and the longest sentences that the model takes."""
    with pytest.raises(InputError, match=r"greater than the number of special symbols \(4\)"):
        untrained.build("ut_tiny", 4)
    flags = ("--max-source-positions", "6", "--max-target-positions", "5")
    model, task = untrained.build("ut_tiny", 5, flags)
    assert task.num_labels == 1
    batch = untrained.random_batch(model, task, src_len=6, tgt_len=5, sentences=2)
    assert batch["src_tokens"].tolist() == [[4] * 6] * 2
    assert batch["prev_output_tokens"].tolist() == [[4] * 5] * 2
    assert batch["src_lengths"].tolist() == [6, 6]
    for lengths in (dict(src_len=7, tgt_len=5), dict(src_len=6, tgt_len=6)):
        with pytest.raises(InputError, match="between 1 and the model's maximum"):
            untrained.random_batch(model, task, **lengths)
