"""Read text files, plain or gzipped; write files and folders whole or not at all."""

from __future__ import annotations

import errno
import gzip
import os
import re
import shutil
import socket
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sut_data.errors import InputError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LONGEST = 1 << 24  # characters of a line, so that an endless one does not fill memory


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file without their line ends; a `.gz` file is decompressed.

    A line ends in a line feed, with or without a carriage return before it. A carriage return
    elsewhere is part of the line: two files would no longer be aligned if it ended one.

    Raises:
        InputError: if the file cannot be opened, decompressed or decoded, or a line has no end.
    """
    number = 0
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8", newline="\n") as stream:
            while line := stream.readline(LONGEST):
                if len(line) == LONGEST:
                    raise InputError(
                        f"{path}, line {number + 1} has {LONGEST:,} characters or more: this is "
                        "no text with a sentence on each line."
                    )
                if number == 0:
                    # A byte order mark would join the first word. Python's utf-8-sig reads a file
                    # that ends within the mark as empty.
                    line = line.removeprefix("\ufeff")
                    if not line:
                        return
                yield line.rstrip("\r\n")
                number += 1
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 text (near line {number + 1}): convert it, "
            "for example with `iconv -t UTF-8`."
        ) from error
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise InputError(
            f"{path} ends in .gz but does not decompress ({error}): fetch or compress it again."
        ) from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines, given without their ends, to a file."""
    with open(path, "w", encoding="utf-8", newline="\n") as stream:
        stream.writelines(f"{line}\n" for line in lines)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name `path` if there is no room to write: only errors of opening come with a name."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def written_whole(path: Path, ending: str = "", *, follow_links: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside `path` to write to; it replaces `path` at the end.

    If the block fails, what it wrote is deleted, and `path` stays as it was. A file is flushed to
    disk before it is renamed, so that a crash of the machine leaves the old one or the new one. A
    folder can replace only an empty folder. A pipe or a device, which cannot be replaced, is
    yielded itself.

    Args:
        path: of the file or folder.
        ending: appended to the temporary name. Without it the name keeps its suffix, by which some
            writers (of images) choose their format, and some readers their files.
        follow_links: replace the target of a link, not the link itself.
    """
    if _is_special(path):
        yield path
        return
    target = Path(os.path.realpath(path)) if follow_links else path
    # In the same folder: a rename is atomic only within one file system.
    partial = target.with_name(f".{own_mark()}-{path.name}{ending}")
    try:
        with naming(path):
            yield partial
        if partial.is_file():
            with open(partial, "rb") as file:
                os.fsync(file.fileno())
        partial.replace(target)
    finally:
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        partial.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Write a UTF-8 text file; an existing file is replaced atomically, as by `written_whole`."""
    with written_whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


def put_aside(path: Path, why: str) -> Path:
    """Rename a file to `<name>.<why>`, with a number where that is taken; returns the new path."""
    kept, number = path.with_name(f"{path.name}.{why}"), 1
    while kept.is_symlink() or kept.exists():
        number += 1
        kept = path.with_name(f"{path.name}.{why}-{number}")
    return path.rename(kept)


def check_writable(path: Path, option: str) -> None:
    """Refuse, before hours of work, a file that `written_whole` could not write at the end.

    Args:
        path: of the file.
        option: the one that names it on the command line.

    Raises:
        InputError: if it is a folder, its parent is missing or not writable, or it is
            `/dev/stdout` or the like and leads to a file.
    """
    if path.is_dir():
        raise InputError(f"{option} {path} is a folder: give the name of a file.")
    if path.is_file() and _is_open_file(path):
        raise InputError(
            f"{option} {path} leads to a file that is open already, and would replace what else is "
            "written to it: give the name of another file."
        )
    written = path
    if not _is_special(path):
        written = Path(os.path.realpath(path)).parent if path.is_symlink() else path.parent
        if not written.is_dir():
            raise InputError(f"{option} {path}: there is no folder {written}; make it first.")
    if not os.access(written, os.W_OK):
        raise InputError(
            f"{option} {path}: you have no right to write to {written}; choose another place."
        )


def check_can_make(path: Path, named: str, *, inside: bool = False) -> None:
    """Refuse a path that could not be created along with its missing parents.

    Args:
        path: of a file or folder; what is there already would be replaced.
        named: how the user gave it: `--out data-bin/mine`.
        inside: it is a folder, and an existing one would get more files.

    Raises:
        InputError: naming the folder that is not writable, or the file in the way.
    """
    place = path.absolute()
    if not inside:
        place = place.parent
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        raise InputError(f"{named}: {place} is a file; choose another place.")
    if not os.access(place, os.W_OK):
        raise InputError(f"{named}: you have no right to write to {place}; choose another place.")


def _is_special(path: Path) -> bool:
    """Tell whether a path leads to a pipe, a device or a socket."""
    return path.exists() and not (path.is_file() or path.is_dir())


def _is_open_file(path: Path) -> bool:
    """Tell whether an existing path is a file descriptor of a process, as `/dev/stdout` is."""
    while path.is_symlink():
        folder = os.path.realpath(path.parent)
        if re.fullmatch(r"/proc/\d+(/task/\d+)?/fd", folder):
            return True
        path = Path(folder, os.readlink(path))
    return False


def leftovers(folder: Path, pattern: str) -> list[Path]:
    """What killed processes of this host left behind from `written_whole` in a folder.

    Args:
        folder: may be absent.
        pattern: glob of the final names of the files or folders, with their `ending`.
    """
    found = sorted(folder.glob(f".*-{pattern}"))
    return [path for path in found if is_abandoned(path.name[1:].partition("-")[0])]


def own_mark() -> str:
    """Return this process's mark for temporary names: `<process>@<host>`, without hyphens."""
    return f"{os.getpid()}@{_host()}"


def is_abandoned(mark: str) -> bool:
    """Tell whether the process of a mark belonged to this host and no longer runs.

    On a shared disk it may run on another machine or in another container, unseen from here.

    Args:
        mark: from `own_mark`; one without a host belongs to this host.
    """
    process, _, host = mark.partition("@")
    return process.isdecimal() and host in ("", _host()) and not _is_alive(int(process))


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9.]", "_", socket.gethostname())


def _is_alive(process: int) -> bool:
    """Tell whether another process with this number runs."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it belongs to another user, so it exists
    return True
