"""Whether a checkpoint is what was written: the check of all commands and of resuming."""

from __future__ import annotations

import errno
import zipfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from sut_fairseq.errors import InputError

_ZIP_START = b"PK\x03\x04"
# First bytes of files from torch before 1.6: a pickle whose first value is a magic number.
_OLD_START = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_BLOCK = 1 << 20
# Errors of reading a damaged file: a bad sector, a position before the file (where wrong headers
# send `zipfile`), circular links. Any other error says nothing about the file.
_OF_DAMAGE = frozenset((errno.EIO, errno.EINVAL, errno.ELOOP))


class DamagedCheckpointError(InputError):
    """A file that was a checkpoint, or should be one, and is not whole."""


def check_whole(path: str | Path) -> None:
    """Refuse a checkpoint that is not byte for byte what was written.

    torch saves a zip archive with a CRC-32 of every record, which `torch.load` does not compare:
    flipped bits in the weights load without an error. Nothing is unpickled here. A file of 600 MB
    takes about half as long to check as to load; an unchanged file is checked once per process.

    Two kinds of files have no checksums and pass if their beginning and end are right: those from
    before torch 1.6, and those written under `torch.serialization.set_crc32_options(False)`.

    Args:
        path: the checkpoint.

    Raises:
        DamagedCheckpointError: it is cut off, has changed, or is no checkpoint at all.
        InputError: there is no such file, it is a folder, or it cannot be read now.
    """
    _refuse(Path(path), whole=True)


def check_file(path: str | Path) -> None:
    """Refuse what is no file, or by its first and last bytes cannot be a whole checkpoint.

    Raises:
        as `check_whole`, of which this is the quick part.
    """
    _refuse(Path(path), whole=False)


def shows_damage(error: OSError) -> bool:
    """Whether this error of reading means damage; if not, the file may be whole."""
    return error.errno in _OF_DAMAGE


def unreadable(path: Path, error: OSError) -> InputError:
    """The error for a file that cannot be read now and may be whole."""
    return InputError(
        f"`{path}` cannot be read ({error.strerror or error}): mend that and try again, or use "
        "another one."
    )


def not_a_checkpoint(path: Path) -> str:
    """The message for a file that torch cannot read, or that holds something else."""
    return (
        f"`{path}` is not a fairseq checkpoint, or it is damaged; give a file written by "
        f"fairseq-train, which holds its parameters under the key `model`."
    )


def truncated(path: Path) -> str:
    """The message for a truncated file."""
    return (
        f"The checkpoint `{path}` is truncated ({path.stat().st_size:,} bytes): it was not written "
        f"or copied to its end, so copy it again or use another one."
    )


def _refuse(path: Path, *, whole: bool) -> None:
    """Do what `check_whole` does or, if not `whole`, only its quick part."""
    try:
        if path.is_dir():
            raise InputError(f"`{path}` is a folder; give the checkpoint file itself.")
        if not path.exists():
            raise InputError(f"There is no checkpoint `{path}`; check its path.")
        if not path.is_file():  # reading a pipe or a device may never end
            raise InputError(f"`{path}` is no file; give the checkpoint file itself.")
        about = path.stat()
        state = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)
        problem = _problem(path, state) if whole else _problem_at_the_ends(path)
    except OSError as error:
        if not shows_damage(error):
            raise unreadable(path, error) from error
        raise DamagedCheckpointError(
            f"The checkpoint `{path}` cannot be read ({error.strerror or error}): use another one."
        ) from error
    if problem is not None:
        raise DamagedCheckpointError(problem)


def _problem_at_the_ends(path: Path) -> str | None:
    """What is wrong with the first and last bytes of a file, in a sentence."""
    with path.open("rb") as file:
        start = file.read(len(_OLD_START))
    if not start:
        return truncated(path)
    if not start.startswith(_ZIP_START):
        return None if start == _OLD_START else not_a_checkpoint(path)
    if not zipfile.is_zipfile(path):
        return truncated(path)
    # torch compresses nothing; other archives may unpack to more than fits into memory.
    with suppress(Exception), zipfile.ZipFile(path) as archive:
        if any(info.compress_type != zipfile.ZIP_STORED for info in archive.infolist()):
            return not_a_checkpoint(path)
    return None


@lru_cache(maxsize=64)
def _problem(path: Path, state: tuple[int, ...]) -> str | None:
    """What is wrong with a file, in a sentence; `state` tells a changed file from the old one."""
    problem = _problem_at_the_ends(path)
    if problem is not None or not zipfile.is_zipfile(path):
        return problem
    record = _changed_record(path)
    if record is None:
        return None
    return (
        f"The checkpoint `{path}` is damaged: `{record}` in it is not what was written, by its "
        "checksum; copy the file again or use another one."
    )


def _changed_record(path: Path) -> str | None:
    """The first record of an archive that does not agree with its checksum."""
    record = "its table of contents"
    try:
        with zipfile.ZipFile(path) as archive:
            records = archive.infolist()
            if not any(info.CRC for info in records):
                return None  # written without checksums
            for info in records:
                record = info.filename
                with archive.open(info) as stream:
                    while stream.read(_BLOCK):
                        pass  # the last read compares the checksum
    except Exception as error:
        if isinstance(error, OSError) and not shows_damage(error):
            raise
        return record  # damaged headers make zipfile fail in many ways
    return None
