"""Write the samples of this folder: each data set in its published form, a few lines of it."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

from sut_data.files import write_lines
from sut_data.kit.examples import keyed_order
from sut_data.sets import logical_inference, pcfg
from sut_data.sets.listops.expressions import evaluate
from sut_data.sets.long_lookup_tables.command import file_name
from sut_data.sets.long_lookup_tables.generation import Draw, add_noise, make_lookups, make_tables
from sut_data.sets.long_lookup_tables.variants import VARIANTS
from sut_data.sets.scan.grammar import all_pairs

HERE = Path(__file__).parent
DRAW = random.Random(1)


def write(name: str, lines: list[str]) -> None:
    path = HERE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    write_lines(path, lines)


def scan() -> None:
    pairs = keyed_order(all_pairs(), "samples")
    lines = [f"IN: {pair.source} OUT: {pair.target}" for pair in pairs[:60]]
    write("scan/tasks.txt", lines)
    split = {
        "trainIdxs": list(range(59, 19, -1)),
        "devIdxs": [3, 1, 2],
        "testIdxs": [*range(8, 20)],
    }
    write("scan/mcd1.json", [json.dumps(split)])
    for part, which in (("train", lines[:40]), ("val", lines[40:43]), ("test", lines[48:])):
        write(f"scan/tasks_{part}_mcd2.txt", which)
    shown = [line for line in lines if " jump" not in line]
    write("scan/tasks_train_addprim_jump.txt", ["IN: jump OUT: I_JUMP"] * 3 + shown[:25])
    write("scan/tasks_test_addprim_jump.txt", [line for line in lines if " jump " in line][:12])


PEOPLE = [f"M{number}" for number in range(4)]
RELATIONS = {
    "edit": "film.editor.film",
    "direct": "film.director.film",
    "write": "film.writer.film",
    "produce": "film.producer.film|ns:film.production_company.films",
}


def cfq() -> None:
    """Questions whether one did something to others: a product of subjects, verbs and objects."""
    pairs = []
    for number in range(24):
        subject, *others = DRAW.sample(PEOPLE, 3)
        verbs = DRAW.sample(list(RELATIONS), DRAW.randint(1, 2))
        owner = " ' s sibling" if number % 3 == 0 else ""
        question = f"Did {subject}{owner} {' and '.join(verbs)} {' and '.join(others)}"
        who = "?x0" if owner else subject
        triples = [f"{who} {RELATIONS[verb]} {other}" for verb in verbs for other in others]
        if owner:
            triples.append(
                f"?x0 people.person.sibling_s/ns:people.sibling_relationship.sibling {subject}"
            )
            triples.append("?x0 people.person.gender m_05zppz")
            triples.append(f"FILTER ( ?x0 != {subject} )")
        pairs.append((question, f"SELECT count ( * ) WHERE {{ {' . '.join(triples)} }}"))
    for side, part in (("train", pairs[:14]), ("dev", pairs[14:18]), ("test", pairs[18:])):
        write(f"cfq/mcd1/{side}_encode.txt", [question for question, _ in part])
        write(f"cfq/mcd1/{side}_decode.txt", [query for _, query in part])
    entries = [
        {
            "questionPatternModEntities": question.replace(" ' s", "'s"),
            "sparqlPatternModEntities": _published(query),
            "complexityMeasures": {"parseTreeLeafCount": len(question.split())},
        }
        for question, query in pairs
    ]
    write("cfq/dataset.json", [json.dumps(entries, indent=1)])
    split = {"trainIdxs": [*range(14)], "devIdxs": [*range(14, 18)], "testIdxs": [*range(18, 24)]}
    write("cfq/splits/mcd2.json", [json.dumps(split)])


def _published(query: str) -> str:
    """A query with its prefixes and line ends."""
    query = query.replace("count ( * )", "count(*)").replace("m_", "ns:m.")
    query = re.sub(r"(?<= )(?=(film|people)\.)", "ns:", query)
    return query.replace(" . ", " .\n").replace("{ ", "{\n").replace(" }", "\n}")


ANIMALS = ["cat", "dog", "bird", "horse"]
ACTIONS = {"saw": "see", "helped": "help", "found": "find"}
TYPES = ["subj_to_obj", "obj_to_subj", "cp_recursion"]


def cogs() -> None:
    def line(kind: str) -> str:
        first, second = DRAW.sample(ANIMALS, 2)
        past = DRAW.choice(list(ACTIONS))
        verb = ACTIONS[past]
        form = (
            f"* {first} ( x _ 1 ) ; {verb} . agent ( x _ 2 , x _ 1 ) AND "
            f"{verb} . theme ( x _ 2 , x _ 4 ) AND {second} ( x _ 4 )"
        )
        return f"The {first} {past} a {second} .\t{form}\t{kind}"

    for name, size in (("train", 30), ("dev", 6), ("test", 6)):
        write(f"cogs/{name}.tsv", [line("in_distribution") for _ in range(size)])
    write("cogs/gen.tsv", [line(kind) for kind in TYPES for _ in range(4)])


def pcfg_set() -> None:
    def source(functions: int) -> str:
        if functions == 0:
            return " ".join(
                f"{DRAW.choice('ABCDE')}{DRAW.randint(1, 20)}" for _ in range(DRAW.randint(1, 4))
            )
        if DRAW.random() < 0.5:
            return f"{DRAW.choice([*pcfg.UNARY])} {source(functions - 1)}"
        left = DRAW.randrange(functions)
        return f"{DRAW.choice([*pcfg.BINARY])} {source(left)} , {source(functions - 1 - left)}"

    sizes = {"10k_random_split/train": 60, "10k_random_split/dev": 10, "10k_random_split/test": 10}
    for stem, size in {**sizes, **dict.fromkeys(pcfg.POOLED_FILES, 12)}.items():
        deepest = 12 if stem == "productivity/test" else 5
        sources = [source(DRAW.randint(1, deepest)) for _ in range(size)]
        write(f"pcfg_set/{stem}.src", sources)
        write(f"pcfg_set/{stem}.tgt", [pcfg.evaluate(line) for line in sources])


def inference() -> None:
    def formula(operators: int) -> str:
        if operators == 0:
            return DRAW.choice("abcdef")
        if DRAW.random() < 0.4:
            return f"( not {formula(operators - 1)} )"
        left = DRAW.randrange(operators)
        word = DRAW.choice(["and", "or"])
        return f"( {formula(left)} ( {word} {formula(operators - 1 - left)} ) )"

    def line(operators: int, label: str | None) -> str:
        while True:
            sides = [formula(operators), formula(DRAW.randint(0, operators))]
            DRAW.shuffle(sides)
            found = logical_inference.relation(*sides)
            if label in (None, found):
                return "\t".join([found, *sides])

    for number in range(13):
        operators = number + (number == 12)  # the last file has 12 operators and more
        if number < 7:
            # All seven relations occur among few operators too.
            labels = [*"=<>^|v#"] if number in (2, 3) else []
            lines = [line(number, label) for label in [*labels, *[None] * 8]]
            write(f"logical_inference/train{number}", lines)
        write(f"logical_inference/test{number}", [line(operators, None) for _ in range(4)])


def listops() -> None:
    def expression(depth: int) -> str:
        operator = DRAW.choice(["[MAX", "[MIN", "[MED", "[SM"])
        words = operator
        for index in range(DRAW.randint(2, 4)):
            deeper = depth > 1 and (index == 0 or DRAW.random() < 0.3)
            words = f"( {words} {expression(depth - 1) if deeper else DRAW.randrange(10)} )"
        return f"( {words} ] )"

    for name, deepest in (("test_d8", 4), ("test_d14", 6), ("test_d20", 8)):
        lines = []
        for _ in range(50):
            text = expression(DRAW.randint(1, deepest))
            plain = " ".join(word for word in text.split() if word not in "()")
            lines.append(f"{evaluate(plain)[0]}\t{text}")
        write(f"listops/{name}.tsv", lines)


def long_lookup_tables() -> None:
    """Two variants; of every set a few pairs, of train all of one table."""
    draw = Draw(1)
    tables = make_tables(draw)
    lookups = {
        part: [one for one in some if len(one.tables) == 1] + some[:: max(1, len(some) // 6)]
        for part, some in make_lookups(draw).items()
    }
    for folder, name, some in (
        ("long", "long", lookups),
        ("noisy_single", "noisy", add_noise(draw, lookups)),
    ):
        variant = VARIANTS[name]
        for part, shown in some.items():
            lines = []
            for lookup in dict.fromkeys(shown):
                fields = [" ".join(variant.write(lookup)), lookup.target(tables)]
                # As published: only this variant has the gold attention.
                if name == "long":
                    fields.append(" ".join(map(str, variant.attention(lookup))))
                lines.append("\t".join(fields))
            write(f"long_lookup_tables/{folder}/{file_name(part)}", lines)


SUBJECTS = [("Two men", "Zwei Männer"), ("A girl", "Ein Mädchen"), ("The dog", "Der Hund")]
DOINGS = [("wait", "warten"), ('say "no"', "sagen „nein“"), ("look at the sea", "sehen aufs Meer")]
PLACES = [
    ("in the park.", "im Park."),
    ("near St. Paul's.", "bei St. Pauli."),
    (", too!", "auch!"),
]


def translation() -> None:
    """Sentences in two languages, whose grammar is nobody's concern here."""
    rows = [zip(s, d, p) for s in SUBJECTS for d in DOINGS for p in PLACES]
    pairs = [tuple(" ".join(words) for words in row) for row in rows]
    # One side far longer than the other: no pair to train on.
    pairs.append(("Yes.", "Ja, es ist so, wie du sagst."))
    for side, language in enumerate(("en", "de")):
        write(f"multi30k/sentences.{language}", [pair[side] for pair in pairs])
        tokens = [re.sub(r'(["„“,!]|\.$)', r" \1 ", pair[side]) for pair in pairs]
        tokens = [text.replace("'s", " &apos;s").replace('"', "&quot;") for text in tokens]
        write(f"wmt14_ende/sentences.{language}", [" ".join(text.split()) for text in tokens])


if __name__ == "__main__":
    for make in (
        *(scan, cfq, cogs, pcfg_set, inference, listops, long_lookup_tables),
        translation,
    ):
        DRAW.seed(make.__name__)
        make()
