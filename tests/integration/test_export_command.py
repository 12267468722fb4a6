"""`sut-export`: nothing changes on the way, nothing can run, everything reads it."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch

import sut_fairseq
from sut_fairseq.analysis import untrained
from sut_fairseq.checkpoints.exported import CONFIG, WEIGHTS
from sut_fairseq.checkpoints.reading import load_checkpoint
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import evaluating, records
from sut_fairseq.experiments.provenance import Code, Computer, Data
from sut_fairseq.experiments.records import Record, Session
from sut_fairseq.inference.card import model_card
from sut_fairseq.inference.export import export
from sut_fairseq.inference.files import ModelFiles, find_model
from tests.integration.commands import SIZES, generate, run, words

LINES = ["run and jump", "look twice and walk"]
OPTIONS = {"beam": 2, "max_len_b": 8}


@pytest.fixture(scope="module")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("export") / "mine"
    printed = run("sut-export", trained, "--out", out, "--license", "cc-by-4.0").stdout
    assert printed.startswith(f"wrote {out} (") and f"`sut-translate {out}`" in printed
    return out


def test_what_is_in_the_folder(exported: Path) -> None:
    names = {path.name for path in exported.iterdir()}
    assert names == {WEIGHTS, CONFIG, "README.md", "dict.src.txt", "dict.tgt.txt"}
    document = json.loads((exported / CONFIG).read_text())
    assert document["cfg"]["model"]["_name"] == "sut_tiny"
    assert not {"last_optimizer_state", "optimizer"} & document.keys()


def test_a_round_trip_changes_no_bit(trained: Path, exported: Path, tmp_path: Path) -> None:
    """Through both formats and back: the same bytes, the same tensors shared, the same settings."""
    export(find_model(trained), tmp_path / "direct", "pt")
    export(find_model(exported), tmp_path / "back", "pt")
    export(find_model(tmp_path / "back"), tmp_path / "again")
    for name in (WEIGHTS, CONFIG):
        assert (tmp_path / "again" / name).read_bytes() == (exported / name).read_bytes()
    direct, back = (
        load_checkpoint(tmp_path / name / "checkpoint.pt") for name in ("direct", "back")
    )
    assert back["cfg"] == direct["cfg"]
    assert back["optimizer_history"] == direct["optimizer_history"]
    assert list(back["model"]) == list(direct["model"])
    for key, tensor in direct["model"].items():
        other = back["model"][key]
        assert (tensor.dtype, tensor.shape) == (other.dtype, other.shape)
        assert tensor.numpy().tobytes() == other.numpy().tobytes()


def test_its_macs_are_counted_where_the_data_are_not(exported: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(exported, tmp_path / "mine")
    document = json.loads((folder / CONFIG).read_text())
    document["cfg"]["task"]["data"] = "/nowhere"
    (folder / CONFIG).write_text(json.dumps(document))
    counts = [
        run("sut-macs", "--path", path, "--src-len", 4, "--json").stdout
        for path in (exported, folder)
    ]
    assert counts[0] == counts[1]


def test_a_given_folder_counts_not_what_lies_beside(
    exported: Path, data: Path, tmp_path: Path
) -> None:
    assert find_model(exported).folder == exported
    assert find_model(exported, data).folder == data
    with pytest.raises(InputError, match=f"no dict.src.txt with dict.tgt.txt in `{tmp_path}`: "):
        find_model(exported, tmp_path)
    for side in ("src", "tgt"):
        first, *rest = (data / f"dict.{side}.txt").read_text().splitlines()
        (tmp_path / f"dict.{side}.txt").write_text("\n".join([*rest, first]) + "\n")
    sentence = "the source words of the data are others than those that the model was trained with"
    with pytest.raises(InputError, match=rf"{sentence}.*: name the folder .*, not `{tmp_path}`"):
        sut_fairseq.load(exported, data=tmp_path, device="cpu")
    with pytest.raises(InputError, match=sentence):
        export(find_model(exported, tmp_path), tmp_path / "out")
    (tmp_path / "dict.tgt.txt").write_text("and 3\nrun\n")
    sentence = "dict.tgt.txt` cannot be read as a dictionary .*: copy it again from the data folder"
    with pytest.raises(InputError, match=sentence):
        export(find_model(exported, tmp_path), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    sentence = r"^a dictionary .* of the model's data folder cannot be read .*: copy it again"
    with pytest.raises(InputError, match=sentence):
        sut_fairseq.load(exported, data=tmp_path, device="cpu")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_types_and_shared_tensors(
    trained: Path, data: Path, tmp_path: Path, dtype: torch.dtype
) -> None:
    """Not of a model that runs, but of all that a checkpoint may hold."""
    state = torch.load(trained, weights_only=True)
    generator = torch.Generator().manual_seed(1)
    tied = torch.randn(5, 3, generator=generator).to(dtype)
    others = {"c": tied.t(), "d": torch.tensor(3), "e": torch.zeros(0), "f": torch.ones(2) > 0}
    state["model"] = {"a": tied, "b": tied, **others}
    averaged = [{"file": "checkpoint1.pt", "epoch": 1, "updates": 3}]
    state["extra_state"]["averaged_from"] = averaged
    state["cfg"]["model"]["odd"] = [(1, 2.5), None, float("inf"), {"tuple": [1]}]
    torch.save(state, tmp_path / "odd.pt")
    export(find_model(tmp_path / "odd.pt", data), tmp_path / "out")
    back = load_checkpoint(tmp_path / "out" / WEIGHTS)
    for key, tensor in state["model"].items():
        same = back["model"][key]
        assert (same.dtype, same.shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(same, tensor)
    assert back["model"]["a"].data_ptr() == back["model"]["b"].data_ptr()
    assert back["cfg"]["model"]["odd"] == state["cfg"]["model"]["odd"]
    assert back["extra_state"]["averaged_from"] == averaged
    config = (tmp_path / "out" / CONFIG).read_text()
    assert "Infinity" not in config and "NaN" not in config, "which no other program reads"


def test_names_that_are_no_unicode(trained: Path, data: Path, tmp_path: Path) -> None:
    """A folder's name, as a training on Linux may record it."""
    state = torch.load(trained, weights_only=True)
    state["cfg"]["checkpoint"]["save_dir"] = state["cfg"]["model"]["arch"] = "runs/caf\udce9"
    torch.save(state, tmp_path / "odd.pt")
    export(find_model(tmp_path / "odd.pt", data), tmp_path / "out")
    assert load_checkpoint(tmp_path / "out" / WEIGHTS)["cfg"] == {
        **state["cfg"],
        "task": {**state["cfg"]["task"], "source_lang": "src", "target_lang": "tgt"},
    }
    assert "`runs/caf?`" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_a_full_disk_is_told_in_a_sentence(trained: Path, data: Path, tmp_path: Path) -> None:
    most, options = 20_000, ["--data", str(data), "--out", str(tmp_path / "out")]
    code = (
        "import resource, signal, sys; from pathlib import Path\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from sut_fairseq.cli.export import main\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}))\n"
        f"sys.exit(main([{str(trained)!r}, *{options!r}]))"
    )
    assert trained.stat().st_size > most
    finished = run("python", "-c", code, ok=False)
    assert finished.status == 2
    assert finished.last_line.startswith(
        "sut-export: error: model.safetensors could not be written"
    )
    assert not list(tmp_path.iterdir())


def test_commands_read_it(exported: Path, trained: Path, data: Path, tmp_path: Path) -> None:
    """What they say of the folder is what they say of the checkpoint."""
    text = "".join(f"{line}\n" for line in LINES)
    said = []
    for model in (exported, trained):
        options = words("--max-len-b 8 --json --device cpu")
        translated = run("sut-translate", model, *options, stdin=text).stdout
        evaluated = run("sut-evaluate", "--path", model, "--data", data, "--json").stdout
        counted = run("sut-macs", "--path", model, "--data", data, "--json").stdout
        said.append((translated, evaluated, json.loads(counted)))
    assert said[0] == said[1]
    asked = ("--sentence", LINES[0], "--max-len", 8)
    run("sut-report", "--path", exported, *asked, "--out", tmp_path)
    assert list(tmp_path.rglob("*halting.png"))
    found = [
        sut_fairseq.load(model, device="cpu").translate(LINES, **OPTIONS)
        for model in (exported, trained)
    ]
    assert found[0] == found[1]


def test_fairseq_reads_it_with_the_plugin(exported: Path, trained: Path, data: Path) -> None:
    hypotheses = [
        [line for line in generate(data, path).stdout.splitlines() if line.startswith("H-")]
        for path in (exported / WEIGHTS, trained)
    ]
    assert len(hypotheses[0]) == SIZES["test"]
    assert hypotheses[0] == hypotheses[1]


def test_damage_is_told(exported: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(exported, tmp_path / "copy")
    weights, config = folder / WEIGHTS, folder / CONFIG
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.write_bytes(content)
    with pytest.raises(InputError, match="its checksum is not the one in config.json"):
        sut_fairseq.load(folder, device="cpu")
    weights.write_bytes(content[:-100])
    with pytest.raises(InputError, match="cannot be read as safetensors|damaged"):
        sut_fairseq.load(folder, device="cpu")
    document = json.loads(config.read_text())
    for text, said in (
        ("{", "cannot be read as JSON"),
        ("[]", "was not written by `sut-export`"),
        (json.dumps({**document, "format": 99}), "install a newer sut_fairseq"),
    ):
        config.write_text(text)
        with pytest.raises(InputError, match=said):
            sut_fairseq.load(folder, device="cpu")
    config.unlink()
    with pytest.raises(InputError, match=r"There is no config\.json beside the weights"):
        sut_fairseq.load(folder, device="cpu")


def test_settings_that_would_run_are_refused(exported: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(exported, tmp_path / "copy")
    document = json.loads((folder / CONFIG).read_text())
    document["cfg"]["task"]["left_pad_source"] = "print('ran')"
    (folder / CONFIG).write_text(json.dumps(document))
    with pytest.raises(InputError, match="fairseq would run its setting `left_pad_source`"):
        sut_fairseq.load(folder, device="cpu")


def test_an_existing_folder_is_left_alone(trained: Path, exported: Path) -> None:
    finished = run("sut-export", trained, "--out", exported, ok=False)
    assert finished.status == 2
    assert finished.last_line.endswith("is there already; give the name of a new folder.")


def test_the_current_folder_is_not_replaced(
    trained: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell in it would stay in the old one."""
    monkeypatch.chdir(tmp_path)
    for out in (Path("."), tmp_path):
        with pytest.raises(InputError, match=f"^--out {out} would be replaced, but it is the cur"):
            export(find_model(trained, data), out)
    assert not list(tmp_path.iterdir())
    export(find_model(trained, data), Path("mine"))


@pytest.mark.parametrize("value", [torch.inf, torch.nan])
def test_weights_that_no_command_would_load(
    trained: Path, data: Path, tmp_path: Path, value: float
) -> None:
    state = torch.load(trained, weights_only=True)
    name = next(name for name, one in state["model"].items() if one.is_floating_point())
    state["model"]["adaptive._float_tensor"] = torch.tensor([torch.nan])  # which nothing fills
    torch.save(state, tmp_path / "odd.pt")
    export(find_model(tmp_path / "odd.pt", data), tmp_path / "out")
    state["model"][name].view(-1)[0] = value
    torch.save(state, tmp_path / "bad.pt")
    with pytest.raises(InputError, match=f"cannot be exported: its weights `{name}` are not all f"):
        export(find_model(tmp_path / "bad.pt", data), tmp_path / "bad")
    assert not (tmp_path / "bad").exists()


def test_who_may_read_one_file_may_read_all(exported: Path) -> None:
    assert len({path.stat().st_mode for path in exported.iterdir()}) == 1


def test_card_of_what_little_is_known(exported: Path) -> None:
    card = (exported / "README.md").read_text()
    assert card.startswith("---\nlicense: cc-by-4.0\n")
    assert "- Architecture: `sut_tiny`" in card
    assert "- Updates: 2\n" in card
    assert "## Licence\n\ncc-by-4.0" in card
    assert "Scores" not in card and "Thresholds" not in card and "None" not in card
    assert "plugin" not in card


def test_the_card_counts_parameters_only() -> None:
    """A Transformer of fairseq also saves a version of its encoder and decoder."""
    model, _ = untrained.build("transformer_iwslt_de_en", 9)
    files = ModelFiles(Path("a.pt"), Path(), "de", "en")
    card = model_card(files, {"model": model.state_dict()}, name="mine")
    assert f"- Parameters: {sum(one.numel() for one in model.parameters()):,}\n" in card


@pytest.mark.parametrize("ending", ["yaml", "yml"])
def test_the_card_names_the_users_file_without_its_folders(ending: str, tmp_path: Path) -> None:
    record = Record(
        experiment=str(tmp_path / f"mine.{ending}"), model="sut", size="small", seed=3,
        data=Data(folder="elsewhere"), trainings={"": {}},
    )  # fmt: skip
    records.write_record(tmp_path, record)
    files = ModelFiles(tmp_path / "checkpoints" / "checkpoint_best.pt", tmp_path, "de", "en")
    card = model_card(files, {"model": {}}, name="a")
    assert f"- Experiment: mine.{ending}: sut, small\n" in card


def test_card_of_a_run(trained: Path, data: Path, tmp_path: Path) -> None:
    """Data, scores with their signatures, and thresholds against MACs come from its records."""
    run_folder = tmp_path / "run"
    (run_folder / "checkpoints").mkdir(parents=True)
    checkpoint = shutil.copy(trained, run_folder / "checkpoints" / "checkpoint_best.pt")
    about = Data(folder="elsewhere", dataset="scan", split="length")
    code = Code(version="0.1.0")
    session = Session(
        stage="", command=[], code=code, started="now", seconds=7200.0, outcome="finished",
        computer=Computer(
            processor="a CPU", cores=2, threads="1", gpus=[], python="3.11", torch="2.13"
        ),
    )  # fmt: skip
    record = Record(
        experiment="scan", model="sut", size="small", seed=3, data=about,
        trainings={"": {}}, sessions=[session],
    )  # fmt: skip
    records.write_record(run_folder, record)
    rows = [
        {"mode": "reference", "alpha_threshold": "0.5", "group": "all", "sentences": "123456",
         "percent": "87.123456", "skipped": "0.25"},
    ]  # fmt: skip
    evaluated = evaluating.Evaluated(
        asked=evaluating.Asked(thresholds=[0.5]), data=about, measure="exact match", rows=rows,
        code=code, when="now",
    )  # fmt: skip
    evaluating.write(run_folder, "test-thresholds", evaluated)
    # The scores of translations stand in `results.json` too, with their signatures.
    scores = dataclasses.replace(
        evaluated, asked=evaluating.Asked(by="score"), measure="BLEU and chrF",
        rows=[{"group": "sacreBLEU", "percent": "31.256"}],
    )  # fmt: skip
    evaluating.write(run_folder, "test-by-score", scores)
    results = {
        "dataset": "scan", "subset": "test", "beam": 4, "lenpen": 0.6, "alpha_threshold": 0.5,
        "scores": {"sacrebleu": 31.256, "sacrebleu_signature": "nrefs:1|case:mixed"},
        "checkpoints": [{"file": str(checkpoint), "updates": 2}],
        "cost": {"macs_full": 2_500_000, "halting": {"encoder": {"depth": 3.456}}},
    }  # fmt: skip
    others = {
        "of another one": {"checkpoints": [{"file": str(checkpoint), "updates": 3}]},
        "of another training": {"checkpoints": [{"file": "other/last.pt", "updates": 2}]},
        "of several": {"checkpoints": 2 * results["checkpoints"]},
    }
    for name, changed in {"test-best": {}, **others}.items():
        document = {**results, **changed}
        if changed:
            document["scores"] = {"sacrebleu": 99.0}
        (run_folder / name).mkdir()
        (run_folder / name / "results.json").write_text(json.dumps(document))
    export(find_model(checkpoint, data), tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    for line in (
        "# out",
        "- Experiment: scan: sut, small",
        "- Data set: scan, split length",
        "- Seed: 3",
        "- Machine: a CPU, 1 of 2 cores, torch 2.13",
        "- Training time: 2.0 hours",
        "## Scores on `test` of scan (beam 4, length penalty 0.6, threshold 0.5)",
        "| sacreBLEU | 31.26 | nrefs:1\\|case:mixed |",
        "## Exact match on `test` of scan length",
        "| reference | all | 0.5 | 123456 | 87.12 | 0.25 |",
        "| 0.5 | 2.5 | 3.46 |  | 31.26 |",
    ):
        assert line in card.splitlines(), card
    assert "Licence" not in card and "license" not in card
    assert card.count("31.26") == 2 and "BLEU and chrF" not in card and "99.00" not in card
    average = shutil.copy(trained, run_folder / "of several" / "average.pt")
    export(find_model(average, data), tmp_path / "average")
    assert "| 99.00 |" in (tmp_path / "average" / "README.md").read_text()
    last = shutil.copy(trained, run_folder / "checkpoints" / "checkpoint_last.pt")
    export(find_model(last, data), tmp_path / "last")
    card = (tmp_path / "last" / "README.md").read_text()
    assert "- Seed: 3" in card
    assert "87.12" not in card, "another checkpoint of the run was evaluated"
    (run_folder / "early" / "checkpoints").mkdir(parents=True)
    early = shutil.copy(trained, run_folder / "early" / "checkpoints" / "checkpoint_best.pt")
    export(find_model(early, data), tmp_path / "early")
    card = (tmp_path / "early" / "README.md").read_text()
    assert "Seed" not in card and "Experiment" not in card, "a stage is a training of its own"


def test_card_of_a_folder_that_was_moved(trained: Path, data: Path, tmp_path: Path) -> None:
    """The average of one checkpoint beside its scores tells whose they are, not a file's name."""
    checkpoint = shutil.copy(trained, tmp_path / "checkpoint_best.pt")
    other = torch.load(trained, weights_only=True)
    next(one for one in other["model"].values() if one.is_floating_point()).add_(1)
    results = {
        "subset": "test", "scores": {"sacrebleu": 31.256}, "cost": {"macs_full": 1},
        "checkpoints": [{"file": "/gone/checkpoint_best.pt", "updates": 2}],
    }  # fmt: skip
    folder = tmp_path / "evaluation"
    folder.mkdir()
    for number, (weights, named, own) in enumerate(
        [
            (torch.load(trained, weights_only=True), "/gone/checkpoint_best.pt", True),
            (other, "/gone/checkpoint_best.pt", False),
            (other, str(checkpoint), False),  # trained anew under the same name
            (None, "/gone/checkpoint_best.pt", False),
            (None, str(checkpoint), True),
        ]
    ):
        (folder / "average.pt").unlink(missing_ok=True)
        if weights is not None:
            torch.save(weights, folder / "average.pt")
        results["checkpoints"] = [{"file": named, "updates": 2}]
        (folder / "results.json").write_text(json.dumps(results))
        export(find_model(checkpoint, data), tmp_path / f"out{number}")
        card = (tmp_path / f"out{number}" / "README.md").read_text()
        assert ("31.26" in card) == own, number
