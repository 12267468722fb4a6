"""Read files from untrusted archives (`.tar.gz`).

Nothing is ever extracted under its name in the archive: the caller asks for files by the last part
of their names, and gets streams. So `..`, absolute names, links and devices have no effect; and
whatever is larger than any published file is refused before it fills memory or disk.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from sut_data.errors import InputError

UNPACKED = 16 << 30  # bytes of a whole archive
LARGEST = 4 << 30  # bytes of a file that is asked for
_AT_ONCE = 16 << 20  # bytes read at once: headers state their own length, which can be huge


@contextmanager
def unpacking(archive: Path) -> Iterator[None]:
    """Report in one sentence what is wrong with an archive that the block reads.

    Raises:
        InputError: if it is damaged.
    """
    try:
        yield
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise InputError(
            f"{archive} cannot be unpacked ({error}): delete it and fetch it again."
        ) from error


def files_of(archive: Path, names: Collection[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield files of an archive in its order: the name asked for, and a stream to read now.

    The checksum of the archive is compared at its end, so only a full iteration verifies it.

    Args:
        archive: its path.
        names: how the names of the wanted files end, such as `text.en` or `splits/random.json`.

    Raises:
        InputError: if it holds more than such an archive can. `unpacking` reports the rest.
    """
    with gzip.open(archive) as stream:
        limited: Any = _Limited(archive, stream)
        with tarfile.open(fileobj=limited, mode="r:") as tar:
            while (member := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # millions would fill memory
                wanted = [name for name in names if f"/{member.name}".endswith(f"/{name}")]
                if not wanted or not member.isreg():
                    continue
                if member.size > LARGEST:
                    raise InputError(
                        f"{archive} has a {wanted[0]} of {member.size:,} bytes, but at most "
                        f"{LARGEST:,} are taken: it is not the published archive."
                    )
                file = tar.extractfile(member)
                assert file is not None  # it is a file
                with file:
                    yield wanted[0], file
        while limited.read(_AT_ONCE):
            pass  # at its end gzip compares the checksum


class _Limited:
    """A stream that fails when an archive becomes too large, or too much is read at once."""

    def __init__(self, archive: Path, stream: gzip.GzipFile) -> None:
        self._archive = archive
        self._stream = stream

    def read(self, size: int) -> bytes:
        self._check(0 <= size <= _AT_ONCE and self.tell() <= UNPACKED)
        return self._stream.read(size)

    def seek(self, position: int) -> int:
        self._check(position <= UNPACKED)
        return self._stream.seek(position)

    def tell(self) -> int:
        return self._stream.tell()

    def seekable(self) -> bool:
        return True

    def _check(self, fits: bool) -> None:
        if not fits:
            raise InputError(
                f"{self._archive} unpacks to more than any published archive: it is not one."
            )
