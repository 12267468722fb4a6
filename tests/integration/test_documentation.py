"""What the pages promise: their commands run, their links lead somewhere, the site is built."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from sut_data.commands import commands
from sut_data.folders.choosing import choose
from sut_data.folders.training import experiment_command, training_words, user_dir
from sut_data.text.treatment import Counts
from tests.documented import blocks, run_page
from tests.integration.commands import run, run_installed, words

FAIRSEQ = ["fairseq-train", "fairseq-generate", "fairseq-validate"]
SMALL = words("--encoder-embed-dim 32 --encoder-ffn-embed-dim 16 --encoder-layers 2")
SHORT = words("--max-update 3 --validate-interval-updates 1 --save-interval-updates 1")
MOST_LINES_OF_THE_README = 120


def shorten(name: str, arguments: list[str]) -> list[str]:
    """A small model and three updates instead of a training."""
    if name == "fairseq-train":
        decaying = words("--total-num-update 3") if "--total-num-update" in arguments else []
        return [*arguments, *SMALL, *SHORT, *decaying, *words("--cpu --num-workers 0")]
    if name in FAIRSEQ:
        return [*arguments, "--cpu", "--num-workers", "0"]
    if name == "sut-experiment" and arguments[0] == "train":
        end = arguments.index("--") if "--" in arguments else len(arguments)
        ours, own = arguments[:end], arguments[end + 1 :]
        return [*ours, "--updates", "3", "--", *own, *SMALL]
    return arguments


@pytest.fixture
def folder(samples: Path, tmp_path: Path) -> Path:
    """A folder with `train.de`, ..., `test.en`: what the pages call the reader's own text."""
    for language in ("de", "en"):
        lines = (samples / "multi30k" / f"sentences.{language}").read_text().splitlines()
        parts = {"train": lines[:20], "valid": lines[20:24], "test": lines[24:]}
        for part, sentences in parts.items():
            (tmp_path / f"{part}.{language}").write_text("\n".join(sentences) + "\n")
    return tmp_path


def check(page: Path, folder: Path) -> str:
    done = run_page(page, folder, [*commands(), *FAIRSEQ], shorten)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_commands_of_the_readme(repository: Path, folder: Path) -> None:
    output = check(repository / "README.md", folder)
    assert (folder / "runs/mine/checkpoints/checkpoint_best.pt").exists()
    assert output.splitlines()[-2].startswith("evaluate it: sut-experiment evaluate")
    readme = (repository / "README.md").read_text().splitlines()
    assert len(readme) <= MOST_LINES_OF_THE_README


@pytest.mark.slow
def test_the_commands_of_the_tutorial(repository: Path, folder: Path) -> None:
    output = check(repository / "docs" / "tutorial.md", folder)
    assert "sacreBLEU" in output and "MACs with attention products" in output
    assert len((folder / "test.translated").read_text().splitlines()) == 4
    assert (folder / "thresholds.png").exists() and [*(folder / "pictures").rglob("*.png")]
    assert "Ein Hund" in (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_fairseqs_own_commands(repository: Path, folder: Path) -> None:
    run(
        "sut-prepare", "parallel_text", *words("--train train.de train.en --valid valid.de"),
        *words("valid.en --test test.de test.en --bpe 200 --joined --out data-bin/mine"),
        cwd=folder,
    )  # fmt: skip
    for split in ("train", "valid", "test"):
        sentences = (folder / f"{split}.de").read_text(encoding="utf-8")
        (folder / f"{split}.txt").write_text(sentences, encoding="utf-8")
        labels = ("long\n" if len(line) > 50 else "short\n" for line in sentences.splitlines())
        (folder / f"{split}.label").write_text("".join(labels))
    for language in ("de", "en"):  # what is fine-tuned on
        for news, split in (("news", "test"), ("news_valid", "valid")):
            (folder / f"{news}.{language}").write_bytes(
                (folder / f"{split}.{language}").read_bytes()
            )
    output = check(repository / "docs" / "fairseq.md", folder)
    assert "chrf" in output and "exact match" in output
    assert "--arch sut_classifier_tiny" in output and "accuracy" in output
    assert len([*(folder / "checkpoints/mine").iterdir()]) <= 8
    assert (folder / "average.pt").exists()
    assert (folder / "checkpoints/news/checkpoint_best.pt").exists()

    # The Python of other pages asks a model in the same place.
    for page in ("python.md", "pictures.md"):
        found = blocks(repository / "docs" / page)
        code = [one.code for one in found if one.language == "python" and not one.reason]
        assert code
        run("python", "-c", "\n".join(code), cwd=folder)

    # What the page on troubleshooting says of a command without --user-dir, in a process that has
    # not imported the plugin.
    path = folder / "checkpoints/mine/checkpoint_best.pt"
    generate = ("fairseq-generate", folder / "data-bin/mine", "--path", path, "--cpu")
    failed = run_installed(*generate, ok=False)
    assert failed.status != 0
    assert failed.last_line in (repository / "docs" / "troubleshooting.md").read_text()


def test_the_documented_trainings_are_those_that_are_printed(repository: Path) -> None:
    """For the 29,000 pairs of Multi30k, without a GPU."""
    counts = {"train": Counts(29_000, 60, 60, 0, 0)}
    plan = choose(29_000, 455_190, 61, gpus=0)
    out = Path("data-bin/mine")
    line = experiment_command(out, counts, plan, joined=True)
    for page in ("README.md", "docs/tutorial.md"):
        found = "\n".join(block.code for block in blocks(repository / page))
        assert [one for one in found.splitlines() if " train parallel_text" in one][0] == line

    printed = [word for line in training_words(out, counts, plan, joined=True) for word in line]
    (code,) = [
        block.code
        for block in blocks(repository / "docs" / "fairseq.md")
        if block.code.startswith("fairseq-train data-bin/mine")
    ]
    documented = shlex.split(code.replace("\\\n", " "))
    documented[documented.index("--user-dir") + 1] = user_dir()
    printed[0] = "fairseq-train"
    printed.remove("--cpu")
    assert documented == printed


def test_blocks_that_are_not_run_say_why(repository: Path) -> None:
    for page in ("README.md", "docs/tutorial.md", "docs/fairseq.md"):
        found = blocks(repository / page)
        assert found
        assert len([block for block in found if block.reason]) <= 2
        fences = re.findall(r"^ *```(.*)", (repository / page).read_text(encoding="utf-8"), re.M)
        others = [kind for kind in fences[::2] if kind not in ("sh", "bash", "python")]
        assert set(others) <= {"", "bibtex"} and len(found) + len(others) == len(fences) / 2


def test_links_lead_somewhere(repository: Path) -> None:
    pages = [*repository.glob("*.md"), *(repository / "docs").glob("*.md")]
    on_the_site = {"options.md", "commands.md", "benchmark_tables.md"}
    for page in pages:
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)#\s]+)", text):
            if "://" not in target and target not in on_the_site:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_table_of_benchmarks_is_that_of_the_raw_files(repository: Path) -> None:
    script = repository / "scripts" / "benchmark_table.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_citation(repository: Path) -> None:
    citation = yaml.safe_load((repository / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0" and citation["authors"]
    for paper in citation["references"]:
        assert paper["title"] and paper["year"] and len(paper["authors"]) >= 3
    version = re.search(r'version="([^"]+)"', (repository / "setup.py").read_text())
    assert version is not None and citation["version"] == version[1]


@pytest.mark.skipif(find_spec("mkdocstrings") is None, reason="needs the extra [docs]")
def test_the_site_is_built_without_a_warning(repository: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    run("mkdocs", "build", "--strict", "--site-dir", site, cwd=repository)
    for page, text in (
        ("index.html", "Sparse Universal Transformer"),
        ("options.html", "--mutual-information-weight"),
        ("commands.html", "sut-translate"),
        ("api.html", "StickBreakingHalting"),
        ("benchmark_tables.html", "to_transformer"),
    ):
        assert text in (site / page).read_text(encoding="utf-8"), page
    # Nothing is loaded from other servers.
    loaded = re.findall(
        r'<(?:script|link)[^>]+(?:src|href)="(https?:[^"]+)"', (site / "index.html").read_text()
    )
    assert loaded == []
