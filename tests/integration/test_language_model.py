"""Language models by fairseq's own commands: train, resume, score, generate."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from sut_fairseq.errors import InputError
from sut_fairseq.models.language_model import (
    LanguageModelConfig,
    UniversalTransformerLanguageModel,
)
from tests.integration.commands import SIZES, USER_DIR, on_cpu, run, train, words

LM = words("--task language_modeling --sample-break-mode eos --tokens-per-sample 32")
SMALL = words(
    "--arch compositional_lm --decoder-embed-dim 16 --decoder-ffn-embed-dim 16 --decoder-layers 2 "
    "--decoder-attention-heads 2 --attention-retrievals 2 --attention-retrieval-dim 4 "
    "--decoder-halting stick-breaking --ffn-experts 3 --ffn-top-k 2"
)


@pytest.fixture(scope="module")
def words_only(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the pairs as text, one sentence a line."""
    out = tmp_path_factory.mktemp("language") / "data"
    splits = [word for split in SIZES for word in (f"--{split}pref", text / f"{split}.src")]
    run("fairseq-preprocess", "--only-source", *splits, "--destdir", out)
    return out


def test_train_score_generate(words_only: Path, text: Path, tmp_path: Path) -> None:
    first = train(words_only, tmp_path, *LM, *SMALL, "--expected-depth-weight", 0.1)
    (valid,) = first.logged("valid")
    assert {"valid_ppl", "valid_expected_depth_loss", "valid_decoder_depth"} <= valid.keys()
    assert "valid_exact_match" not in valid
    resumed = train(words_only, tmp_path, *LM, *SMALL, "--max-update", 3)
    assert [line["num_updates"] for line in resumed.logged("train_inner")] == ["3"]

    checkpoint = tmp_path / "checkpoint_last.pt"
    scored = on_cpu(
        "fairseq-eval-lm", words_only, "--path", checkpoint, *LM[2:], "--batch-size", 4,
        "--gen-subset", "test",
    )  # fmt: skip
    logged = scored.stderr + scored.stdout
    read = (text / "test.src").read_text().split()
    assert f"Evaluated {len(read) + SIZES['test']:,} tokens" in logged and "Perplexity" in logged

    prompt = read[0]
    generated = run(
        "fairseq-interactive", words_only, "--user-dir", USER_DIR, "--cpu", "--path", checkpoint,
        *LM[:2], "--beam", 2, "--max-len-a", 0, "--max-len-b", 6,
        "--model-overrides", "{'alpha_threshold': 0.5}", stdin=f"{prompt}\n",
    )  # fmt: skip
    (hypothesis,) = [line for line in generated.stdout.splitlines() if line.startswith("H-0")]
    assert hypothesis.split("\t")[2].split()[0] == prompt

    place = (str(tmp_path), checkpoint.name, str(words_only))
    loaded = (
        "from sut_fairseq.models import UniversalTransformerLanguageModel as Model\n"
        f"hub = Model.from_pretrained(*{place!r})\n"
        f"print('answer:', hub.sample({prompt!r}, max_len_b=6))\n"
    )
    assert f"answer: {prompt}" in run("python", "-c", loaded).stdout

    moved = words_only.rename(words_only.with_name("moved"))
    count = ("sut-macs", "--path", checkpoint, "--src-len", 5)
    assert "name the folder of the prepared data with --data" in run(*count, ok=False).last_line
    found = json.loads(run(*count, "--data", moved, "--json").stdout)
    assert (found["sentences"], found["source_tokens"], found["target_tokens"]) == (1, 5, 0)
    for command, options, sentence in (
        (
            "sut-evaluate",
            (),
            "language models have no sentences to get right: use fairseq-eval-lm.",
        ),
        (
            "sut-macs",
            ("--gen-subset", "test"),
            "of a language model random tokens are counted: leave --gen-subset out.",
        ),
    ):
        refused = run(command, "--path", checkpoint, "--data", moved, *options, ok=False)
        assert refused.status == 2 and refused.last_line == f"{command}: error: {sentence}"
    moved.rename(words_only)
    translated = run("sut-translate", checkpoint, ok=False)
    assert "is a language model, which translates nothing: load it with" in translated.last_line
    drawn = run("sut-report", "--path", checkpoint, "--out", tmp_path, ok=False)
    assert "--path is a language model, which answers nothing" in drawn.last_line


def test_only_the_next_token_is_predicted() -> None:
    task = SimpleNamespace(targets=["future", "self"])
    with pytest.raises(InputError, match="the next token of a text only: leave --self-target out"):
        UniversalTransformerLanguageModel.build_model(LanguageModelConfig(), task)


def test_macs_are_those_of_a_transformer_of_the_same_sizes() -> None:
    """Beside biases, a shared block costs in each step what a layer of its own does."""
    macs = {
        arch: json.loads(run("sut-macs", "--arch", arch, "--vocab-size", 99, "--json").stdout)
        for arch in ("ut_lm", "transformer_lm")
    }
    assert macs["ut_lm"]["macs"] == pytest.approx(macs["transformer_lm"]["macs"], rel=0.002)
    assert macs["ut_lm"]["target_tokens"] == 0


@pytest.mark.parametrize("option", ["--tokens-per-sample", "--max-target-positions"])
def test_long_sentences_are_counted(option: str) -> None:
    """Options that a language model shares with its task."""
    count = ("sut-macs", "--vocab-size", 99, "--arch", "ut_lm", "--src-len", 1500)
    assert "between 1 and the model's maximum (1024)" in run(*count, ok=False).last_line
    assert json.loads(run(*count, option, 2048, "--json").stdout)["source_tokens"] == 1500
    assert option in run(*count, option, "many", ok=False).last_line
