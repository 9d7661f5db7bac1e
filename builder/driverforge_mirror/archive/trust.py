"""Archives that somebody else has carried: the list's signature, and volumes that are checked each alone."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection
from pathlib import Path

from driverforge_core.errors import InputError
from driverforge_mirror.archive.volumes import file_sum
from driverforge_mirror.ports import ListSigner, ListVerifier
from driverforge_mirror.shapes import CheckedVolume, MirrorArchiveDocument
from driverforge_mirror.yamltext import read_bytes

KIND = "driverforge mirror archive"
"""What a signer is told that it signs, in the place of a statement's type."""


def signature_of(listed: Path) -> Path:
    """Where a list's signature lies, in base64."""
    return listed.with_name(f"{listed.name}.sig")


def signed(signer: ListSigner, text: str, archive: str) -> str:
    """A list's signature, as its file has it. Raises as the signer does."""
    signature = signer.sign(text.encode(), image=archive, predicate=KIND)
    return base64.b64encode(signature).decode() + "\n"


def reading(verifier: ListVerifier | None) -> Callable[[Path], bytes]:
    """How a list is read: nothing of it is looked at before the verifier has accepted its signature.

    What it returns raises OSError, InputError for a signature that is missing or not accepted, and as the
    verifier does.
    """

    def read(listed: Path) -> bytes:
        data = read_bytes(listed)
        if verifier is None:
            return data
        try:
            signature = base64.b64decode(signature_of(listed).read_bytes(), validate=False)
        except (OSError, ValueError) as error:
            raise _refused(listed, f"{signature_of(listed)} cannot be read: {error}") from None
        if objection := verifier.objection(data, signature):
            raise _refused(listed, objection)
        return data

    return read


def _refused(listed: Path, why: str) -> InputError:
    return InputError(
        f"{listed} has no signature that is accepted; nothing of it was read",
        details=[why],
        resolution="ask whoever made the archive; copy the list and its .sig again",
    )


def check_volumes(
    document: MirrorArchiveDocument, folder: Path, names: Collection[str] = ()
) -> list[CheckedVolume]:
    """The volumes of an archive as they lie in a folder: those of these names, without any all.

    InputError for a name that the list has not. StorageFailed.
    """
    known = [volume["name"] for volume in document["volumes"]]
    if strange := sorted(set(names) - set(known)):
        raise InputError(
            f"the archive has no volume {', '.join(strange)}", details=[f"it has: {', '.join(known)}"]
        )
    found: list[CheckedVolume] = []
    for volume in document["volumes"]:
        path = folder / volume["name"]
        if names and volume["name"] not in names:
            continue
        if not path.is_file():
            found.append({"name": volume["name"], "state": "absent"})
        elif path.stat().st_size != volume["size"] or file_sum(path) != volume["sha256"]:
            found.append({"name": volume["name"], "state": "damaged"})
        else:
            found.append({"name": volume["name"], "state": "held"})
    return found
