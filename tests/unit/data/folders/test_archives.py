"""Archives that lead elsewhere, hold no files, are damaged, or have no end."""

from __future__ import annotations

import gzip
import io
import os
import random
import tarfile
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sut_data.errors import InputError
from sut_data.folders import archives
from sut_data.folders.archives import files_of, unpacking
from sut_data.sets.cfq import official as cfq
from sut_data.sets.wmt14_en_de import unpack

NAMES = ("text.en", "text.de")
ZEROS = bytes(1 << 20)


def member(name: str, kind: bytes = tarfile.REGTYPE, **more: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    for key, value in more.items():
        setattr(info, key, value)
    return info


def archive(path: Path, members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def read(path: Path) -> dict[str, bytes]:
    with unpacking(path):
        return {name: stream.read() for name, stream in files_of(path, NAMES)}


@contextmanager
def at_most(num_bytes: int) -> Iterator[None]:
    """Demand that what the block adds to the memory of Python objects never is more."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= num_bytes


def test_files_are_found_by_the_last_part_of_their_names(tmp_path: Path) -> None:
    path = archive(
        tmp_path / "a.tgz",
        [
            (member("a/b/text.en"), b"x\n"),
            (member("other.text.en"), b"no"),
            (member("text.de"), b""),
        ],
    )
    assert read(path) == {"text.en": b"x\n", "text.de": b""}


@pytest.mark.parametrize("name", ["../{}", "../../../{}", "{folder}/outside/{}", "a/../../{}"])
def test_a_name_leads_nowhere(name: str, tmp_path: Path) -> None:
    """Files arrive under the names that were asked for, in the folder that was."""
    members = [(member(name.format(one, folder=tmp_path)), one.encode()) for one in NAMES]
    path = archive(tmp_path / "a.tgz", members)
    folder = tmp_path / "inside" / "folder"
    folder.mkdir(parents=True)
    unpacked = unpack(path, NAMES, folder)
    assert [one.read_text() for one in unpacked] == list(NAMES)
    found = {one.relative_to(tmp_path).as_posix() for one in tmp_path.rglob("*") if one.is_file()}
    assert found == {"a.tgz", "inside/folder/text.en", "inside/folder/text.de"}


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (tarfile.SYMTYPE, {"linkname": "/etc/passwd"}),
        (tarfile.SYMTYPE, {"linkname": "text.en"}),
        (tarfile.LNKTYPE, {"linkname": "../../secret"}),
        (tarfile.CHRTYPE, {"devmajor": 1, "devminor": 5}),
        (tarfile.BLKTYPE, {"devmajor": 8}),
        (tarfile.FIFOTYPE, {}),
        (tarfile.DIRTYPE, {}),
    ],
    ids=["link out", "link to itself", "hard link out", "device", "disk", "pipe", "folder"],
)
def test_what_is_no_file_is_not_there(kind: bytes, more: dict[str, object], tmp_path: Path) -> None:
    path = archive(
        tmp_path / "a.tgz", [(member("text.en", kind, **more), b""), (member("text.de"), b"x")]
    )
    assert read(path) == {"text.de": b"x"}
    with pytest.raises(InputError, match="a.tgz does not hold text.en: fetch it again"):
        unpack(path, NAMES, tmp_path)
    assert (tmp_path / "text.en").is_symlink() is (tmp_path / "text.en").exists() is False


def bomb_of_a_file(tar: tarfile.TarFile, blocks: int) -> None:
    tar.addfile(member("text.en", size=blocks * len(ZEROS)), io.BytesIO(ZEROS * blocks))


def bomb_of_another_file(tar: tarfile.TarFile, blocks: int) -> None:
    tar.addfile(member("README", size=blocks * len(ZEROS)), io.BytesIO(ZEROS * blocks))


def bomb_of_a_header(tar: tarfile.TarFile, blocks: int) -> None:
    """Of a member that says of itself that it is the long name of the next."""
    info = member("././@LongLink", tarfile.GNUTYPE_LONGNAME, size=blocks * len(ZEROS))
    tar.addfile(info, io.BytesIO(ZEROS * blocks))


@pytest.mark.parametrize(
    ("bomb", "sentence"),
    [
        (bomb_of_a_file, "has a text.en of 67,108,864 bytes, but at most 1,048,576 are taken"),
        (bomb_of_another_file, "unpacks to more than any published archive"),
        (bomb_of_a_header, "unpacks to more than any published archive"),
    ],
)
def test_bombs_do_not_go_off(
    bomb: Callable[[tarfile.TarFile, int], None],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archives, "LARGEST", 1 << 20)
    monkeypatch.setattr(archives, "UNPACKED", 32 << 20)
    path = tmp_path / "a.tgz"
    with tarfile.open(path, "w:gz") as tar:
        bomb(tar, 64)
        tar.addfile(member("text.de"))
    assert path.stat().st_size < 200_000
    with at_most(2 << 20), pytest.raises(InputError, match=sentence):
        unpack(path, NAMES, tmp_path)
    assert os.listdir(tmp_path) == ["a.tgz"]


def test_a_bomb_of_many_empty_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory holds a block of what is read, however many they are."""
    monkeypatch.setattr(archives, "_AT_ONCE", 1 << 20)
    path = archive(tmp_path / "a.tgz", ((member(f"{i}/README"), b"") for i in range(10_000)))
    with at_most(3 << 20):
        assert read(path) == {}


def test_damage_is_told_in_a_sentence(tmp_path: Path) -> None:
    """Wherever it is: read to the end or refused, nothing else."""
    texts = [(member(name), random.Random(1).randbytes(3000)) for name in NAMES]
    path = archive(tmp_path / "a.tgz", texts)
    content, generator, refused = path.read_bytes(), random.Random(2), 0
    for _ in range(200):
        damaged = bytearray(content)
        if generator.random() < 0.3:
            del damaged[generator.randrange(len(damaged)) :]
        else:
            damaged[generator.randrange(len(damaged))] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged)
        try:
            read(path)
        except InputError as error:
            assert "\n" not in str(error)
            refused += 1
    assert refused > 150
    # A whole gzip file around half an archive.
    with gzip.open(tmp_path / "plain.tgz", "wb") as stream:
        stream.write(gzip.decompress(content)[:2000])
    with pytest.raises(InputError, match="cannot be unpacked"):
        read(tmp_path / "plain.tgz")


def test_an_index_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CFQ's is read whole."""
    monkeypatch.setattr(cfq, "LARGEST", 1000)
    path = archive(
        tmp_path / "cfq.tar.gz", [(member("cfq/splits/mcd1.json"), b"[" + b"0," * 10_000)]
    )
    with pytest.raises(InputError, match="mcd1.json in .* does not hold the lists"):
        cfq.read_indices(path, "mcd1")
