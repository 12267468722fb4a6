"""Files that pretend to be checkpoints: to run code, to fill memory, or because they are broken."""

from __future__ import annotations

import builtins
import hashlib
import io
import json
import operator
import os
import pickle
import shutil
import subprocess
import tarfile
import zipfile
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import torch

from sut_fairseq.checkpoints.exported import CONFIG, WEIGHTS, write_exported
from tests.damage import flip, largest_record, span


class Runs:
    """Runs a function when it is unpickled."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._reduced = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._reduced


class Reduced:
    """Pickles as the given tuple says, which `__reduce__` returns."""

    def __init__(self, *reduced: Any) -> None:
        self._reduced = reduced

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduced


def tricks(canary: Path) -> dict[str, Any]:
    """Objects that make the file `canary` when they are unpickled."""
    code, command = f"open({str(canary)!r}, 'w').close()", f"touch {canary}"
    pickled = pickle.dumps(Runs(os.system, command))
    build_scalar: Any = numpy.float64(0).__reduce__()[0]
    build_array: Any = numpy.zeros(1).__reduce__()[0]
    evil = Runs(os.system, command)
    objects = numpy.array([None], dtype=object)
    objects[0] = evil
    return {
        "os.system": evil,
        "exec": Runs(builtins.exec, code),
        "eval": Runs(builtins.eval, code),
        "touch": Runs(Path.touch, canary),
        "Popen": Runs(subprocess.Popen, ["touch", str(canary)]),
        "call": Runs(operator.call, os.system, command),
        "apply": Runs(list, Runs(map, os.system, [command])),
        "a pickle inside": Runs(pickle.loads, pickled),
        "a torch file inside": Runs(torch.storage._load_from_bytes, saved(evil)),
        "torch.load": Runs(torch.load, io.BytesIO(saved(evil))),
        "numpy scalar": Reduced(build_scalar, (numpy.dtype("float64"), evil)),
        "numpy scalar of objects": Reduced(build_scalar, (numpy.dtype("O"), evil)),
        "numpy scalar of a pickle": Reduced(build_scalar, (numpy.dtype("O"), pickled)),
        "numpy array of objects": objects,
        "numpy array of a class": Reduced(build_array, (evil, (0,), b"b")),
        "numpy dtype": Reduced(numpy.dtype, (evil, False, True)),
        "numpy state": Reduced(
            build_array, (numpy.ndarray, (0,), b"b"), (1, (1,), numpy.dtype("O"), False, [evil])
        ),
        "namespace": Namespace(data=evil),
        "ordered dictionary": OrderedDict(key=evil),
        "state": Reduced(Namespace, (), {"data": evil}),
        "list items": Reduced(list, (), None, iter([evil])),
        "key": {("key",): [evil]},
    }


def saved(state: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(state, stream, **options)
    return stream.getvalue()


PLACES = (
    *("", "model", "model.weight", "cfg", "cfg.model.arch", "args", "extra_state"),
    *("extra_state.train_iterator", "optimizer_history", "last_optimizer_state"),
    *("last_optimizer_state.state", "task_state", "criterion", "surplus"),
)


def put(state: Any, place: str, thing: Any) -> Any:
    """A copy of a checkpoint's dictionary with another value at a dotted path."""
    if not place:
        return thing
    first, _, rest = place.partition(".")
    inner = state.get(first) if isinstance(state, dict) else None
    return {**(state or {}), first: put(inner if isinstance(inner, dict) else {}, rest, thing)}


def malicious(whole: Path, folder: Path, canary: Path) -> Iterator[Path]:
    """Checkpoints with every trick in one place, and one trick in every place and format."""
    state = torch.load(whole, weights_only=True)
    found = tricks(canary)
    todo = [(trick, "extra_state") for trick in found]
    todo += [("os.system", place) for place in PLACES]
    for number, (trick, place) in enumerate(todo):
        path = folder / f"{number}-{trick.replace(' ', '-')}-in-{place or 'all'}.pt"
        torch.save(put(state, place, found[trick]), path)
        yield path
    evil = put(state, "extra_state", found["os.system"])
    torch.save(evil, folder / "old.pt", _use_new_zipfile_serialization=False)
    yield folder / "old.pt"
    (folder / "pickle.pt").write_bytes(pickle.dumps(found["os.system"]))
    yield folder / "pickle.pt"
    # Pickles in the places where an old file has its protocol and its parts.
    magic = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)
    for number, lead in enumerate((b"", magic, magic + pickle.dumps(1001, protocol=2))):
        path = folder / f"old-{number}.pt"
        path.write_bytes(lead + pickle.dumps(found["os.system"], protocol=2))
        yield path
    with tarfile.open(folder / "tar.pt", "w") as tar:
        for name in ("pickle", "storages", "tensors"):
            content = pickle.dumps(found["os.system"])
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    yield folder / "tar.pt"
    script = {"data.pkl": pickle.dumps(found["os.system"]), "constants.pkl": pickle.dumps(())}
    yield archive(folder / "script.pt", {**script, "version": b"3\n"})


def settings_that_run(whole: Path, folder: Path, canary: Path) -> Iterator[Path]:
    """Checkpoints without a forbidden class, whose settings are code that fairseq evaluates."""
    state = torch.load(whole, weights_only=True)
    code = f"__import__('os').system('touch {canary}') or [1]"
    for number, text in enumerate((code, f"  [{code}]", "${model.arch}", code.encode())):
        cfg = {**state["cfg"], "model": {**STOCK, "adaptive_softmax_cutoff": text}}
        path = folder / f"setting-{number}.pt"
        torch.save({**state, "cfg": cfg}, path)
        yield path
    flat = Namespace(**STOCK, adaptive_softmax_cutoff=code, task="translation", data="")
    torch.save({**state, "cfg": None, "args": flat}, folder / "setting-of-args.pt")
    yield folder / "setting-of-args.pt"


def names_another(whole: Path, data: Path, folder: Path, canary: Path) -> Path:
    """A checkpoint without code, whose model loads a second one with settings that are code."""
    state = torch.load(whole, weights_only=True)
    first = {"_name": "fconv_self_att", "pretrained": "True", "pretrained_checkpoint": "second.bin"}
    second = {"_name": "fconv", "encoder_layers": f"__import__('os').system('touch {canary}')"}
    task = {**state["cfg"]["task"], "source_lang": "src", "target_lang": "tgt"}
    for name, model in (("checkpoint_best.pt", first), ("second.bin", second)):
        cfg = {**state["cfg"], "task": task, "model": {**model, "data": str(folder)}}
        torch.save({**state, "cfg": cfg}, folder / name)
    for side in ("src", "tgt"):
        shutil.copy(data / f"dict.{side}.txt", folder)
    return folder / "checkpoint_best.pt"


STOCK = {"_name": "transformer", "arch": "transformer", "encoder_layers": 1, "decoder_layers": 1}


def broken(whole: Path, folder: Path) -> Iterator[Path]:
    """Checkpoints as disks, copies, people and other programs damage them."""
    content = whole.read_bytes()

    def file(name: str, data: bytes) -> Path:
        path = folder / f"{name}.pt"
        path.write_bytes(data)
        return path

    yield file("empty", b"")
    for kept in (1, 3, 100, len(content) // 2, len(content) - 1):
        yield file(f"first-{kept}", content[:kept])
    yield file("text", b"no checkpoint\n")
    yield file("zeros", bytes(10_000))
    yield file("twice", content[: len(content) // 2] * 2)
    for name, places in (
        ("weights", largest_record(whole)[:2000]),
        ("one-bit", largest_record(whole)[7:8]),
        ("pickle", span(whole, "data.pkl")[200:220]),
        ("start", range(4)),
        ("end", range(len(content) - 30, len(content) - 20)),
    ):
        flip(path := file(f"flipped-{name}", content), places)
        yield path
    yield archive(folder / "document.pt", {"word/document.xml": b"<xml/>"})
    yield archive(folder / "elsewhere.pt", {"../../../../tmp/data.pkl": b"x", "/data.pkl": b"x"})
    records = read_archive(whole)
    yield archive(folder / "compressed.pt", records, zipfile.ZIP_DEFLATED)
    (weights,) = [name for name in records if name.endswith("/data/0")]
    yield archive(folder / "short-record.pt", {**records, weights: records[weights][:4]})
    yield archive(folder / "no-record.pt", {k: v for k, v in records.items() if k != weights})
    bomb = {**records, weights: bytes(1 << 26)}
    yield archive(folder / "bomb.pt", bomb, zipfile.ZIP_DEFLATED)
    for name, state in (
        ("list", [1]),
        ("weights-alone", {"weight": torch.ones(1)}),
        ("none", None),
    ):
        torch.save(state, folder / f"{name}.pt")
        yield folder / f"{name}.pt"
    (folder / "folder.pt").mkdir()
    yield folder / "folder.pt"
    (folder / "loop.pt").symlink_to("loop.pt")
    yield folder / "loop.pt"
    (folder / "dangling.pt").symlink_to("nowhere")
    yield folder / "dangling.pt"
    (folder / "endless.pt").symlink_to("/dev/zero")
    yield folder / "endless.pt"
    os.mkfifo(folder / "pipe.pt")
    yield folder / "pipe.pt"


def nonsense(whole: Path, folder: Path) -> Iterator[Path]:
    """Checkpoints that are whole and harmless, but from which no model can be built."""
    state = torch.load(whole, weights_only=True)
    weights, sizeless = dict(state["model"]), torch.tensor(3)
    name = next(name for name in weights if weights[name].is_floating_point())
    for number, (place, thing) in enumerate(
        (
            *(("cfg", None), ("cfg", {}), ("cfg", {"model": 3}), ("cfg", [1]), ("cfg.task", None)),
            *(("cfg.model", {}), ("cfg.model", None), ("cfg.model._name", "abacus")),
            *(("cfg.task._name", "abacus"), ("cfg.task._name", 3)),
            *(("cfg.model.encoder_embed_dim", "wide"), ("cfg.model.encoder_layers", -1)),
            *(("cfg.model.encoder_embed_dim", 10**12), ("args", Namespace()), ("args", {"a": 1})),
            *(("model", {}), ("model", {**weights, name: weights[name][..., :1]})),
            *(("model", {**weights, "surplus": torch.ones(1)}), ("optimizer_history", 3)),
            *(("optimizer_history", [3]), ("extra_state", 3), ("task_state", 3)),
            *(("optimizer_history", [None]), ("optimizer_history", [{"num_updates": "x"}])),
            *(("extra_state.averaged_from", [1]), ("extra_state.averaged_from", [{"updates": ""}])),
            *(
                ("model", {**weights, "surplus": torch.eye(2).to_sparse()}),
                ("model", {5: sizeless}),
            ),
            ("model", {**weights, "words.source._extra_state": sizeless}),
        )
    ):
        changed = put(state, place, thing)
        if place == "args":
            changed["cfg"] = None
        path = folder / f"nonsense-{number}-{place}.pt"
        torch.save(changed, path)
        yield path


def exported(whole: Path, data: Path, folder: Path, canary: Path) -> Iterator[Path]:
    """Weights files of exported models, damaged or malicious."""
    state = torch.load(whole, weights_only=True)
    made = folder / "export"
    made.mkdir()
    write_exported(state, made)
    config = json.loads((made / CONFIG).read_text())
    weights = (made / WEIGHTS).read_bytes()
    long = (2**62).to_bytes(8, "little")

    def variant(name: str) -> Path:
        copy = folder / f"export-{name}"
        shutil.copytree(made, copy)
        for side in ("src", "tgt"):
            shutil.copy(data / f"dict.{side}.txt", copy)
        return copy / WEIGHTS

    code = f"__import__('os').system('touch {canary}')"
    model = {**STOCK, "adaptive_softmax_cutoff": code}
    documents: dict[str, Any] = {
        "code": {**config, "cfg": {**config["cfg"], "model": model}},
        "code-in-args": {**config, "cfg": None, "args": {"__namespace__": model}},
        "list": [1],
        "nothing": {},
        "no-namespace": {**config, "cfg": {"__namespace__": 3}},
        "no-tuple": {**config, "cfg": {"__tuple__": 3}},
        "odd-parameters": {**config, "parameters": [[1], {"a": 1}]},
        "odd-sharing": {**config, "shared": {config["parameters"][0]: [1]}},
        "other-parameters": {**config, "parameters": ["nothing"]},
        "other-checksum": {**config, "sha256": "0" * 64},
        "newer": {**config, "format": 10**9},
    }
    for name, document in documents.items():
        path = variant(name)
        (path.parent / CONFIG).write_text(json.dumps(document))
        yield path
    for name, text in (("deep", "[" * 10_000), ("number", "9" * 10_000), ("utf-16", "\u263a")):
        path = variant(name)
        (path.parent / CONFIG).write_bytes(text.encode("utf-16" if name == "utf-16" else "utf-8"))
        yield path
    for name, content in (
        ("empty", b""), ("half", weights[: len(weights) // 2]), ("text", b"no weights\n" * 100),
        ("long-header", long + weights[8:]), ("zip", whole.read_bytes()),
        ("flipped", weights[:-1] + bytes([weights[-1] ^ 1])),
    ):  # fmt: skip
        path = variant(f"weights-{name}")
        path.write_bytes(content)
        document = {**config, "sha256": hashlib.sha256(content).hexdigest()}
        if name != "flipped":  # as if somebody had made the checksum fit
            (path.parent / CONFIG).write_text(json.dumps(document))
        yield path
    for name, file in (("weights", WEIGHTS), ("config", CONFIG)):
        for kind, make in (
            ("gone", lambda path: None), ("folder", Path.mkdir), ("pipe", os.mkfifo),
            ("endless", lambda path: path.symlink_to("/dev/zero")),
            ("loop", lambda path: path.symlink_to(path.name)),
        ):  # fmt: skip
            path = variant(f"{name}-{kind}")
            (path.parent / file).unlink()
            make(path.parent / file)
            yield path


def read_archive(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as zipped:
        return {name: zipped.read(name) for name in zipped.namelist()}


def archive(path: Path, records: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as zipped:
        for name, content in records.items():
            zipped.writestr(name, content)
    return path
