"""Groups of sentences joined into ranges, and what counts as equal to a reference."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.data import BaseWrapperDataset, Dictionary, LanguagePairDataset
from hypothesis import given
from hypothesis import strategies as st

from sut_fairseq.analysis import untrained
from sut_fairseq.analysis.evaluation import Answer, Outcome, check_lengths, in_ranges
from sut_fairseq.cli import _evaluation_output, evaluate
from sut_fairseq.cli._evaluate_options import make_parser
from sut_fairseq.errors import InputError
from tests.models import task


def groups(sizes: list[int]) -> list[tuple[str, list[int]]]:
    """Groups with these numbers of sentences, named from 1."""
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    return [
        (str(number), list(range(end - size, end)))
        for number, (size, end) in enumerate(zip(sizes, ends), start=1)
    ]


def test_ranges_have_about_equally_many_sentences() -> None:
    joined = in_ranges(groups([1] * 52), 10)
    assert [name for name, _ in joined][:2] == ["1 to 5", "6 to 10"]
    assert {len(members) for _, members in joined} == {5, 6}
    assert in_ranges(groups([1] * 52), 52) == groups([1] * 52)
    assert [name for name, _ in in_ranges(groups([90, 1, 1, 8]), 2)] == ["1", "2 to 4"]
    assert in_ranges(groups([90, 1, 1, 8]), 4) == groups([90, 1, 1, 8])


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 12))
def test_no_sentence_is_lost(sizes: list[int], most: int) -> None:
    joined = in_ranges(groups(sizes), most)
    assert 1 <= len(joined) <= most
    assert [n for _, members in joined for n in members] == list(range(sum(sizes)))


@pytest.mark.parametrize(
    ("known", "found", "same", "bleu"),
    [
        ("abcde", "a b c d e", 100, 100),
        ("abcde", "a b c d <unk>", 0, 66.87),
        ("abcd", "a b c d <unk>", 0, 66.87),
    ],
)
def test_no_answer_equals_an_unknown_word(
    known: str, found: str, same: float, bleu: float, tmp_path: Path
) -> None:
    """The generated word `<unk>` is not the word of the reference that the model does not know."""
    words = Dictionary()
    for word in known:
        words.add_symbol(word)
    target = words.encode_line("a b c d e", add_if_not_exist=False)
    task: Any = SimpleNamespace(
        cfg=SimpleNamespace(data=str(tmp_path), source_lang="src", target_lang="tgt"),
        target_dictionary=words,
        dataset=lambda split: [{"target": target}],
    )
    options = ["--path", "a.pt", "--modes", "search", "--bleu", "--conjuncts"]
    arguments = make_parser().parse_args(options)
    row = evaluate._row(arguments, task, "search", None, "all", Outcome({0: Answer(False, found)}))
    assert row["same_conjuncts"] == same
    assert row["bleu"] == pytest.approx(bleu, abs=0.01)


def test_macs_that_cannot_be_counted_are_refused_before_the_evaluation() -> None:
    model, task = untrained.build("ndr_ctl_dnc", 9)
    arguments = make_parser().parse_args(["--path", "a.pt", "--macs"])
    with pytest.raises(InputError, match="a DNC is not counted"):
        evaluate._check_model(arguments, model, task)


@pytest.mark.parametrize("modes", [["reference"], ["reference", "search"]])
def test_modes_have_a_column_where_there_are_several(
    modes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"mode": mode, "group": "all", "percent": 12.5} for mode in modes]
    _evaluation_output.print_table({"by": "depth", "measure": "exact match", "rows": rows})
    heading, *lines = (line.split() for line in capsys.readouterr().out.splitlines())
    named = len(modes) > 1
    assert heading == ["mode"] * named + ["depth", "exact", "match"]
    assert lines == [[mode] * named + ["all", "12.50", "%"] for mode in modes]


def test_lengths_of_a_dataset_that_wraps_pairs() -> None:
    """As that of a plugin's task, which has fairseq's `size` but no `src_sizes`."""
    words = [torch.tensor([4] * length + [2]) for length in (2, 6, 3)]
    lengths = [len(tokens) for tokens in words]
    pairs = LanguagePairDataset(words, lengths, task().source_dictionary, words, lengths)
    wrapping = SimpleNamespace(dataset=lambda split: BaseWrapperDataset(pairs))
    taking = SimpleNamespace(max_positions=lambda: (5, 9))
    with pytest.raises(
        InputError, match="^1 source sentences of the split `test` .* longest has 7"
    ):
        check_lengths(wrapping, taking, "test", range(3))
    check_lengths(wrapping, taking, "test", [0, 2])
