"""JSON of `lock`: what was pinned, and what could not be."""

from __future__ import annotations

from typing import Literal

# pydantic, which makes the schemas, wants this one before Python 3.12
from typing_extensions import TypedDict

from driverforge_build.documents.failures import Failure
from driverforge_build.documents.reads import ReadState, State


class BaseState(TypedDict):
    """What a base image stands for. `index` is the digest of the index over architectures.

    `state` is `fresh` where its registry said so now, `stale` where the digest is an earlier run's.
    """

    reference: str
    digest: str
    index: str
    state: Literal["fresh", "stale", "unknown"]
    problem: str


class LockedTarget(TypedDict):
    """An OS and architecture.

    `suites` maps each to the date of its index, `read` to when that was read; `state` is `stale` where one of
    them is from the cache. `base` is null where the base image names its own digest;
    `images` are the driver images of payload `image`, by driver version, but for those that do. `older` are
    kernels that are published, and that the row of their series leaves out (`newest`), `hollow` packages that
    should have a kernel and have none, with their size.
    """

    kernels: list[str]
    without_headers: list[str]
    older: list[str]
    hollow: list[str]
    drivers: list[str]
    suites: dict[str, str]
    state: State
    read: dict[str, ReadState]
    base: BaseState | None
    images: dict[str, BaseState]
    changes: list[str]


class FoundArchive(TypedDict):
    """An archive of NVIDIA's. `source`: where its sha256 was read; `asked_in_vain`: where there is none.

    `read`: when a place that has the sha256 said so; null where none does, or the matrix says it.
    """

    pinned: bool
    url: str
    sha256: str
    origin: Literal["matrix", "manifest", "checksum-file", "file", "first-use"] | None
    source: str
    asked_in_vain: list[str]
    read: ReadState | None
    error: Failure | None


class LockDocument(TypedDict):
    """`driverforge lock --json`.

    `nowhere` maps targets that were left out to what is missing, for want of an address, `degraded` those
    whose repositories cannot be read now, or are not signed by anybody trusted, `closed` those that were read
    without the repositories of a subscription, `partial` those without a vendor's, `problems` drivers and
    archives to what kept them from being pinned.
    """

    schema: Literal[1]
    lock: str
    changed: bool
    targets: dict[str, LockedTarget]
    nowhere: dict[str, Failure]
    degraded: dict[str, Failure]
    closed: dict[str, Failure]
    partial: dict[str, Failure]
    archives: dict[str, FoundArchive]
    problems: dict[str, Failure]
