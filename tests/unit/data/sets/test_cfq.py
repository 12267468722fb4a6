"""CFQ from both forms in which it is found."""

from __future__ import annotations

import io
import json
import re
import shutil
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sut_data.errors import InputError
from sut_data.files import read_lines
from sut_data.sets.cfq import command as cfq
from sut_data.sets.cfq import official as cfq_official

QUERY = "SELECT count ( * ) WHERE { M0 p.q ?x0 . M0 p.q M1 }"
SIMPLIFIED = "SELECT count ( * ) WHERE { M0 p.q ?x0 M1 }"
ENTRY = {
    "questionPatternModEntities": "Did M0's editor marry M1",
    "sparqlPatternModEntities": "SELECT count(*) WHERE {\nM0 ns:p.q ?x0 .\nM0 ns:p.q M1\n}",
    "complexityMeasures": {"parseTreeLeafCount": 4, "brackets": "]}"},
}


def raw_question(question: str) -> str:
    """A tokenised question as the authors publish it."""
    return question.replace(" ' s", " 's")


def raw_query(query: str) -> str:
    """A tokenised query as the authors publish it: prefixes, and one conjunct a line."""
    words = []
    for word in query.replace("count ( * )", "count(*)").split():
        word = "ns:m." + word[2:] if word.startswith("m_") else word
        words.append("ns:" + word if "." in word[1:-1] and not word.startswith("ns:m.") else word)
    return re.sub(r" \. ", " .\n", " ".join(words)).replace("{ ", "{\n").replace(" }", "\n}")


def write_official(folder: Path, entries: object, split: object) -> Path:
    (folder / "splits").mkdir(exist_ok=True)
    (folder / "dataset.json").write_text(json.dumps(entries, indent=1), encoding="utf-8")
    (folder / "splits" / "mcd2.json").write_text(json.dumps(split), encoding="utf-8")
    return folder


def write_tokenised(folder: Path, questions: str, queries: str) -> tuple[Path, Path]:
    paths = folder / "train_encode.txt", folder / "train_decode.txt"
    for path, text in zip(paths, (questions, queries)):
        path.write_text(text, encoding="utf-8")
    return paths


def indices(train: list[int], dev: list[int], test: list[int]) -> dict[str, list[int]]:
    return {"trainIdxs": train, "devIdxs": dev, "testIdxs": test}


def test_tokenisation() -> None:
    assert (
        cfq.tokenise_question("Did M1's sibling, M2 ,edit?") == "Did M1 ' s sibling , M2 , edit ?"
    )
    query = "SELECT count(*) WHERE {\n?x0 ns:a.b/ns:c.d ns:m.05z .\n?x0 a ns:e.f\n}"
    expected = "SELECT count ( * ) WHERE { ?x0 a.b/ns:c.d m_05z . ?x0 a e.f }"
    assert cfq.tokenise_query(query) == expected


def test_official_form_of_the_sample(tmp_path: Path, samples: Path) -> None:
    assert_both_forms_are_read_alike(samples / "cfq" / "mcd1" / "train_{}.txt", 12, tmp_path)


def test_official_form_of_published_lines(tmp_path: Path, shared_data: Path) -> None:
    files = shared_data / "cfq" / "mcd1" / "dev_{}.txt.gz"
    assert_both_forms_are_read_alike(files, 3000, tmp_path)


def assert_both_forms_are_read_alike(files: Path, size: int, tmp_path: Path) -> None:
    """Tokenised text, written back as JSON and in an archive, is read as what it was."""
    sides = []
    for side in ("encode", "decode"):
        sides.append([*read_lines(Path(str(files).format(side)))][:size])
    pairs = list(zip(*sides))
    third = size // 3
    fields = cfq_official.FIELDS
    entries = [dict(zip(fields, (raw_question(a), raw_query(b)))) for a, b in pairs]
    order = list(range(len(pairs)))[::-1]
    folder = write_official(
        tmp_path, entries, indices(order[2 * third :], order[:third], order[third : 2 * third])
    )
    archive = tmp_path / "cfq1.1.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in ("dataset.json", "splits/mcd2.json"):
            tar.add(folder / name, f"cfq/{name}")

    parts = cfq.read_split(folder, "mcd2", simplify=False)
    found = parts["valid"] + parts["test"] + parts["train"]
    assert [example[:2] for example in found] == pairs[::-1]
    assert [len(parts[part]) for part in ("train", "valid", "test")] == [third] * 3
    assert cfq_official.read_official(archive, "mcd2") == [
        [(place.replace(str(folder), str(archive)), *texts) for place, *texts in rows]
        for rows in cfq_official.read_official(folder, "mcd2")
    ]


def test_both_forms_of_the_sample_are_one(samples: Path) -> None:
    """`mcd2` is the same questions as published, `mcd1` tokenised."""
    folder = samples / "cfq"
    assert cfq.read_split(folder, "mcd2", simplify=True) == cfq.read_split(
        folder, "mcd1", simplify=True
    )


def test_official_form(tmp_path: Path) -> None:
    write_official(tmp_path, [ENTRY, {}, ENTRY], indices([0], [2], [0]))
    parts = cfq.read_split(tmp_path, "mcd2", simplify=True)
    example = cfq.Example("Did M0 ' s editor marry M1", SIMPLIFIED, (str(len(QUERY.split())),))
    assert parts == {"train": [example], "valid": [example], "test": [example]}
    (kept,) = cfq.read_split(tmp_path, "mcd2", simplify=False)["test"]
    assert kept.target == QUERY


@pytest.mark.parametrize(
    ("entries", "split", "message"),
    [
        ({"a": 1}, indices([0], [0], [0]), "dataset.json in .* is not a JSON array"),
        ([ENTRY], indices([0], [1], [0]), "has no entry 1, which the split needs"),
        ([ENTRY], indices([0], [-1], [0]), "has no entry -1, which the split needs"),
        ([{}], indices([0], [0], [0]), "entry 0 lacks the text of questionPattern"),
        ([[1]], indices([0], [0], [0]), "entry 0 lacks the text of questionPattern"),
        ([{**ENTRY, cfq_official.FIELDS[1]: "SELECT"}], indices([0], [], []), "is not a CFQ query"),
        ([ENTRY], {"trainIdxs": [0]}, "does not hold the lists trainIdxs, devIdxs, testIdxs"),
        ([ENTRY], indices([0.5], [0], [0]), "does not hold the lists"),  # type: ignore[list-item]
        ([ENTRY], [3], "does not hold the lists"),
    ],
)
def test_wrong_official_files_are_refused(
    tmp_path: Path, entries: object, split: object, message: str
) -> None:
    write_official(tmp_path, entries, split)
    with pytest.raises(InputError, match=message):
        cfq.read_split(tmp_path, "mcd2", simplify=True)


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    archive = tmp_path / "cfq1.1.tar.gz"
    archive.write_bytes(b"no archive")
    with pytest.raises(InputError, match="cannot be unpacked"):
        cfq.read_split(tmp_path, "mcd2", simplify=True)
    with tarfile.open(archive, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("cfq/other"), io.BytesIO())
    with pytest.raises(InputError, match="holds no splits/mcd2.json"):
        cfq.read_split(tmp_path, "mcd2", simplify=True)
    archive.unlink()
    with pytest.raises(InputError, match="has neither dataset.json nor cfq1.1.tar.gz"):
        cfq.read_split(tmp_path, "mcd2", simplify=True)


@given(st.lists(st.dictionaries(st.text(), st.text()), max_size=9), st.integers(1, 40), st.data())
def test_arrays_are_read_in_pieces(
    entries: list[dict[str, str]], chunk: int, data: st.DataObject
) -> None:
    """However the text falls into pieces; cut off anywhere, it is refused."""
    text = json.dumps(entries, indent=data.draw(st.sampled_from([None, 2])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cfq_official, "CHUNK", chunk)
        assert list(cfq_official.read_array(io.StringIO(text), "it")) == entries
        end = data.draw(st.integers(0, len(text) - 1))
        with pytest.raises(InputError, match="it is "):
            list(cfq_official.read_array(io.StringIO(text[:end]), "it"))


def test_tokenised_files_must_say_which_split_they_are(samples: Path, tmp_path: Path) -> None:
    folder = tmp_path
    shutil.copytree(samples / "cfq" / "mcd1", folder / "mcd1")
    assert cfq.find_tokenised(folder, "mcd1") == folder / "mcd1"
    assert cfq.find_tokenised(folder / "mcd1", "mcd1") == (folder / "mcd1").resolve()
    assert cfq.find_tokenised(folder / "mcd1", "mcd2") is None
    with pytest.raises(InputError, match="nor is there a folder mcd2 with train_encode.txt"):
        cfq.read_split(folder / "mcd1", "mcd2", simplify=True)


@pytest.mark.parametrize(
    ("questions", "queries", "message"),
    [
        ("Q\n", f"{QUERY}\n{QUERY}\n", "train_encode.txt has 1 lines but .* has 2"),
        ("Q\nQ\n", f"{QUERY}\n", "train_encode.txt has 2 lines but .* has 1"),
        ("Q\n \n", f"{QUERY}\n{QUERY}\n", "train_encode.txt, line 2 is blank"),
        ("Q\n", "SELECT M0\n", "train_decode.txt, line 1: this is not a CFQ query: there is no"),
        ("Q\n", "SELECT WHERE { M0 p.q }\n", "line 1: this is not a CFQ query: `M0 p.q` is"),
    ],
)
def test_wrong_tokenised_files_are_refused(
    tmp_path: Path, questions: str, queries: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        cfq.read_tokenised(*write_tokenised(tmp_path, questions, queries), True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.one_of(st.just("Who"), st.text(max_size=9)), max_size=3),
    st.lists(st.one_of(st.just(QUERY), st.just(QUERY), st.text(max_size=20)), max_size=3),
)
def test_no_line_is_lost_and_nothing_else_is_raised(
    tmp_path: Path, questions: list[str], queries: list[str]
) -> None:
    texts = ("".join(f"{line}\n" for line in lines) for lines in (questions, queries))
    try:
        examples = cfq.read_tokenised(*write_tokenised(tmp_path, *texts), True)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert [example.source for example in examples] == [" ".join(q.split()) for q in questions]
        assert {example.target for example in examples} <= {SIMPLIFIED}
        assert len(examples) == len(queries)
