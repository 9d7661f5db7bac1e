"""Copies images from a source to a sink: what is there is left, what is shared is sent once, in threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from driverforge_core.errors import DriverforgeError, Unavailable
from driverforge_mirror.copying.stream import BlobStream
from driverforge_mirror.copying.tide import Tide
from driverforge_mirror.copying.workers import Workers, awaited, break_off, done
from driverforge_mirror.lists.loads import Load
from driverforge_oci.client import Manifest
from driverforge_oci.reference import Reference
from driverforge_oci.transport import Readable

_IMAGES_AT_ONCE = 4


class LeftOut(Unavailable):
    """The source has not got a blob because the receiver was said to have it."""


class Source(Protocol):
    def manifest(self, load: Load, digest: str) -> Manifest: ...

    def open_blob(self, load: Load, digest: str, offset: int) -> Readable:
        """Its bytes from `offset` on. Raises LeftOut."""


class Sink(Protocol):
    """Each of these may be called for several images at the same time."""

    def holds(self, load: Load) -> bool:
        """Whether the whole image is there, under its tag."""

    def has_blob(self, load: Load, digest: str) -> bool: ...

    def take_blob(self, load: Load, stream: BlobStream, mount_from: str) -> bool:
        """Store a blob; whether bytes were sent.

        `mount_from` is a repository of the sink that has it, '' where none is known.
        """

    def take_image(self, load: Load, manifests: Sequence[Manifest]) -> None:
        """Store an image whose blobs are there: the index's manifests, then itself, then its tag.

        What is attached to another one is listed there.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What became of an image. `error` is None where the image is there.

    `sent` are bytes of blobs.
    """

    load: Load
    state: Literal["held", "copied", "failed"]
    sent: int = 0
    error: DriverforgeError | None = None


class CopyListener(Protocol):
    """Hears of the work; from several threads."""

    def begins(self, total: int) -> None:
        """Bytes of blobs that are to be looked at."""

    def settled(self, size: int, *, told: int) -> None:
        """A blob of this size is dealt with. `told` of its bytes were told as they moved.

        Fewer where it was there or was gone on with, more where it began anew.
        """

    def moved(self, count: int) -> None: ...

    def copied(self, result: Copied) -> None: ...


@dataclass(slots=True)
class _Blob:
    """A blob, and the images that wait for it, the first of each repository."""

    digest: str
    size: int
    loads: list[Load] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Brought:
    """What became of a blob: an error for each repository that has not got it, bytes sent for each image."""

    errors: Mapping[str, DriverforgeError]
    sent: Mapping[str, int]


class _Stopped(Exception):
    """The run ends: a transfer that goes on would keep it."""


@dataclass(slots=True, kw_only=True)
class Copier:
    """One run. `held_in` are further repositories of the sink, which may have what the source left out."""

    source: Source
    sink: Sink
    held_in: Sequence[str] = ()
    # blobs of images that are there: a repository of the sink that has each
    _there: dict[str, str] = field(default_factory=dict, init=False)
    # an image of each repository of the sink
    _repositories: dict[str, Load] = field(default_factory=dict, init=False)
    tide: Tide
    listener: CopyListener
    _broken: Future[None] = field(default_factory=Future, init=False)

    def run(self, loads: Sequence[Load]) -> list[Copied]:
        """Copy all; one that fails leaves the others alone. The results are in the order of `loads`.

        Whatever else ends it, Ctrl-C for one, ends what is under way at its next bytes.
        """
        pool, images = Workers(self.tide.highest, self._broken), Workers(_IMAGES_AT_ONCE, self._broken)
        try:
            return self._run(loads, pool, images)
        except BaseException as error:
            break_off(self._broken, error)
            raise
        finally:
            pool.close()
            images.close()

    def _run(self, loads: Sequence[Load], pool: Workers, images: Workers) -> list[Copied]:
        self._repositories = {load.place.name: load for load in loads}
        asked = [pool.submit(self._holds, load) for load in loads]
        held = {load.image: awaited(found, self._broken) for load, found in zip(loads, asked, strict=True)}
        wanted = [load for load in loads if held[load.image] is False]
        waiting = deque(_blobs(wanted))
        self.listener.begins(sum(blob.size for blob in waiting))
        blobs = {blob.digest: Future[_Brought]() for blob in waiting}
        for _ in blobs:
            pool.submit(self._next_blob, waiting, blobs)
        results: dict[str, Future[Copied]] = {}
        for load in loads:
            results[load.image] = self._result(load, held[load.image], blobs, images, results.get(load.above))
        return [awaited(result, self._broken) for result in results.values()]

    def _holds(self, load: Load) -> bool | DriverforgeError:
        try:
            held = self.sink.holds(load)
        except DriverforgeError as error:
            return error
        if held:
            self._there.update(dict.fromkeys(load.blobs, load.place.repository))
        return held

    def _result(
        self,
        load: Load,
        held: bool | DriverforgeError,
        blobs: Mapping[str, Future[_Brought]],
        images: Workers,
        above: Future[Copied] | None,
    ) -> Future[Copied]:
        if held is True:
            return self._told(Copied(load=load, state="held"))
        if isinstance(held, DriverforgeError):
            return self._told(Copied(load=load, state="failed", error=held))
        brought = [awaited(blobs[digest], self._broken) for digest in load.blobs]
        sent = sum(one.sent.get(load.image, 0) for one in brought)
        for one in brought:
            if (error := one.errors.get(load.place.name)) is not None:
                return self._told(Copied(load=load, state="failed", sent=sent, error=error))
        return images.submit(self._image, load, sent, above)

    def _image(self, load: Load, sent: int, above: Future[Copied] | None) -> Copied:
        # whoever is attached comes after its image in the queue too, so nobody waits for one behind
        if above and (error := above.result().error):
            return self._heard(Copied(load=load, state="failed", sent=sent, error=error))
        try:
            manifests = [self.source.manifest(load, digest) for digest in load.manifests]
            manifests.append(load.made or self.source.manifest(load, load.digest))
            self.sink.take_image(load, manifests)
        except DriverforgeError as error:
            return self._heard(Copied(load=load, state="failed", sent=sent, error=error))
        return self._heard(Copied(load=load, state="copied", sent=sent))

    def _told(self, result: Copied) -> Future[Copied]:
        return done(self._heard(result))

    def _heard(self, result: Copied) -> Copied:
        self.listener.copied(result)
        return result

    def _next_blob(self, waiting: deque[_Blob], blobs: Mapping[str, Future[_Brought]]) -> None:
        # whoever gets room takes the first one: the first images are to be whole early
        with self.tide.turn():
            blob = waiting.popleft()
            blobs[blob.digest].set_result(self._blob(blob))

    def _blob(self, blob: _Blob) -> _Brought:
        """Bring a blob to all repositories that want it: to one from the source, to the others from there."""
        errors, sent, told = dict[str, DriverforgeError](), dict[str, int](), 0

        def moved(count: int) -> None:
            nonlocal told
            if self._broken.done():
                raise _Stopped
            told += count
            self.tide.moved(count)
            self.listener.moved(count)

        moved(0)
        there = [load for load in blob.loads if self._has(load, blob.digest, errors)]
        for load in blob.loads:
            if load in there or load.place.name in errors:
                continue
            try:
                taken = self._bring(blob, load, there[0].place.repository if there else "", moved)
            except DriverforgeError as error:
                errors[load.place.name] = error
                continue
            sent[load.image] = blob.size if taken else 0
            there.append(load)
        self.listener.settled(blob.size, told=told)
        return _Brought(errors=errors, sent=sent)

    def _has(self, load: Load, digest: str, errors: dict[str, DriverforgeError]) -> bool:
        try:
            return self.sink.has_blob(load, digest)
        except DriverforgeError as error:
            errors[load.place.name] = error
            return False

    def _bring(self, blob: _Blob, load: Load, mount_from: str, moved: Callable[[int], None]) -> bool:
        try:
            return self._take(blob, load, mount_from, moved)
        except LeftOut:
            # the receiver said that it has it, and did not say in which repository
            others = (one for one in self._elsewhere(load) if one.place.name != load.place.name)
            found = next((one for one in others if self.sink.has_blob(one, blob.digest)), None)
            if found is None:
                raise
            return self._take(blob, load, found.place.repository, moved)

    def _elsewhere(self, load: Load) -> Iterator[Load]:
        """An image in each repository of the sink that is known: of this run, then of the receiver's."""
        yield from self._repositories.values()
        for name in self.held_in:
            place = Reference(host=load.place.host, repository=name)
            if place.name not in self._repositories:
                yield replace(load, place=place)

    def _take(self, blob: _Blob, load: Load, mount_from: str, moved: Callable[[int], None]) -> bool:
        stream = BlobStream(
            lambda offset: self.source.open_blob(load, blob.digest, offset), blob.digest, blob.size, moved
        )
        try:
            return self.sink.take_blob(load, stream, mount_from or self._there.get(blob.digest, ""))
        finally:
            stream.close()


def _blobs(loads: Sequence[Load]) -> list[_Blob]:
    """The blobs of images, each once, in the images' order: so the first images are whole early."""
    found: dict[str, _Blob] = {}
    for load in loads:
        for digest, size in load.blobs.items():
            blob = found.setdefault(digest, _Blob(digest, size))
            if all(other.place.name != load.place.name for other in blob.loads):
                blob.loads.append(load)
    return list(found.values())
