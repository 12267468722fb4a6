"""Readers of lines, columns, labels and logs, with whatever hypothesis finds to write into them."""

from __future__ import annotations

import codecs
import io
import json
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sut_data.command_line import printable
from sut_data.files import read_lines as read_text
from sut_fairseq.cli._generated import read_pairs
from sut_fairseq.cli._selection import read_validation_log
from sut_fairseq.cli.translate import read_lines
from sut_fairseq.errors import InputError
from sut_fairseq.tasks.columns import column_names, order_of, read_column
from sut_fairseq.tasks.labels import _check_targets, labels_of
from tests.nasty import BROKEN, NASTY

LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n")) | st.sampled_from(
    NASTY
)
WORD = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
    lambda word: len(word.split()) == 1 and word == word.split()[0]
) | st.sampled_from(["<unk>", "</s>", "<pad>", "<s>", "#fairseq:overwrite", "@@", "\x00", "\u0301"])
MANY_FILES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@MANY_FILES
@given(values=st.lists(LINE, min_size=1, max_size=30))
@example(values=["a\rb", "a\u2028b", "\x85", "\x1c", "", "\ufeff"])
def test_a_column_has_one_value_a_line(values: list[str], tmp_path: Path) -> None:
    (tmp_path / "text").mkdir(exist_ok=True)
    content = "".join(f"{value}\n" for value in values)
    (tmp_path / "text" / "test.odd").write_bytes(content.encode())
    assert read_column(tmp_path, "test", "odd", len(values)) == [v.rstrip("\r") for v in values]
    sorted(values, key=order_of)
    assert column_names(tmp_path, "test") == ["odd"]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_column_that_is_no_text(broken: bytes, tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "test.odd").write_bytes(b"a\n" + broken + b"\n")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        read_column(tmp_path, "test", "odd", 2)


@given(data=st.binary(max_size=300) | st.lists(st.sampled_from(BROKEN)).map(b"\n".join))
def test_each_line_is_a_line(data: bytes) -> None:
    """As `wc -l` and Python's own reading of bytes see them."""
    assert len(list(read_lines(io.BytesIO(data)))) == len(io.BytesIO(data).readlines())


@MANY_FILES
@given(data=st.binary(max_size=200))
@example(data=b"\xef")  # a byte order mark that breaks off
@example(data=codecs.BOM_UTF8)
def test_a_file_is_text_or_refused(data: bytes, tmp_path: Path) -> None:
    for name in ("text", "text.gz"):
        (tmp_path / name).write_bytes(data)
        text = io.BytesIO(data.removeprefix(codecs.BOM_UTF8))
        try:
            lines = list(read_text(tmp_path / name))
        except InputError as error:
            assert "\n" not in str(error)
        else:
            assert name == "text.gz" or len(lines) == len(text.readlines())


@given(words=st.lists(WORD, min_size=1, max_size=8, unique=True), chosen=st.data())
def test_labels_are_known_or_refused(words: list[str], chosen: st.DataObject) -> None:
    """A target is one word that training has, whatever that word is."""
    dictionary = Dictionary()
    for word in words:
        dictionary.add_symbol(word)
    try:
        labels = labels_of(dictionary)
    except InputError:
        assert set(words) <= {"<s>", "<pad>", "</s>", "<unk>"}
        return
    targets = [
        torch.tensor([chosen.draw(st.integers(0, len(dictionary) - 1)), dictionary.eos()])
        for _ in range(3)
    ]
    known = set(labels.tolist())
    if all(int(target[0]) in known for target in targets):
        _check_targets("test", targets, dictionary, labels)
    else:
        with pytest.raises(InputError, match="a label that training does not have"):
            _check_targets("test", targets, dictionary, labels)


@given(
    lines=st.lists(
        LINE | st.builds("{}-{}\t{}".format, st.sampled_from("THDP"), st.integers(0, 3), LINE)
    )
)
def test_generated_text_is_complete_or_refused(lines: list[str]) -> None:
    try:
        pairs = read_pairs(lines)
    except InputError:
        return
    assert pairs and all(len(pair) == 2 for pair in pairs.values())


NUMBER = st.sampled_from([3, 2.5, "2.5", "inf", None, True, [], {}, "x", "1e999", -1])


@MANY_FILES
@given(
    lines=st.lists(
        LINE
        | st.builds(
            lambda *values: json.dumps(dict(zip(("valid_loss", "valid_num_updates"), values))),
            NUMBER,
            NUMBER,
        )
        | st.builds("valid on 'valid' subset | loss {} | num_updates {}".format, NUMBER, NUMBER)
    )
)
def test_logs_have_values_or_are_refused(lines: list[str], tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    try:
        values = read_validation_log(path, "loss")
    except InputError:
        return
    assert all(isinstance(value, float) for value in values.values())


@given(st.text())
def test_what_is_shown_is_printable(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable() and (shown == text) == text.isprintable()
