"""What discovery keeps between runs.

Documents are kept by address, and asked for again in each run. Blobs are kept by sha256, and never asked for
again; what the sha256 of a file is that came by another sum is kept as the document of that sum.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from driverforge_build.ports import Sum
from driverforge_core.errors import StorageFailed


def default_folder() -> Path:
    """$XDG_CACHE_HOME/driverforge, else ~/.cache/driverforge."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if home.startswith("/") else Path.home() / ".cache") / "driverforge"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAnswer:
    """A document whose content may change at its address, with what a conditional request needs.

    `read` is when the server last said that this is its content, UTC, ISO 8601; earlier versions kept ''.
    """

    url: str
    body: bytes
    read: str = ""
    etag: str = ""
    last_modified: str = ""


def _unreadable(path: Path, error: OSError) -> StorageFailed:
    return StorageFailed(
        f"cannot read {path}: {error.strerror}",
        resolution="remove it: the cache fills again; or choose another folder with --cache-dir",
    )


class Cache:
    """A folder. Every file appears by rename, complete; several runs may share it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def document(self, url: str) -> KeptAnswer | None:
        """The last answer kept for an address; one that is not whole counts as none."""
        path = self._document_path(url)
        try:
            head, _, body = path.read_bytes().partition(b"\n")
            fields = json.loads(head)
        except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
            return None
        except OSError as error:
            raise _unreadable(path, error) from error
        if not isinstance(fields, dict) or fields.get("sha256") != hashlib.sha256(body).hexdigest():
            return None
        return KeptAnswer(
            url=url,
            body=body,
            read=fields.get("read", ""),
            etag=fields.get("etag", ""),
            last_modified=fields.get("last_modified", ""),
        )

    def keep(self, document: KeptAnswer) -> None:
        # not the address: it may hold a password
        digest = hashlib.sha256(document.body).hexdigest()
        fields = {
            "read": document.read,
            "etag": document.etag,
            "last_modified": document.last_modified,
            "sha256": digest,
        }
        with self.new_file(self._document_path(document.url)) as file:
            file.write(json.dumps(fields).encode() + b"\n" + document.body)

    def blob(self, sha256: str) -> Path | None:
        """The file with that content, read through once more: a damaged one is removed."""
        path = self.blob_path(sha256)
        try:
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(path, error) from error
        if found == sha256:
            return path
        # a cache that cannot be written says so when the whole file is kept
        with suppress(OSError):
            path.unlink()
        return None

    def blob_path(self, sha256: str) -> Path:
        return self.folder / "blobs" / "sha256" / sha256[:2] / sha256

    def sha256_of(self, known: Sum) -> str | None:
        """The sha256 of the file with a sum, where it came before."""
        kept = self.document(str(known))
        return kept.body.decode() if kept else None

    def keep_sha256(self, known: Sum, sha256: str) -> None:
        self.keep(KeptAnswer(url=str(known), body=sha256.encode()))

    @contextmanager
    def new_file(self, path: Path) -> Iterator[IO[bytes]]:
        """A file to write. It appears at `path` when the block ends well, and not at all when it does not."""
        with self._new_file(path.parent, lambda: path) as file:
            yield file

    @contextmanager
    def new_blob(self, sha256: Callable[[], str]) -> Iterator[IO[bytes]]:
        """A blob to write; what its sha256 is, is asked when the block has ended well."""
        with self._new_file(self.folder / "blobs/sha256", lambda: self.blob_path(sha256())) as file:
            yield file

    @contextmanager
    def _new_file(self, folder: Path, place: Callable[[], Path]) -> Iterator[IO[bytes]]:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder, prefix=".new-", delete=False) as file:
                try:
                    yield file
                    file.flush()
                    os.fchmod(file.fileno(), 0o644)
                    (path := place()).parent.mkdir(exist_ok=True)
                    Path(file.name).replace(path)
                except BaseException:
                    Path(file.name).unlink(missing_ok=True)
                    raise
        except OSError as error:
            raise StorageFailed(
                f"cannot write {error.filename or folder}: {error.strerror}",
                resolution="free some space, or choose another folder with --cache-dir",
            ) from error

    def _document_path(self, url: str) -> Path:
        return self.folder / "documents" / hashlib.sha256(url.encode(errors="surrogateescape")).hexdigest()
