"""From raw text to symbols and back: what is a perfect inverse, what nearly is, and bad input."""

from __future__ import annotations

import gzip
import io
import json
import pickle
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceTrainer
from subword_nmt.learn_bpe import learn_bpe

from sut_data.errors import InputError
from sut_data.files import read_lines
from sut_data.sets.parallel_text import tell_unknown_languages
from sut_data.text import tokenization
from sut_data.text.tokenization import FILE, TextSide, load_tokenization, save_tokenization

CORPUS = [
    *("the", "lower", "lowest", "newer", "newest", "widest", "low", "new", "wider"),
    *("the", "der", "die", "das", "größte", "@@", "a@@", ".", ","),
]

# Any text a UTF-8 file can hold, and text made of what the two kinds of subwords could trip over.
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
TRAPS = st.lists(
    st.sampled_from(
        ["@", "@@", " ", "a", "low", "</w>", "<unk>", "\\", "\u0085", "&", "(", "_", "²"]
    )
)
TEXT = ANY_TEXT | TRAPS.map("".join)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TextSide]:
    """A side of each kind, its model learnt on a few words."""
    folder = tmp_path_factory.mktemp("models")
    with open(folder / "subwords.bpe", "w", encoding="utf-8") as codes:
        learn_bpe(io.StringIO(" ".join(CORPUS * 3)), codes, 30)
    SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(CORPUS)] * 20),
        model_prefix=str(folder / "subwords"),
        vocab_size=60,
        hard_vocab_limit=False,
        normalization_rule_name="identity",
        minloglevel=2,
    )
    return {
        "words": TextSide(),
        "symbols": TextSide(None, "symbols"),
        "bpe": TextSide(None, "bpe", folder / "subwords.bpe"),
        "sentencepiece": TextSide(None, "sentencepiece", folder / "subwords.model"),
    }


@pytest.mark.parametrize("kind", ["words", "symbols", "bpe", "sentencepiece"])
def test_join_undoes_segment(models: dict[str, TextSide], kind: str) -> None:
    side = models[kind]

    @settings(deadline=None)
    @given(TEXT)
    @example("low@@ @@ est @@@ a@@")
    def check(text: str) -> None:
        tokens = " ".join(text.split())
        if kind in ("symbols", "sentencepiece"):
            tokens = tokens.replace("\u2581", "")
            tokens = " ".join(tokens.split())
        symbols = side.segment(tokens)
        assert symbols.split(" ") == (symbols.split() or [""])
        assert side.join(symbols) == tokens
        assert side.decode(side.encode(text.replace("\u2581", ""))) == " ".join(
            text.replace("\u2581", "").split()
        )

    check()


@pytest.mark.parametrize(
    ("text", "symbols"),
    [
        ("answer(city(loc_2(usa)))", "answer ( city ( loc_2 ( usa ) ) )"),
        ("f(x, y) >= 3.14", "f ( x , \u2581 y ) \u2581 > = \u2581 3 . 14"),
        ("what is the capital of texas ?", "what is the capital of texas \u2581 ?"),
    ],
)
def test_formal_languages_are_split_at_symbols(text: str, symbols: str) -> None:
    side = TextSide(None, "symbols")
    assert side.encode(text) == symbols
    assert side.decode(symbols) == text


def test_words_are_cut(models: dict[str, TextSide]) -> None:
    assert models["bpe"].segment("newest lower") == "newest lower"
    assert models["bpe"].segment("lowest xlow") == "lowest x@@ low"
    assert models["sentencepiece"].segment("xlow").startswith("\u2581")
    # What a model writes need not be well formed.
    assert models["bpe"].join("x@@ low@@") == "xlow"
    assert models["sentencepiece"].join("\u2581 \u2581x \u2581low") == "x low"


def test_words_that_were_cut_are_not_remembered_for_ever(
    models: dict[str, TextSide], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenization, "_MAX_CACHED_WORDS", 50)
    side = models["bpe"]
    for number in range(1000):
        assert side.join(side.segment(f"low{number}")) == f"low{number}"
        assert len(side._bpe.cache) <= 51


MOSES = [TextSide(language) for language in ("en", "de", "fr", "zh", "xx")]


@settings(deadline=None)  # tables of characters are made at the first call
@given(TEXT, st.sampled_from(MOSES))
def test_moses_takes_any_text(text: str, side: TextSide) -> None:
    tokens = side.tokenize(text)
    assert tokens == " ".join(tokens.split())
    assert not set(tokens) & set("\x00\x7f\xad\u200b\ufeff")
    assert "\n" not in side.detokenize(tokens)


def test_moses_tokens() -> None:
    side = TextSide("en")
    tokens = "It &apos;s &quot; well-made , &quot; Mr. X paid \u00a3 1,000.5 ."
    assert (
        side.tokenize(" It\u2019s  \u201ewell-\u00admade\u201c, Mr. X paid \u00a31,000.5.\r")
        == tokens
    )
    assert side.detokenize(tokens) == 'It\'s "well-made," Mr. X paid \u00a31,000.5.'


@pytest.mark.parametrize(
    ("language", "text", "tokens"),
    [
        ("de", "rund 10\u00a0000\u00a0Euro\u00a0", "rund 10,000 Euro"),
        ("en", "about 10\u00a0000 \u00a0euros", "about 10.000 euros"),
        (None, "rund 10\u00a0000 Euro", "rund 10 000 Euro"),
    ],
)
def test_moses_reads_no_break_spaces(language: str | None, text: str, tokens: str) -> None:
    """Within numbers they stand for what separates thousands; elsewhere they are spaces."""
    assert TextSide(language).tokenize(text) == tokens


@pytest.mark.parametrize(("name", "pairs"), [("val", 1014), ("test_2016_flickr", 1000)])
@pytest.mark.parametrize("language", ["en", "de"])
def test_nearly_all_real_sentences_survive(
    shared_data: Path, name: str, pairs: int, language: str
) -> None:
    path = shared_data / "multi30k" / f"{name}.{language}.gz"
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        lines = [line.strip() for line in stream]
    side = TextSide(language)
    survive = sum(side.decode(side.encode(line)) == line for line in lines)
    assert len(lines) == pairs
    assert survive >= 0.993 * pairs  # Moses moves a few quotation marks


@pytest.mark.parametrize("language", ["en", "de"])
def test_sentences_of_the_sample_survive(
    samples: Path, models: dict[str, TextSide], language: str
) -> None:
    side = TextSide(language)
    lines = [*read_lines(samples / "multi30k" / f"sentences.{language}")]
    # Moses sets no space before a comma, and writes quotation marks of one kind.
    readable = [line.replace(" ,", ",").replace("„", '"').replace("“", '"') for line in lines]
    assert [side.decode(side.encode(line)) for line in lines] == readable
    assert [
        models["sentencepiece"].decode(models["sentencepiece"].encode(x)) for x in lines
    ] == lines


def test_real_sentences_survive_sentencepiece(
    shared_data: Path, models: dict[str, TextSide]
) -> None:
    side = models["sentencepiece"]  # learnt on other words: most of these are spelt out
    with gzip.open(shared_data / "multi30k" / "val.de.gz", "rt", encoding="utf-8") as stream:
        for line in stream:
            assert side.decode(side.encode(line)) == " ".join(line.split())


def test_a_folder_can_be_moved(models: dict[str, TextSide], tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    codes = models["bpe"].model
    assert codes is not None
    (folder / "codes").write_bytes(codes.read_bytes())
    sides = {"src": TextSide("en", "bpe", folder / "codes"), "tgt": TextSide("de")}
    save_tokenization(folder, sides)
    assert load_tokenization(folder) == sides
    assert str(tmp_path) not in (folder / FILE).read_text(encoding="utf-8")
    assert sorted(path.name for path in folder.iterdir()) == ["codes", FILE]
    moved = folder.rename(tmp_path / "moved")
    assert load_tokenization(moved)["src"].encode("Low, x.") == "L@@ o@@ w , x ."
    assert load_tokenization(tmp_path) == {"src": TextSide(), "tgt": TextSide()}


def test_a_side_can_be_sent_to_another_process(models: dict[str, TextSide]) -> None:
    for side in (*models.values(), TextSide("de")):
        assert pickle.loads(pickle.dumps(side)).encode("newest") == side.encode("newest")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("english", "words", None), "`english` is not a code of two or three small letters"),
        (("en", "letters", None), "`letters` is no kind of subwords"),
        (("en", "bpe", None), "`bpe` needs a model file"),
        (("en", "words", Path("x")), "`words` takes no model file"),
    ],
)
def test_bad_sides_are_refused(arguments: tuple[str, str, Path | None], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        TextSide(*arguments)


@pytest.mark.parametrize("kind", ["bpe", "sentencepiece"])
@pytest.mark.parametrize("content", [None, b"", b"a b c\n", b"\xff\xfe\x00"])
def test_bad_models_are_refused(tmp_path: Path, kind: str, content: bytes | None) -> None:
    model = tmp_path / "model"
    if content is not None:
        model.write_bytes(content)
    with pytest.raises(InputError, match="model"):
        TextSide(None, kind, model).segment("some words")


def test_what_cannot_be_saved_is_refused(models: dict[str, TextSide], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="copy it there first"):
        save_tokenization(tmp_path, {"src": models["bpe"], "tgt": TextSide()})
    with pytest.raises(InputError, match="`tgt` is missing"):
        save_tokenization(tmp_path, {"src": TextSide()})
    assert not list(tmp_path.iterdir())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["en", "bpe", "words"]),
    lambda children: (
        st.lists(children)
        | st.dictionaries(
            st.sampled_from(["src", "tgt", "language", "subwords", "model"]) | st.text(), children
        )
    ),
)
ENTRY = st.fixed_dictionaries({"language": JSON, "subwords": JSON, "model": JSON})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged")


@settings(deadline=None)
@given(
    content=JSON.map(json.dumps)
    | st.text()
    | st.fixed_dictionaries({"src": ENTRY, "tgt": ENTRY}).map(json.dumps)
)
def test_a_damaged_file_is_refused(folder: Path, content: str) -> None:
    (folder / FILE).write_text(content, encoding="utf-8")
    try:
        sides = load_tokenization(folder)
    except InputError:
        return
    assert sides.keys() == {"src", "tgt"}


def test_an_absent_model_is_refused(models: dict[str, TextSide], tmp_path: Path) -> None:
    (tmp_path / "codes").touch()
    save_tokenization(
        tmp_path, dict.fromkeys(("src", "tgt"), TextSide("en", "bpe", tmp_path / "codes"))
    )
    (tmp_path / "codes").unlink()
    with pytest.raises(InputError, match="names codes, which is not there"):
        load_tokenization(tmp_path)


def test_languages_without_moses_rules_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Theirs would be the English ones, even where `en` was meant and mistyped."""
    tell_unknown_languages("x", ["de", "zh", "ja"])
    assert capsys.readouterr().err == ""
    tell_unknown_languages("x", ["uk", "en", "uk"])
    sentence = "x: Moses has no rules for `uk`, so those for English apply.\n"
    assert capsys.readouterr().err == sentence
