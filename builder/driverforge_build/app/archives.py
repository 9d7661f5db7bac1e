"""Archives of NVIDIA's that a user has on disk, in place of the download that an image's build makes."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from driverforge_build.render.context import BuildContext
from driverforge_build.render.spec import ImageSpec
from driverforge_core.errors import InputError, StorageFailed, UsageError

PAYLOAD = "payload"
"""The stage of the Dockerfile that has the archive, as a file of the name below."""
_FILE = "driver"


def archive_folders(
    files: Iterable[Path], contexts: Sequence[BuildContext], folder: Path
) -> Mapping[str, Path]:
    """A folder for the archive of each image's cell that `files` have, below `folder`.

    A file is the one whose sha256 an image wants, whatever its name. Raises UsageError for one that none
    wants, InputError, StorageFailed.
    """
    wanted = {context.image.id: _sha256(context) for context in contexts}
    found: dict[str, Path] = {}
    for file in files:
        digest = _digest(file)
        cells = [cell for cell, sha256 in wanted.items() if sha256 == digest]
        if not cells:
            raise UsageError(
                f"--archive {file}: no image that is to be built is made of it",
                details=[f"its sha256 is {digest}"],
                resolution="leave it out; `driverforge explain CELL` shows the sha256 that the lock has",
            )
        found |= dict.fromkeys(cells, _placed(file, folder / digest))
    return found


def _sha256(context: BuildContext) -> str:
    archive = context.image.archive if isinstance(context.image, ImageSpec) else None
    return archive.sha256 if archive else ""


def _digest(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise InputError(
            f"{file} cannot be read: {error.strerror}", resolution="give yourself the right to read it"
        ) from error


def _placed(file: Path, folder: Path) -> Path:
    """A folder that holds the file alone; without a copy where it is on the same file system."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            os.link(file.resolve(), folder / _FILE)
        except OSError:
            shutil.copyfile(file, folder / _FILE)
    except OSError as error:
        raise StorageFailed(
            f"{folder} cannot be written: {error.strerror}", resolution="give another --cache-dir"
        ) from error
    return folder
