"""Files as the source of a copy: the blobs that no registry has come from their addresses."""

from __future__ import annotations

import base64
import binascii
import io
from dataclasses import dataclass, field
from pathlib import Path

from driverforge_core.errors import InputError, Unavailable
from driverforge_mirror.copying.copier import Source
from driverforge_mirror.lists.loads import Load
from driverforge_mirror.lists.mediatypes import DATA
from driverforge_mirror.ports import Files
from driverforge_oci.client import Manifest
from driverforge_oci.transport import Readable


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesAnd:
    """The source of a copy: files of carried artifacts from their addresses, all else from `registries`."""

    registries: Source
    files: Files
    folder: Path = field(default_factory=Path)

    def manifest(self, load: Load, digest: str) -> Manifest:
        return self.registries.manifest(load, digest)

    def open_blob(self, load: Load, digest: str, offset: int) -> Readable:
        """Raises Unavailable for a file that is gone, or is another one by now."""
        address = load.addresses.get(digest)
        if address is None:
            return self.registries.open_blob(load, digest, offset)
        if address.startswith(DATA):
            return io.BytesIO(_inline(address)[offset:])
        url = address if "://" in address else (self.folder / address).absolute().as_uri()
        try:
            path = self.files.file(url, sha256=digest.removeprefix("sha256:"), size=load.blobs[digest])
        except Unavailable as error:
            raise type(error)(
                f"{load.image}: {error.brief}",
                details=error.details,
                resolution="what was listed is not there any more: make the list anew with `driverforge "
                "mirror lock`, and copy from the same machine, whose cache keeps indexes",
            ) from error
        file = path.open("rb")
        file.seek(offset)
        return file


def _inline(address: str) -> bytes:
    try:
        return base64.b64decode(address.removeprefix(DATA), validate=True)
    except binascii.Error:
        raise InputError(
            "the list has a file that is no base64",
            resolution="make the list anew with `driverforge mirror lock`",
        ) from None
