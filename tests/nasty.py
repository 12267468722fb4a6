"""Lines of text that programs stumble over: real ones, and random ones of any characters."""

from __future__ import annotations

import random
from collections.abc import Iterator

# Text that decodes as UTF-8. Some have no word, some have more than one line for other programs.
NASTY = (
    *("", " ", "   ", "\t", "\xa0", "\u3000", "\u200b", "\ufeff", "\x00", "\x00\x00 \x00"),
    *("\x7f", "a\x00b", "a\rb", "\r", "a\u2028b", "a\u2029b", "a\x85b", "a\x0bb", "a\x0cb"),
    *("a\x1cb\x1db\x1eb", "\ufeffa", "a\ufeffb \ufeff", "\ufffe", "\uffff", "\U0010ffff"),
    *("\ue000", "\ufffd\ufffd", "\xad", "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd"),
    *("\u0627\u0644\u0633\u0644\u0627\u0645", "\u202eabc\u202c def", "\u2067abc"),
    *("a\u200fb\u200e", "\u061c", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"),
    *("e\u0301", "\u0301", "\u0301\u0301 a"),
    "Z\u0351\u036f\u0310\u0363a\u0322\u0315l\u0320\u031cg\u034fo\u035c",
    *("\u1100\u1161\u11a8", "\u0e01\u0e33", "\u0915\u094d\u0937"),
    *("\u0130 i\u0307 \u0131 \xdf \u1e9e \ufb01", "\U0001f468\u200d\U0001f469\u200d\U0001f467"),
    *("\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "\U0001f3fd", "<s>", "</s>", "<pad>", "<unk>"),
    *("<<unk>>", "</s> </s>", "a </s> b", "<mask>", "madeupword0000", "@@", "@@ @@", "a@@"),
    *("a@@ b", "@@a", "\u2581", "\u2581a \u2581", "a</w>", "</w>", "@-@", "&apos;"),
    *("&amp;amp; &#124; &lt;s&gt;", "| ||| |", "#fairseq:overwrite", "a #fairseq:overwrite"),
    *("T-0\tx", "H-0\t-1\tx", "a\tb", "\ta\t", "%s %d {} {0} $HOME `id` $(id)"),
    *("'; DROP TABLE x; --", '"\\', "\x1b[31mred\x1b[0m", "\x07", "\x08\x08"),
    *("\\u0000 \\n \\x00", "[[]]", "{'a': 1}", "null", "NaN", "1e999", "-0"),
    *("\u0661\u0662\u0663", "\u00bd \u2155", "\uff21\uff22", "\u1680", "\u180e", "\u2060a"),
    *("a" * 5000, "ab " * 3000, " " * 5000, "\u0301" * 3000, "." * 3000, "\U0001f600" * 2000),
    *("- " * 2000, "a.b.c.d.e.f.g.", "U.S.A. Mr. No. 1", "...", "?!?!", "it's 'it' \u2019s"),
    *("\u201e\u201c\u00bb\u00ab", "--"),
)  # fmt: skip

LONG = ("x" * 1_000_000, "word " * 200_000, " " * 1_000_000, "\u00e9" * 500_000)

# What is no UTF-8: halves of characters, surrogates, other encodings.
BROKEN = (
    *(b"\xff", b"caf\xe9", b"\xc3", b"\xc3\x28", b"\xed\xa0\x80", b"\xed\xb0\x80\xed\xa0\x80"),
    *(b"\xf4\x90\x80\x80", b"\xc0\x80", b"\xfe\xff\x00a", b"a\x80b", b"\xe2\x82", b"\xf0\x9f\x98"),
)

_SPACES = " \t\xa0\u2003\u3000\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\x1f\u1680"


def words(generator: random.Random) -> Iterator[str]:
    """Words of random characters, common and rare, and pieces of the lines above."""
    while True:
        kind = generator.random()
        if kind < 0.3:
            yield "".join(generator.choices("abcdefghijklmnop.,-'", k=generator.randint(1, 9)))
        elif kind < 0.6:
            yield "".join(character(generator) for _ in range(generator.randint(1, 6)))
        elif kind < 0.8:
            line = generator.choice(NASTY)
            start = generator.randrange(len(line) + 1)
            yield line[start : start + generator.randint(0, 20)]
        else:
            yield generator.choice(("the", "dog", "jump", "Haus", "</s>", "@@", "\u2581", "&", ""))


def character(generator: random.Random) -> str:
    """Any character but a line feed and surrogates."""
    highest = generator.choice((0x7F, 0x250, 0x3100, 0x10FFFF))
    code = generator.randint(0, highest)
    return " " if code == 10 or 0xD800 <= code < 0xE000 else chr(code)


def lines(count: int, seed: int) -> list[str]:
    """The given number of lines of text, without their ends: all nasty ones, then random ones."""
    generator = random.Random(seed)
    found = list(NASTY[:count])
    source = words(generator)
    while len(found) < count:
        space = generator.choice((" ", " ", " ", *_SPACES))
        found.append(space.join(next(source) for _ in range(generator.randint(0, 12))))
    generator.shuffle(found)
    return found
