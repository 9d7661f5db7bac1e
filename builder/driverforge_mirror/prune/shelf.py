"""Archives in a folder: which of them lists still need, and the files of those that go."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from driverforge_core.errors import InputError
from driverforge_mirror.archive.imagelayout import manifests_of, sum_name
from driverforge_mirror.archive.trust import check_volumes, signature_of
from driverforge_mirror.archive.volumes import storage
from driverforge_mirror.lists.loads import named_entries
from driverforge_mirror.lists.reader import ARCHIVE_LIST, load_archive_list
from driverforge_mirror.shapes import MirrorArchiveDocument, MirrorLockDocument
from driverforge_mirror.yamltext import Read, read_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelved:
    """An archive. `why` it stays, '' where it goes with its `files`."""

    name: str
    why: str
    files: tuple[Path, ...] = ()

    def delete(self) -> None:
        """Its list goes last: a run that was stopped finds the archive again. StorageFailed."""
        for path in self.files:
            with storage(path):
                path.unlink(missing_ok=True)


def judge_shelf(
    folder: Path, locks: Mapping[str, MirrorLockDocument], read: Read = read_bytes
) -> list[Shelved]:
    """The archives of a folder, the newest first.

    One stays that has a part of a list that no newer one has, with volumes that are sound. StorageFailed.
    """
    missing = {digest: name for name, lock in locks.items() for digest in _parts(lock)}
    found = []
    with storage(folder):
        lists = sorted(folder.glob(f"*{ARCHIVE_LIST}"), key=lambda path: (path.stat().st_mtime, path.name))
    for listed in reversed(lists):
        name = listed.name.removesuffix(ARCHIVE_LIST)
        try:
            document = load_archive_list(listed, read)
        except InputError as error:
            found.append(Shelved(name=name, why=error.brief))
            continue
        needed = missing.keys() & document["parts"].keys()
        if (folder / f"{name}.journal").exists():
            found.append(Shelved(name=name, why="it is being written"))
        elif not needed:
            found.append(Shelved(name=name, why="", files=tuple(_files(listed, name, document))))
        else:
            wanted = sorted({missing[digest] for digest in needed})
            why = f"{len(needed)} of its parts are of {', '.join(wanted)}"
            if all(volume["state"] == "held" for volume in check_volumes(document, folder)):
                missing = {digest: lock for digest, lock in missing.items() if digest not in needed}
            else:
                why += "; not all its volumes are sound"
            found.append(Shelved(name=name, why=why))
    return found


def _parts(lock: MirrorLockDocument) -> Iterator[str]:
    yield from manifests_of(lock)
    for entry in named_entries(lock):
        for platform in entry.content["platforms"]:
            yield from platform["blobs"]


def _files(listed: Path, name: str, document: MirrorArchiveDocument) -> Iterator[Path]:
    """Files of this archive alone, whatever names its list may have for volumes."""
    for volume in document["volumes"]:
        if re.fullmatch(rf"{re.escape(name)}\.tar(\.\d+)?", volume["name"]):
            yield listed.with_name(volume["name"])
            yield listed.with_name(sum_name(volume["name"]))
    yield signature_of(listed)
    yield listed
