"""`sut-bleu`: score translations of fairseq-generate with BLEU and chrF."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import sacrebleu
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.base import Metric

from sut_data.command_line import Parser
from sut_data.tables import table
from sut_data.text.tokenization import TextSide, load_direction
from sut_data.waiting import waiting
from sut_fairseq.cli._command import add_languages, print_json, run_command
from sut_fairseq.cli._generated import (
    count_sentences,
    find_languages,
    first_difference,
    read_generated,
    read_lines,
)
from sut_fairseq.errors import InputError
from sut_fairseq.experiments.provenance import stamp_of

# As in the script behind the published scores: the second hyphen of `a-b-c` is not split, because
# its left neighbour belongs to the match before. ASCII: other white space is part of a word.
_COMPOUND = re.compile(r"(\S)-(\S)", re.ASCII)


@dataclass(frozen=True)
class TranslationScores:
    """Scores of the translations of one data set; all from 0 to 100, higher is better.

    Attributes:
        sentences: number of sentences, which is that of the data set.
        tokens: what the tokenised scores count: "Moses (de)", or "words as they stand".
        tokenized_bleu: see `tokenized_bleu`.
        tokenized_bleu_compound_split: the same after `split_compounds` on both sides.
        sacrebleu, sacrebleu_signature: BLEU of detokenised text, which sacreBLEU tokenises itself
            (13a), so that it does not depend on the preparation; and how it was computed.
        chrf, chrf_signature: chrF2, the F-score of character n-grams, of the same text.
        references: what `sacrebleu` and `chrf` compare with: "raw", the text before any
            preparation, or "detokenized", where there is no other.
    """

    sentences: int
    tokens: str
    tokenized_bleu: float
    tokenized_bleu_compound_split: float
    sacrebleu: float
    sacrebleu_signature: str
    chrf: float
    chrf_signature: str
    references: str

    def __str__(self) -> str:
        rows = [
            ("tokenized_bleu", self.tokenized_bleu, self.tokens),
            ("tokenized_bleu_compound_split", self.tokenized_bleu_compound_split, self.tokens),
            ("sacrebleu", self.sacrebleu, self.sacrebleu_signature),
            ("chrf", self.chrf, self.chrf_signature),
        ]
        lines = table([(name, f"{score:.2f}", note) for name, score, note in rows], "<><")
        against = f"sacrebleu and chrf against the {self.references} references"
        return "\n".join([lines, f"{self.sentences:,} sentences; {against}"])


def tokenized_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """BLEU of tokenised text, as `multi-bleu.perl` computes it.

    Compares the model's output with the prepared reference, both with subwords joined and in the
    tokens of the preparation (Moses, or words as they stand), cased and split only at spaces. Up
    to 4-grams, one reference, no smoothing: 0 if no 4-gram matches. It depends on the tokenisation,
    so compare it only with scores on the same tokens.
    """
    bleu = sacrebleu.corpus_bleu(
        list(hypotheses), [list(references)], tokenize="none", force=True, smooth_method="none"
    )
    return float(bleu.score)


def split_compounds(line: str) -> str:
    """Split hyphenated words into three: `a-b` becomes `a ##AT##-##AT## b`.

    Published WMT scores on tokenised text use this; it raises BLEU, because the parts of a compound
    count as words that match.
    """
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", line)


def _detokenized(
    metric: Metric, hypotheses: Sequence[str], references: Sequence[str]
) -> tuple[float, str]:
    """Score of plain detokenised text, and the metric's signature."""
    score = metric.corpus_score(list(hypotheses), [list(references)])
    return float(score.score), str(metric.get_signature())


def score_translations(
    pairs: Sequence[tuple[str, str]],
    prepared: Sequence[str],
    raw: Sequence[str] | None,
    side: TextSide,
) -> TranslationScores:
    """All scores of the translations of a data set.

    Args:
        pairs: reference and hypothesis of each sentence, as fairseq-generate printed them.
        prepared: the prepared references, in subwords.
        raw: the references before any preparation; None if they are not kept.
        side: joins and detokenises the target language.

    Raises:
        InputError: the references of `pairs` are not the prepared ones.
    """
    references = [side.join(line) for line in prepared]
    printed = [reference for reference, _ in pairs]
    hypotheses = [hypothesis for _, hypothesis in pairs]
    in_subwords = first_difference(printed, prepared)
    if in_subwords is None:
        hypotheses = [side.join(hypothesis) for hypothesis in hypotheses]
    elif first_difference(printed, references) is not None:
        raise InputError(
            f"The reference of sentence {in_subwords} in the generated file, "
            f"`{_short(printed[in_subwords])}`, is not that of the data, "
            f"`{_short(prepared[in_subwords])}`: name with --data and --gen-subset what was "
            f"translated, and generate without --tokenizer and --bpe."
        )
    plain = [side.detokenize(hypothesis) for hypothesis in hypotheses]
    against = [side.detokenize(line) for line in references] if raw is None else list(raw)
    bleu, bleu_signature = _detokenized(BLEU(), plain, against)
    characters, chrf_signature = _detokenized(CHRF(), plain, against)
    return TranslationScores(
        sentences=len(pairs),
        tokens="words as they stand" if side.language is None else f"Moses ({side.language})",
        tokenized_bleu=tokenized_bleu(hypotheses, references),
        tokenized_bleu_compound_split=tokenized_bleu(
            [split_compounds(line) for line in hypotheses],
            [split_compounds(line) for line in references],
        ),
        sacrebleu=bleu,
        sacrebleu_signature=bleu_signature,
        chrf=characters,
        chrf_signature=chrf_signature,
        references="detokenized" if raw is None else "raw",
    )


def score_file(
    generated: str | Path,
    data: str | Path,
    subset: str = "test",
    source_lang: str | None = None,
    target_lang: str | None = None,
) -> TranslationScores:
    """Score the output of fairseq-generate.

    Args:
        generated: file with its standard output.
        data: data folder that was generated from, made by a script of `data-prep`.
        subset: its subset.
        source_lang, target_lang: languages; from the file names when not given.

    Raises:
        InputError: the output is incomplete or of other data, the folder has no text, or its stamp
            is damaged.
    """
    expected = count_sentences(data, subset, source_lang, target_lang)
    source, target = find_languages(data, source_lang, target_lang)
    pairs = read_generated(generated, expected)
    text = Path(data) / "text"
    prepared = read_lines(text / f"{subset}.{target}", expected)
    if prepared is None:
        raise InputError(
            f"There is no `{text / f'{subset}.{target}'}`, the text that was binarised; give a "
            f"folder that a script of data-prep made."
        )
    raw = None
    if not stamp_of(Path(data)).get("made_from", {}).get("tokenized"):  # then nothing is raw
        raw = read_lines(text / f"{subset}.raw.{target}", expected)
    _, side = load_direction(Path(data), str(source), str(target))
    return score_translations(pairs, prepared, raw, side)


def _short(line: str) -> str:
    return line if len(line) <= 60 else line[:57] + "..."


def make_parser() -> Parser:
    """Return the command line."""
    parser = Parser(
        "sut-bleu",
        description="Score what fairseq-generate printed, subwords included: BLEU on tokens, the "
        "same with hyphenated compounds split, sacreBLEU and chrF on detokenised text. A missing "
        "sentence is an error, never a better score.",
        examples=[
            "sut-bleu generated.txt --data data-bin/mine",
            "sut-bleu generated.txt --data data-bin/multi30k --gen-subset test_2017_flickr --json",
        ],
    )
    parser.add_argument(
        "generated", metavar="GENERATED", help="standard output of fairseq-generate, in a file"
    )
    parser.add_argument(
        "--data",
        metavar="DATA-BIN",
        required=True,
        help="folder that was translated, made by sut-prepare",
    )
    parser.add_argument(
        "--gen-subset",
        "--subset",
        default="test",
        metavar="SPLIT",
        help="set that was translated (default: %(default)s)",
    )
    add_languages(parser, "from the file names")
    parser.add_argument(
        "--json", action="store_true", help="print all scores and signatures as JSON"
    )
    return parser


def _main(argv: Sequence[str] | None) -> None:
    arguments = make_parser().parse_args(argv)
    with waiting("scoring"):
        scores = score_file(
            arguments.generated,
            arguments.data,
            arguments.gen_subset,
            arguments.source_lang,
            arguments.target_lang,
        )
    if arguments.json:
        print_json(asdict(scores))
    else:
        print(scores)


def main(argv: Sequence[str] | None = None) -> int:
    """Score a generated file and print the result; returns the exit code."""
    return run_command("sut-bleu", lambda: _main(argv))


if __name__ == "__main__":
    sys.exit(main())
