"""CFQ's queries as sets of conjuncts, and a shorter way to write them.

A query is a SELECT clause and, in braces, conjuncts separated by ` . `: triples
`subject predicate object` and `FILTER ( x != y )`. Their order does not matter. `simplify` merges
triples: `?x0 M1 film.editor.film film.writer.film M2 M3` stands for the eight triples of two
subjects, two predicates and two objects. No brackets are needed to read that, because entities
(`?x0`, `M1`, `m_05zppz`) look different from predicates. `conjuncts` reads both forms.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable
from functools import lru_cache
from itertools import product
from typing import TypeVar

_ENTITY = re.compile(r"\?x\d+|M\d+|m_\w+")
_TYPE = "a"  # `?x0 a people.person`: its objects look like predicates

Key = TypeVar("Key", bound=Hashable)
Terms = tuple[str, ...]


def conjuncts(query: str) -> frozenset[str]:
    """Return the conjuncts of a query as a set; queries with equal sets are equivalent.

    Args:
        query: a query as published or as `simplify` writes it, words separated by spaces. Anything
            else is accepted too, so that a model's output can be compared: a malformed clause
            stays as it is written, and equals no well-formed one.

    Returns:
        triples and FILTER clauses, one string each, and the SELECT clause, which ends in `WHERE`.
    """
    head, clauses = _divide(query)
    return frozenset([head, *(conjunct for clause in clauses for conjunct in _expand(clause))])


def simplify(query: str) -> str:
    """Merge the triples of a query wherever they are a full product of three sets.

    Triples of one subject and predicate are merged first, then those of one predicate and the same
    objects, then those of the same objects and subjects. Members and clauses are sorted, FILTER
    clauses come last.

    Raises:
        ValueError: if a clause is neither a triple nor a FILTER clause of CFQ's form.
    """
    head, clauses = _divide(query)
    if not head.endswith(" WHERE") or not clauses:
        raise ValueError("there is no `SELECT ... WHERE { ... }`")
    triples, filters = set(), set()
    for conjunct in {conjunct for clause in clauses for conjunct in _expand(clause)}:
        words = conjunct.split()
        if _is_filter(words):
            filters.add(conjunct)
        elif _is_triple(words):
            triples.add((words[0], words[1], words[2]))
        else:
            raise ValueError(f"`{conjunct}` is neither `subject predicate object` nor a FILTER")
    objects = _group(((s, p), o) for s, p, o in triples)
    subjects = _group(((p, o), s) for (s, p), o in objects.items())
    predicates = _group(((o, s), p) for (p, o), s in subjects.items())
    merged = sorted(" ".join((*s, *p, *o)) for (o, s), p in predicates.items())
    return _join(head, [*merged, *sorted(filters)])


def _divide(query: str) -> tuple[str, list[list[str]]]:
    """Split a query into the text before its braces and the words of each clause in them."""
    words = query.split()
    if "{" not in words or words[-1] != "}":
        return " ".join(words), []
    start = words.index("{")
    clauses: list[list[str]] = [[]]
    for word in words[start + 1 : -1]:
        if word == ".":
            clauses.append([])
        else:
            clauses[-1].append(word)
    return " ".join(words[:start]), [] if clauses == [[]] else clauses


def _join(head: str, clauses: list[str]) -> str:
    return f"{head} {{ {' . '.join(clauses)} }}" if clauses else head


@lru_cache(maxsize=1024)
def _is_entity(word: str) -> bool:
    return _ENTITY.fullmatch(word) is not None


def _is_filter(words: list[str]) -> bool:
    """Tell whether the words are `FILTER ( x != y )`."""
    punctuation = [*words[:2], *words[3:4], *words[5:]]
    return punctuation == ["FILTER", "(", "!=", ")"] and all(map(_is_entity, words[2:5:2]))


def _is_triple(words: list[str]) -> bool:
    """Tell whether the words are one triple, whose parts `_expand` can tell apart."""
    if len(words) != 3 or not _is_entity(words[0]) or _is_entity(words[1]):
        return False
    if words[1] == _TYPE:
        return not _is_entity(words[2]) and words[2] != _TYPE
    return _is_entity(words[2])


def _expand(words: list[str]) -> list[str]:
    """Conjuncts that a clause stands for; a clause that is not a product stands for itself."""
    if len(words) <= 3 or words[0] == "FILTER":
        return [" ".join(words)]
    ends = _boundaries(words)
    parts = words[: ends[0]], words[ends[0] : ends[1]], words[ends[1] :]
    triples = [list(triple) for triple in product(*parts)]
    if triples and all(map(_is_triple, triples)):
        return [" ".join(triple) for triple in triples]
    return [" ".join(words)]


def _boundaries(words: list[str]) -> tuple[int, int]:
    """Where the predicates of a clause begin and end."""
    first = next((i for i, word in enumerate(words) if not _is_entity(word)), len(words))
    if words[first : first + 1] == [_TYPE]:
        return first, first + 1
    rest = range(first, len(words))
    return first, next((i for i in rest if _is_entity(words[i])), len(words))


def _group(pairs: Iterable[tuple[Key, str]]) -> dict[Key, Terms]:
    """Collect the values of each key, sorted."""
    groups: defaultdict[Key, list[str]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return {key: tuple(sorted(values)) for key, values in groups.items()}
