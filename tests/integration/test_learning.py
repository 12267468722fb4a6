"""Real training reaches a score on a small task: the parts do not only agree, they learn."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sut_fairseq.models.recurrent_translation import (
    RecurrentTranslationConfig,
    RecurrentTranslationModel,
)
from sut_fairseq.tasks.searching import greedy_search
from tests.integration.commands import on_cpu, run, train, words
from tests.models import dictionary, small_model, task


def write_pairs(folder: Path, split: str, sentences: list[list[str]]) -> None:
    """Source: symbols; target: the same symbols in reverse, in capitals."""
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, lines in (
        ("src", [" ".join(sentence) for sentence in sentences]),
        ("tgt", [" ".join(sentence).upper()[::-1] for sentence in sentences]),
    ):
        (folder / f"{split}.{suffix}").write_text("".join(line + "\n" for line in lines))


@pytest.fixture(scope="module")
def reversal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reversal")
    chance = random.Random(1)
    sentences = {tuple(chance.choices("abcdef", k=chance.randint(1, 5))) for _ in range(3000)}
    ordered = [list(sentence) for sentence in sorted(sentences)]
    chance.shuffle(ordered)
    for split, part in (
        ("train", ordered[150:]),
        ("valid", ordered[:50]),
        ("test", ordered[50:150]),
    ):
        write_pairs(folder, split, part)
    files = [
        word for split in ("train", "valid", "test") for word in (f"--{split}pref", folder / split)
    ]
    run("fairseq-preprocess", "-s", "src", "-t", "tgt", *files, "--destdir", folder / "bin")
    return folder / "bin"


@pytest.mark.slow
def test_learns_to_reverse(reversal: Path, tmp_path: Path) -> None:
    """Sentences never seen in training are reversed, with routing and halting on."""
    small = "--arch sut_tiny --encoder-embed-dim 64 --encoder-ffn-embed-dim 32 --encoder-layers 2"
    schedule = (
        "--decoder-layers 2 --max-update 250 --max-epoch 0 --batch-size 64 --lr 0.003 "
        "--lr-scheduler polynomial_decay --warmup-updates 30 --total-num-update 250 "
        "--clip-norm 1.0 --mutual-information-weight 0.001 --expected-depth-weight 0.0001 "
        "--no-epoch-checkpoints --validate-interval 1000 --log-interval 50"
    )
    train(reversal, tmp_path, *words(small), *words(schedule))
    finished = on_cpu(
        "fairseq-generate", reversal, "--path", tmp_path / "checkpoint_last.pt", "--beam", 1
    )
    targets = dict(re.findall(r"^T-(\d+)\t(.*)$", finished.stdout, re.MULTILINE))
    outputs = dict(re.findall(r"^H-(\d+)\t[^\t]*\t(.*)$", finished.stdout, re.MULTILINE))
    assert len(targets) == 100
    assert sum(outputs[i] == targets[i] for i in targets) >= 90


@pytest.mark.slow
def test_learns_a_tiny_table_lookup(tmp_path: Path) -> None:
    """The Neural Data Router learns 3 functions on 8 symbols, up to 3 in a row, every sample.

    So few samples are learned rather than generalised from; that longer ones follow from
    shorter ones takes the training of docs/results/index.md.
    """
    chance = random.Random(1)
    symbols = [f"{number:03b}" for number in range(8)]
    tables = {name: dict(zip(symbols, chance.sample(symbols, 8))) for name in "abc"}
    examples = []
    for length in (1, 2, 3):
        for functions in product("abc", repeat=length):
            for symbol in symbols:
                result = symbol
                for name in functions:
                    result = tables[name][result]
                examples.append(([symbol, *functions], result))
    parts = {"train": examples, "valid": examples}
    for part, pairs in parts.items():
        for suffix, lines in (
            ("src", [" ".join(source) for source, _ in pairs]),
            ("tgt", [target for _, target in pairs]),
        ):
            (tmp_path / f"{part}.{suffix}").write_text("".join(line + "\n" for line in lines))
    files = [word for part in parts for word in (f"--{part}pref", tmp_path / part)]
    run("fairseq-preprocess", "-s", "src", "-t", "tgt", *files, "--destdir", tmp_path / "bin")
    finished = train(
        tmp_path / "bin",
        tmp_path / "run",
        *words("--task sequence_classification --criterion classification --arch ndr_ctl"),
        *words("--encoder-embed-dim 64 --encoder-ffn-embed-dim 128 --encoder-layers 6"),
        *words("--dropout 0.1 --activation-dropout 0 --optimizer adam --lr 0.001 --batch-size 64"),
        *words("--lr-scheduler fixed --warmup-updates 50 --clip-norm 5 --balance-lengths"),
        *words("--max-update 3000 --max-epoch 0 --no-epoch-checkpoints --validate-interval 1000"),
        *words("--validate-interval-updates 100 --best-checkpoint-metric accuracy"),
        "--maximize-best-checkpoint-metric",
    )
    accuracies = re.findall(r'"valid_accuracy": "([^"]*)"', finished.stdout + finished.stderr)
    assert max(map(float, accuracies)) == 100


def copies(
    length: int, number: int, generator: torch.Generator
) -> tuple[dict[str, Tensor], Tensor]:
    """Random words, and the target: a word for each of them, and the end."""
    source = torch.randint(4, 13, (number, length), generator=generator)
    end, target = torch.full((number, 1), 2), (source - 4) % 7 + 4
    inputs = {
        "src_tokens": torch.cat([source, end], dim=1),
        "src_lengths": torch.full((number,), length + 1),
        "prev_output_tokens": torch.cat([end, target], dim=1),
    }
    return inputs, torch.cat([target, end], dim=1)


def accuracy_of_copies(model: Any, updates: int, *lengths: int) -> list[float]:
    """Train on one to five words; the share of sentences of each length that are then right."""
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.train().parameters(), lr=0.005)
    for _ in range(updates):
        length = int(torch.randint(1, 6, (), generator=generator))
        inputs, target = copies(length, 32, generator)
        loss = F.cross_entropy(model(**inputs)[0].flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    found = []
    for length in lengths:
        inputs, target = copies(length, 100, generator)
        sample = {"net_input": inputs, "target": target}
        with torch.no_grad():
            answer, _ = greedy_search(model, sample, dictionary(7, "v"))
        answer = F.pad(answer, (0, target.shape[1] - answer.shape[1]), value=1)
        found.append(float((answer == target).all(dim=1).float().mean()))
    return found


@pytest.mark.parametrize(
    "options", [dict(attender="location"), dict(attender="mix", stop_gate=True)]
)
def test_a_recurrent_model_learns_to_copy(options: dict[str, Any]) -> None:
    torch.manual_seed(1)
    sizes = dict(encoder_hidden_size=32, encoder_embed_dim=16, location_hidden_size=6)
    config = replace(RecurrentTranslationConfig(), **sizes, **options, dropout=0.0)
    model = RecurrentTranslationModel.build_model(config, task())
    assert min(accuracy_of_copies(model, 220, 3, 5)) >= 0.9


def test_heads_by_location_copy_longer_sentences_than_those_of_training() -> None:
    """The paper's outlook: attention by location without recurrence."""
    found = {}
    for kind in ("location", "mix", "content"):
        model = small_model(
            cross_attention=kind,
            encoder_embed_dim=32,
            encoder_ffn_embed_dim=32,
            encoder_layers=1,
            decoder_layers=1,
            encoder_normalize_before=True,
            decoder_normalize_before=True,
            no_token_positional_embeddings=True,
            dtype=torch.float32,
        )
        (found[kind],) = accuracy_of_copies(model, 140, 9)
    assert found["location"] >= 0.9 and found["mix"] >= 0.9 and found["content"] <= 0.5
