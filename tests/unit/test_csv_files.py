"""CSV files of ours: ends of lines, values that need quotes, and what is refused."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from sut_fairseq.experiments.csv_files import write_csv


def test_lines_end_in_a_line_feed_and_every_value_comes_back(tmp_path: Path) -> None:
    """A carriage return inside a value stays there, whatever the version of Python quotes."""
    path = tmp_path / "rows.csv"
    values = ["plain", "a\rb", "a\r\n", "a\nb", 'a,"b"', ""]
    write_csv(path, ["value", "other"], [{"value": value} for value in values])
    written = path.read_bytes()
    assert written.startswith(b'value,other\nplain,\n"a\rb",\n"a\r\n",\n')
    assert written.endswith(b'\n",\n"a\nb",\n"a,""b""",\n,\n')
    with open(path, newline="", encoding="utf-8") as file:
        assert [row["value"] for row in csv.DictReader(file)] == values


def test_a_row_of_other_columns_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    write_csv(path, ["value"], [{"value": 1}])
    with pytest.raises(ValueError, match="other"):
        write_csv(path, ["value"], [{"value": 2}, {"other": 3}])
    assert path.read_text() == "value\n1\n" and list(tmp_path.iterdir()) == [path]
