"""How the documents of a mirror are read: lists, inventories, archives, which others may have written."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from driverforge_core.errors import InputError
from driverforge_mirror.shapes import (
    MirrorArchiveDocument,
    MirrorContent,
    MirrorInventoryDocument,
    MirrorLockDocument,
)
from driverforge_mirror.yamltext import Read, check_size, read_bytes
from driverforge_oci import jsontext
from driverforge_oci.client import digest_of
from driverforge_oci.reference import Reference

Document = TypeVar("Document")

ARCHIVE_LIST = ".list.json"
FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,200}")


def load_mirror_lock(path: Path, read: Read = read_bytes) -> MirrorLockDocument:
    """The list of a mirror, or the one that an archive's list holds.

    InputError for a file that is neither, with what to run.
    """
    if path.name.endswith(ARCHIVE_LIST):
        return load_archive_list(path, read)["lock"]
    again = (
        "make it anew with `driverforge mirror lock`, or name another with --mirror-lock: where an archive "
        "came from, its NAME.list.json"
    )
    return _loaded(path, MirrorLockDocument, _check_names, "list of a mirror", again, read=read)


def load_inventory(path: Path) -> MirrorInventoryDocument:
    """InputError for a file that is no inventory."""
    again = "`driverforge mirror inventory` writes it where the mirror is"
    return _loaded(path, MirrorInventoryDocument, lambda _document: None, "inventory of a mirror", again)


def load_archive_list(path: Path, read: Read = read_bytes) -> MirrorArchiveDocument:
    """The list of an archive, which is hostile until it is read.

    InputError for names that leave its folder, digests that are none, parts outside of the volumes.
    """
    again = (
        "name the archive as it was given to --to-archive: disk/gpu where its list is disk/gpu.list.json; "
        "copy that file again where it is lost"
    )
    return _loaded(path, MirrorArchiveDocument, _check_archive, "list of an archive", again, read=read)


def _loaded(
    path: Path,
    kind: type[Document],
    check: Callable[[Document], object],
    what: str,
    again: str,
    *,
    read: Read = read_bytes,
) -> Document:
    try:
        data = read(path)
        check_size(data, str(path))
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"{path} cannot be read: {why}", resolution=again) from None
    try:
        # made here: to make one for each kind takes longer than a copy that has nothing to do
        document = TypeAdapter(kind).validate_json(text, strict=True)
        check(document)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:5]]
        raise InputError(f"{path} is no {what}", details=problems, resolution=again) from None
    except InputError as error:
        raise InputError(f"{path} is no {what}", details=[error.brief], resolution=again) from None
    return document


def _check_names(document: MirrorLockDocument) -> None:
    """InputError for a name or digest that is none: the file was carried, and they become parts of URLs."""
    for image in document["images"]:
        named = Reference.parse(image["image"])
        _check_content(named, image)
        for one in image["attached"]:
            _check_content(named.with_digest(one["subject"]), one)
            named.with_tag(one["tag"])


def _check_content(named: Reference, content: MirrorContent) -> None:
    sizes = [size for one in content["platforms"] for size in (one["size"], *one["blobs"].values())]
    if min(sizes, default=0) < 0:
        raise InputError(f"{named} has parts of less than no bytes")
    if content["made"] and digest_of(content["made"].encode(), like=content["digest"]) != content["digest"]:
        raise InputError(f"{named} has an index of another digest than its own")
    if content["made"] and not isinstance(jsontext.parse(content["made"].encode()), dict):
        raise InputError(f"{named} has an index that is none")
    parts = [digest for one in content["platforms"] for digest in (one["digest"], *one["blobs"])]
    for digest in (content["digest"], *parts):
        named.with_digest(digest)


def _check_archive(document: MirrorArchiveDocument) -> None:
    _check_names(document["lock"])
    total = 0
    for volume in document["volumes"]:
        name = volume["name"]
        if not FILE_NAME.fullmatch(name) or volume["size"] < 0:
            raise InputError(f"{name!r} is no volume's name, or has no size")
        total += volume["size"]
    for digest, span in document["parts"].items():
        if len(span) != 2 or min(span) < 0 or sum(span) > total:
            raise InputError(f"{digest} lies outside of the volumes")
