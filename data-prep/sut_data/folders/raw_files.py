"""Find the raw files of a data set: in the user's folder, or at the official address."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import sut_data
from sut_data.errors import InputError
from sut_data.files import read_lines
from sut_data.folders.download import fetch

PACKAGE = Path(sut_data.__file__).resolve().parent
CHECKSUMS = PACKAGE / "SHA256SUMS"


def checkout() -> Path | None:
    """Return the checkout that this package lies in; None if pip installed a copy."""
    repository = PACKAGE.parents[1]
    return repository if repository / "data-prep" / "sut_data" == PACKAGE else None


def downloads() -> Path:
    """Return where downloads are kept: `data-bin/downloads` in the checkout or current folder."""
    return (checkout() or Path.cwd()) / "data-bin" / "downloads"


def look_for(folder: Path, name: str) -> Path | None:
    """Return the path of a raw file, plain or `.gz`, in a folder or one of its subfolders, if any.

    Raises:
        InputError: if it is not a folder.
    """
    if not folder.is_dir():
        raise InputError(f"--raw {folder} is not a folder: give the one that holds {name}.")
    for place in (folder, *sorted(child for child in folder.iterdir() if child.is_dir())):
        for candidate in (place / name, place / f"{name}.gz"):
            if candidate.is_file():
                return candidate
    return None


def find(folder: Path, name: str) -> Path:
    """Return what `look_for` finds.

    Raises:
        InputError: if it finds nothing.
    """
    if (found := look_for(folder, name)) is not None:
        return found
    raise InputError(
        f"--raw {folder} has neither {name} nor {name}.gz: give the folder that holds the files."
    )


def checksums(data_set: str) -> dict[str, str]:
    """Return the known SHA-256 checksums of a data set's published files, by name."""
    known = {}
    for line in read_lines(CHECKSUMS):
        if line.startswith("#"):
            continue
        checksum, _, path = line.partition("  ")
        folder, _, name = path.partition("/")
        if folder == data_set:
            known[name] = checksum
    return known


def obtain(raw: Path | None, data_set: str, urls: Mapping[str, str]) -> dict[str, Path]:
    """Return the path of every raw file of a data set by its name.

    Downloaded files stay in `downloads()` for the next time.

    Args:
        raw: the user's folder; None to download.
        data_set: name of the data set in SHA256SUMS; files that are not listed there are not
            compared with a checksum.
        urls: the official address of each file, by its name below `raw`. Where only the address
            ends in .gz, the checksum is that of the content.

    Raises:
        InputError: if a file is absent, cannot be downloaded, or is not the published one.
    """
    if raw is not None:
        return {name: find(raw, name) for name in urls}
    known, folder = checksums(data_set), downloads() / data_set
    files = {}
    for name, url in urls.items():
        zipped = url.endswith(".gz") and not name.endswith(".gz")
        place = folder / (f"{name}.gz" if zipped else name)
        files[name] = fetch(url, place, known.get(name), of_content=zipped)
    return files
