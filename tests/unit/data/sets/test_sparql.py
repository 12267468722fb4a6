"""CFQ's queries: simplifying loses nothing, on every real query too."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sut_data.files import read_lines
from sut_data.sets.cfq.sparql import conjuncts, simplify

SAMPLE = 3000
HEAD = "SELECT count ( * ) WHERE"

ENTITIES = st.sampled_from(["?x0", "?x1", "M0", "M1", "M2", "m_05zppz"])
PREDICATES = st.sampled_from(["film.editor.film", "film.writer.film", "people.person.gender"])
TYPES = st.sampled_from(["people.person", "film.editor"])
FILTERS = st.tuples(ENTITIES, ENTITIES).map(lambda pair: "FILTER ( {} != {} )".format(*pair))
WORDS = ["SELECT", "WHERE", "{", "}", ".", "M0", "?x1", "p.q", "a", "FILTER", "(", "!=", ")"]
TRIPLES = st.one_of(
    st.tuples(ENTITIES, PREDICATES, ENTITIES), st.tuples(ENTITIES, st.just("a"), TYPES)
).map(" ".join)


def query(clauses: list[str] | set[str]) -> str:
    return f"{HEAD} {{ {' . '.join(clauses)} }}"


def read_conjuncts(text: str) -> set[str]:
    """What a published query demands, straight from its text."""
    head, _, body = text.partition(" { ")
    return {head, *body.removesuffix(" }").split(" . ")}


def assert_lossless(text: str) -> None:
    simplified = simplify(text)
    expected = read_conjuncts(text)
    assert conjuncts(text) == conjuncts(simplified) == expected
    assert len(simplified.split()) <= len(text.split())


def published(shared_data: Path) -> list[str]:
    lines: list[str] = []
    for side in ("train", "dev", "test"):
        path = shared_data / "cfq" / "mcd1" / f"{side}_decode.txt.gz"
        lines += gzip.decompress(path.read_bytes()).decode().splitlines()
    return lines


def test_queries_of_the_sample(samples: Path) -> None:
    lines = [*read_lines(samples / "cfq" / "mcd1" / "train_decode.txt")]
    assert len(lines) == 14
    for text in lines:
        assert_lossless(text)
    shorter = sum(len(simplify(text).split()) < len(text.split()) for text in lines)
    assert shorter == 14  # each has a product of objects at least


def test_a_sample_of_the_published_queries(shared_data: Path) -> None:
    for text in random.Random(1).sample(published(shared_data), SAMPLE):
        assert_lossless(text)


@pytest.mark.slow
def test_all_published_queries(shared_data: Path) -> None:
    lines = published(shared_data)
    assert len(lines) == 119_679
    for text in lines:
        assert_lossless(text)


@pytest.mark.parametrize(
    ("clauses", "merged"),
    [
        ("M0 p.q M1", "M0 p.q M1"),
        ("M0 p.q M2 . M0 p.q M1", "M0 p.q M1 M2"),
        ("M1 p.q M2 . M0 p.q M2", "M0 M1 p.q M2"),
        ("M0 r.s M1 . M0 p.q M1", "M0 p.q r.s M1"),
        (
            "M0 p.q ?x0 . M0 p.q ?x1 . M1 p.q ?x0 . M1 p.q ?x1 . "
            "M0 r.s ?x0 . M0 r.s ?x1 . M1 r.s ?x0 . M1 r.s ?x1",
            "M0 M1 p.q r.s ?x0 ?x1",
        ),
        # One triple is missing for a product of three sets: nothing is made up.
        ("M0 p.q M2 . M0 p.q M3 . M1 p.q M2", "M0 p.q M2 M3 . M1 p.q M2"),
        ("?x0 a p.q . ?x0 a r.s . M0 a r.s . M0 a p.q", "?x0 M0 a p.q r.s"),
        (
            "FILTER ( M0 != ?x0 ) . ?x0 p.q M0 . FILTER ( ?x0 != M0 )",
            "?x0 p.q M0 . FILTER ( ?x0 != M0 ) . FILTER ( M0 != ?x0 )",
        ),
    ],
)
def test_products_are_merged(clauses: str, merged: str) -> None:
    assert simplify(query(clauses.split(" . "))) == query(merged.split(" . "))
    assert_lossless(query(clauses.split(" . ")))


@given(st.sets(st.one_of(TRIPLES, FILTERS), min_size=1, max_size=12))
def test_nothing_is_lost(clauses: set[str]) -> None:
    assert_lossless(query(clauses))


@given(st.lists(TRIPLES, min_size=1, max_size=9), st.randoms(use_true_random=False))
def test_equivalent_queries_become_the_same(clauses: list[str], order: random.Random) -> None:
    shuffled = order.sample(clauses, len(clauses))
    assert simplify(query(clauses)) == simplify(query([*shuffled, clauses[0]]))
    assert simplify(simplify(query(clauses))) == simplify(query(clauses))


@pytest.mark.parametrize(
    "text",
    [
        "",
        HEAD,
        f"{HEAD} {{ M0 M1 }}",
        f"{HEAD} {{ M0 p.q }}",
        f"{HEAD} {{ a p.q M0 }}",
        f"{HEAD} {{ M0 a M1 }}",
        f"{HEAD} {{ M0 p.q M1 . }}",
        f"{HEAD} {{ M0 p.q M1 r.s }}",
        f"{HEAD} {{ FILTER ( M0 = M1 ) }}",
        f"{HEAD} {{ M0 p.q M1",
        "{ M0 p.q M1 }",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is neither|there is no"):
        simplify(text)


@given(st.lists(st.sampled_from(WORDS)))
def test_whatever_a_model_writes_can_be_compared(words: list[str]) -> None:
    """Only a query that can be simplified equals one that can be."""
    text = " ".join(words)
    try:
        simplify(text)
    except ValueError:
        reference = query(["M0 p.q ?x1", "FILTER ( M0 != ?x1 )"])
        assert conjuncts(text) != conjuncts(reference)
        assert conjuncts(f"{HEAD} {{ {text} }}") != conjuncts(reference)


def test_the_select_clause_counts() -> None:
    assert conjuncts("SELECT DISTINCT ?x0 WHERE { M0 p.q ?x0 }") != conjuncts(query(["M0 p.q ?x0"]))
