"""Copies images by a program that is not ours, and then looks whether all of each is there."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Literal

from driverforge_build.mirror.copying import Copied, CopyListener
from driverforge_build.mirror.loads import Load
from driverforge_build.mirror.registries import RegistrySink, RegistrySource
from driverforge_build.mirror.workers import Workers, awaited, break_off, done
from driverforge_build.ports import ImageCopier
from driverforge_core.errors import DriverforgeError, Unavailable

_IMAGES_AT_ONCE = 2
"""Such a program moves several blobs of its image at a time: six, skopeo does."""


def beyond(load: Load) -> str:
    """Why no program from registry to registry can copy it, '' where one can."""
    if load.addresses:
        return "no registry has it: it was made of files"
    if load.made:
        return "no registry has it: `lock --platform` made this index"
    return ""


@dataclass(slots=True, kw_only=True)
class ProgramCopier:
    """One run. `sink` says what is there before, and again afterwards, then down to each blob."""

    program: ImageCopier
    sink: RegistrySink
    listener: CopyListener
    # a program that keeps lists of referrers would lose the entries of another one
    _attaching: threading.Lock = field(default_factory=threading.Lock, init=False)
    _broken: Future[None] = field(default_factory=Future, init=False)

    def run(self, loads: Sequence[Load], before: Mapping[str, Copied]) -> list[Copied]:
        """Copy all; one that fails leaves the others alone. `before` are those that are done already.

        Whatever else ends it, Ctrl-C for one, does not wait for the program, which ends with its thread.
        """
        self.listener.begins(sum(sum(load.blobs.values()) for load in loads))
        images = Workers(_IMAGES_AT_ONCE, self._broken)
        results: dict[str, Future[Copied]] = {name: done(result) for name, result in before.items()}
        try:
            for load in loads:
                # in the queue it is behind its image, so nobody waits for one that waits
                results[load.image] = images.submit(self._image, load, results.get(load.above))
            return [awaited(results[load.image], self._broken) for load in loads]
        except BaseException as error:
            break_off(self._broken, error)
            raise
        finally:
            images.close()

    def _image(self, load: Load, above: Future[Copied] | None) -> Copied:
        result = self._result(load, above.result().error if above else None)
        self.listener.settled(sum(load.blobs.values()), told=0)
        self.listener.copied(result)
        return result

    def _result(self, load: Load, error: DriverforgeError | None) -> Copied:
        if error is None:
            try:
                return Copied(load=load, state=self._brought(load), engine=self.program.name)
            except DriverforgeError as failed:
                error = failed
        return Copied(load=load, state="failed", engine=self.program.name, error=error)

    def _brought(self, load: Load) -> Literal["held", "copied"]:
        if self.sink.holds(load):
            return "held"
        with self._attaching if load.subject else nullcontext():
            self.program.copy(load.source.with_digest(load.digest), load.standing)
            if load.subject:
                there = RegistrySource(self.sink.client).manifest(
                    replace(load, source=load.place), load.digest
                )
                self.sink.take_image(load, [there])
        if not replace(self.sink, deep=True).holds(load):
            raise Unavailable(
                f"{self.program.name} says that it copied {load.image}, and {load.standing} is not all there",
                details=[f"expected {load.digest} with {len(load.blobs)} blobs"],
                resolution="`driverforge mirror verify --deep` says what is missing; without --engine "
                "driverforge copies by itself",
            )
        return "copied"
