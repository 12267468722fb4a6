"""Download a file: resumed after an interruption, checked, and in place only when it is whole.

A partial download is kept as `<name>.part`, and the server's identifier of this version of the file
beside it as `<name>.part.version`, so that two versions are never joined. A file without a known
official checksum is compared with its first download (`<name>.sha256`).

The library pooch (1.9) checks and renames as well, but begins every file from its first byte again;
the archives of WMT are 1.7 GB.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import http.client
import os
import re
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from sut_data.errors import InputError
from sut_data.files import write_whole
from sut_data.waiting import waiting

BLOCK = 1 << 20
TIMEOUT = 60  # seconds without a byte
SLOWEST = 1 << 10  # bytes per second, over any TIMEOUT seconds
LARGEST = 4 << 30  # bytes of a file; the largest published one has less than a quarter
_UNDECODABLE = "undecodable"  # instead of a checksum
WITHOUT = "or fetch it in another way and give its folder with --raw"


def fetch(url: str, destination: Path, sha256: str | None, *, of_content: bool = False) -> Path:
    """Download `url` to `destination` unless it is there, and return `destination`.

    While another run downloads it, this one waits.

    Args:
        url: address of the file.
        destination: where to put it; missing folders are made.
        sha256: its official checksum in hexadecimal digits; None if none is known: then the one
            found is printed and recorded in `<destination>.sha256`, and later ones must equal it.
        of_content: the checksum is that of the decompressed content of a `.gz` file.

    Raises:
        InputError: if it cannot be downloaded (what has arrived is kept for the next time), or if
            its checksum differs or it is no archive (then it is deleted).
    """
    if not _is_there(destination, sha256, of_content):
        destination.parent.mkdir(parents=True, exist_ok=True)
        part = destination.with_name(destination.name + ".part")
        with _alone(part) as stream:
            # Another run may have downloaded it meanwhile.
            if _is_there(destination, sha256, of_content):
                _discard(part)
            else:
                _obtain(url, destination, stream, sha256, of_content)
    return destination


def _is_there(destination: Path, sha256: str | None, of_content: bool) -> bool:
    """Whether the file is there and correct; its checksum is recorded if none is known.

    A file that was put there by hand is then at least an archive.
    """
    if not destination.exists():
        return False
    expected = sha256 or _recorded(destination)
    found = _checksum(destination, of_content)
    if expected is None and _is_archive(destination, destination.suffix, found):
        _record(destination, found)
        return True
    return expected == found


@contextmanager
def _alone(part: Path) -> Iterator[IO[bytes]]:
    """Wait until no other run holds `part`; yield it locked and opened for appending."""
    while True:
        with open(part, "ab") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                name = part.with_suffix("")
                print(f"Another run is downloading {name}; waiting for it.", flush=True)
                with waiting(f"waiting for the other download of {name.name}"):
                    fcntl.flock(stream, fcntl.LOCK_EX)
            # The file waited for may have been renamed or deleted meanwhile.
            if _has_name(stream, part):
                yield stream
                return


def _has_name(stream: IO[bytes], path: Path) -> bool:
    """Whether an open file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _obtain(
    url: str, destination: Path, stream: IO[bytes], sha256: str | None, of_content: bool
) -> None:
    """Download to `stream`, the locked `.part`; check it, and put it in place.

    Raises:
        InputError: as in `fetch`.
    """
    if destination.exists():
        print(f"{destination} is not the file it should be; downloading it again.", flush=True)
    part = Path(stream.name)
    _complete(url, stream, part)
    expected, found = sha256 or _recorded(destination), _checksum(part, of_content)
    if expected not in (None, found):
        _discard(part)
        record = _record_of(destination)
        whose = "the official one" if sha256 else f"that of the first download in {record}"
        wrong = "" if sha256 else f" (if the first download was the wrong one, delete {record})"
        raise InputError(
            f"{url} has the SHA-256 {found}, which differs from {whose}, {expected}: the file was "
            f"damaged on the way or has changed; try again{wrong}, {WITHOUT}."
        )
    if expected is None:
        # An error page, say: recorded, it would refuse the archive ever after.
        if not _is_archive(part, destination.suffix, found):
            _discard(part)
            raise InputError(
                f"{url} is not an archive, whatever the server sent: try again, {WITHOUT}."
            )
        print(f"{destination.name}: SHA-256 {found} (recorded; no official one is known).")
        _record(destination, found)
    # Before the rename: after it another run may have started its own `.part`.
    _version_file(part).unlink(missing_ok=True)
    part.rename(destination)


def _record_of(destination: Path) -> Path:
    return destination.with_name(destination.name + ".sha256")


def _recorded(destination: Path) -> str | None:
    """The checksum of the first download; None if there was none.

    Raises:
        InputError: if the record holds something else.
    """
    record = _record_of(destination)
    if not record.exists():
        return None
    words = record.read_bytes().split()
    if not words or not re.fullmatch(rb"[0-9a-f]{64}", words[0]):
        raise InputError(f"{record} does not begin with a SHA-256: delete it.")
    return words[0].decode("ascii")


def _record(destination: Path, checksum: str) -> None:
    """Write the checksum in the form that `sha256sum --check` reads."""
    write_whole(_record_of(destination), f"{checksum}  {destination.name}\n")


def _is_archive(path: Path, suffix: str, checksum: str) -> bool:
    """Whether a file whose final name has this suffix can be what that promises."""
    with open(path, "rb") as stream:
        is_gzip = stream.read(2) == b"\x1f\x8b"
    return checksum != _UNDECODABLE and (is_gzip or suffix not in (".gz", ".tgz"))


def _checksum(path: Path, of_content: bool) -> str:
    """SHA-256 of a file, or of its content; `_UNDECODABLE` if that cannot be decompressed."""
    digest = hashlib.sha256()
    try:
        with (
            waiting(f"checking {path.name}"),
            gzip.open(path) if of_content else open(path, "rb") as stream,
        ):
            for block in iter(lambda: stream.read(BLOCK), b""):
                digest.update(block)
                if stream.tell() > LARGEST:
                    return _UNDECODABLE  # it decompresses to more than any published file
    except (gzip.BadGzipFile, zlib.error, EOFError):
        return _UNDECODABLE
    return digest.hexdigest()


def _version_file(part: Path) -> Path:
    return part.with_name(part.name + ".version")


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _version_file(part).unlink(missing_ok=True)


def _complete(url: str, stream: IO[bytes], part: Path) -> None:
    """Download what is missing of `part`, which is open as `stream`.

    Raises:
        InputError: if that fails.
    """
    version = _version_file(part)
    try:
        try:
            _receive(url, stream, version)
        except urllib.error.HTTPError as error:
            if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise
            # Nothing is missing, or there is too much; starting again is always right.
            version.unlink(missing_ok=True)
            _receive(url, stream, version)
    except InputError:
        _discard(part)
        raise
    except (http.client.HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        reason = getattr(reason, "strerror", None) or reason
        code = f"{error.code} " if isinstance(error, urllib.error.HTTPError) else ""
        on = f", which goes on after the {stream.tell():,} bytes it has" if stream.tell() else ""
        raise InputError(
            f"{url} could not be downloaded ({code}{reason}): run the same command again{on}, "
            f"{WITHOUT}."
        ) from error


def _receive(url: str, stream: IO[bytes], version: Path) -> None:
    """Append to `stream` what it lacks of `url`, or all of it where the server cannot resume."""
    from tqdm import tqdm

    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity"})
    have = stream.seek(0, 2)
    if have and version.exists():
        request.add_header("Range", f"bytes={have}-")
        # The server sends everything if its file is no longer the one we began with.
        request.add_header("If-Range", version.read_text(encoding="latin-1"))
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        if response.status != http.HTTPStatus.PARTIAL_CONTENT or not _starts_at(response, have):
            have = stream.truncate(0)
            _note_version(response, version)
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        _check_size(url, total or 0)
        with tqdm(
            total=total,
            initial=have,
            unit="B",
            unit_scale=True,
            desc=Path(stream.name).stem,
            disable=None,
        ) as bar:
            for block in _blocks(response):
                have += len(block)
                _check_size(url, have)
                stream.write(block)
                bar.update(len(block))
    stream.flush()
    if total is not None and stream.tell() != total:
        raise ConnectionError(f"the connection ended after {stream.tell():,} of {total:,} bytes")


def _check_size(url: str, num_bytes: int) -> None:
    """Refuse a file that would fill the disk.

    Raises:
        InputError: if it has more bytes than any file that is fetched here.
    """
    if num_bytes > LARGEST:
        raise InputError(
            f"{url} is not the published file: it has {num_bytes:,} bytes or more, but at most "
            f"{LARGEST:,} are taken; fetch it in another way and give its folder with --raw."
        )


def _blocks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Blocks of what the server sends, as they arrive.

    Raises:
        ConnectionError: if they arrive too slowly; the socket's timeout notices only silence.
    """
    since, received = time.monotonic(), 0
    while block := response.read1(BLOCK):
        yield block
        received += len(block)
        seconds = time.monotonic() - since
        if seconds >= TIMEOUT:
            if received < SLOWEST * seconds:
                raise ConnectionError(f"only {received:,} bytes came in {seconds:.0f} seconds")
            since, received = time.monotonic(), 0


def _starts_at(response: http.client.HTTPResponse, start: int) -> bool:
    """Whether a partial answer is the part that was asked for."""
    return (response.headers.get("Content-Range") or "").startswith(f"bytes {start}-")


def _note_version(response: http.client.HTTPResponse, version: Path) -> None:
    """Keep the server's identifier of this version of the file, if there is one to resume by."""
    etag = response.headers.get("ETag", "")
    name = etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified")
    if name:
        version.write_text(name, encoding="latin-1")
    else:
        version.unlink(missing_ok=True)
