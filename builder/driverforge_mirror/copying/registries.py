"""Registries as the source and the sink of a copy."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future, wait
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from driverforge_core.errors import TemporaryFailure, Unavailable
from driverforge_mirror.copying.stream import BlobStream
from driverforge_mirror.copying.workers import Workers
from driverforge_mirror.lists.loads import Load
from driverforge_oci.client import Manifest, RegistryClient, WrongBytes
from driverforge_oci.presence import Present, Unknown, presence
from driverforge_oci.reference import Reference
from driverforge_oci.referrers import put_listed, referrers
from driverforge_oci.session import NotFound
from driverforge_oci.transport import Readable
from driverforge_oci.uploads import Upload

PART = 16 << 20
"""Bytes of one request of an upload, which is read first and then sent at once.

An upload can be gone on with where a part ended: distribution drops one that broke off within a part. Each is
asked for anew, so that a token may end in between.
"""
_TRIES = 4


@dataclass(frozen=True, slots=True)
class RegistrySource:
    client: RegistryClient

    def manifest(self, load: Load, digest: str) -> Manifest:
        return self.client.get_manifest(load.source.with_digest(digest))

    def open_blob(self, load: Load, digest: str, offset: int) -> Readable:
        return self.client.open_blob(load.source, digest, offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySink:
    """`begun` remembers uploads of this run and of earlier ones. `deep`: an image's parts are asked for."""

    client: RegistryClient
    begun: BegunUploads
    deep: bool = False
    # where clients keep the lists of referrers, two of one run would lose each other's entries
    _listing: threading.Lock = field(default_factory=threading.Lock, init=False)

    def holds(self, load: Load) -> bool:
        """By one question: whoever puts an image's manifest there has put its parts there before.

        What is attached is there when it is listed, which it is last. What a registry has lost since is found
        with `deep` alone.
        """
        return self._named(load) and not (self.deep and self._lacks_parts(load))

    def _named(self, load: Load) -> bool:
        if load.subject:
            listed = referrers(self.client, load.place.with_digest(load.subject))
            return any(one.digest == load.digest for one in listed)
        return self._standing(load.standing) == load.digest

    def _lacks_parts(self, load: Load) -> bool:
        manifests = {*load.manifests, load.digest}
        return not (
            all(self._standing(load.place.with_digest(digest)) for digest in manifests)
            and all(self.has_blob(load, digest) for digest in load.blobs)
        )

    def _standing(self, place: Reference) -> str:
        """The digest of what is there, '' where nothing is."""
        answer = presence(self.client, place)
        if isinstance(answer, Unknown):
            kind = TemporaryFailure if answer.passing else Unavailable
            raise kind(f"{place}: {answer.reason}", resolution=answer.resolution)
        return answer.digest if isinstance(answer, Present) else ""

    def has_blob(self, load: Load, digest: str) -> bool:
        return self.client.has_blob(load.place, digest)

    def take_blob(self, load: Load, stream: BlobStream, mount_from: str) -> bool:
        for left in reversed(range(_TRIES)):
            sent = self._attempt(load.place, stream, mount_from, last=not left)
            if sent is not None:
                return sent
            # it may be that the last answer alone was lost
            if self.client.has_blob(load.place, stream.digest):
                return True
        raise AssertionError("the last attempt returns or raises")

    def _attempt(self, place: Reference, stream: BlobStream, mount_from: str, *, last: bool) -> bool | None:
        """As `take_blob`; None where a further attempt may help."""
        key = f"{place.name} {stream.digest}"
        begun = self._begun(place, key, stream.size)
        before = self.begun.get(key)
        try:
            upload = begun or self.client.uploads.begin(place, digest=stream.digest, mount_from=mount_from)
            if upload is None:
                return False
            stream.go_to(upload.offset)
            self._send(place, stream, upload, key)
        except Unavailable as error:
            wrong = isinstance(error, WrongBytes)
            # one that takes nothing more would stay so for ever
            if wrong or (begun and self.begun.get(key) == before):
                self.begun.forget(key)
            if last or wrong or not (begun or isinstance(error, (TemporaryFailure, NotFound))):
                raise
            return None
        return True

    def _begun(self, place: Reference, key: str, size: int) -> Upload | None:
        """How far an upload of an earlier attempt or run has come; None where the registry forgot it."""
        if not (location := self.begun.get(key)):
            return None
        try:
            upload = self.client.uploads.standing(place, Upload(location=location))
        except Unavailable:
            upload = Upload(location="")
        if not 0 < upload.offset <= size:
            self.begun.forget(key)
            return None
        return upload

    def _send(self, place: Reference, stream: BlobStream, upload: Upload, key: str) -> None:
        part = stream.take(PART)
        size = sum(map(len, part))
        # the source reads on while the mirror takes what came
        with closing(Workers(1, Future())) as ahead:
            while stream.size - upload.offset > size:
                coming = ahead.submit(stream.take, PART)
                try:
                    upload = self.client.uploads.append(place, upload, part, size)
                    self.begun.put(key, upload.location)
                finally:
                    # a further attempt reads the same stream
                    wait((coming,))
                part = coming.result()
                size = sum(map(len, part))
        self.client.uploads.finish(place, upload, stream.digest, part, size)
        self.begun.forget(key)

    def take_image(self, load: Load, manifests: Sequence[Manifest]) -> None:
        *below, top = manifests
        for manifest in below:
            place = load.place.with_digest(manifest.digest)
            self.client.put_manifest(place, manifest.data, manifest.media_type)
        if load.subject:
            with self._listing:
                put_listed(self.client, load.place.with_digest(load.subject), top)
            return
        self.client.put_manifest(load.standing, top.data, top.media_type)


@dataclass(slots=True)
class BegunUploads:
    """Where uploads that have begun take their next bytes, in a file that outlives a run that is killed.

    A location may carry a secret: the file is its owner's alone. Without it, with a damaged one, or while
    another run has it, uploads begin anew: two runs that go on with one upload spoil it for each other.
    """

    path: Path
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _known: dict[str, str] | None = field(default=None, init=False)
    _held: int = field(default=-1, init=False)

    def put(self, key: str, location: str) -> None:
        with self._lock:
            self._read()[key] = location
            self._write()

    def get(self, key: str) -> str:
        with self._lock:
            return self._read().get(key, "")

    def forget(self, key: str) -> None:
        with self._lock:
            if self._read().pop(key, ""):
                self._write()

    def close(self) -> None:
        """Let another run have the file."""
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    def _read(self) -> dict[str, str]:
        if self._known is None:
            self._known = {}
            with suppress(OSError, ValueError, AttributeError):
                self._hold()
                found = json.loads(self.path.read_text(encoding="utf-8"))
                self._known = {str(key): str(value) for key, value in found.items()}
        return self._known

    def _hold(self) -> None:
        """OSError where another run has the file, or nobody can lock it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(
            self.path.with_name(f"{self.path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise
        self._held = lock

    def _write(self) -> None:
        if self._held < 0:
            return
        # the lock is held: nobody else has a file of this name
        new = self.path.with_name(f"{self.path.name}.new")
        with suppress(OSError):
            new.touch(mode=0o600)
            new.write_text(json.dumps(self._read()), encoding="utf-8")
            new.replace(self.path)
