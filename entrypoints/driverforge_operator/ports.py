"""What the operator asks of a cluster, and the words for it.

Two adapters satisfy `Cluster` and `Reader`: an API server, and a folder of `kubectl get -o yaml` dumps, which
only reads; one satisfies `Registries`. Nothing here knows NVIDIA.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from driverforge_core.errors import NotPermitted, TemporaryFailure

Document = Mapping[str, Any]
"""An object as the API has it: apiVersion, kind, metadata, and so on."""

T_co = TypeVar("T_co", covariant=True)
Loaded = TypeVar("Loaded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[T_co]):
    """A kind of objects, where the API serves it, and what of such an object is kept.

    `model` is a msgspec.Struct with the fields that are read, or dict for all of them. A kind that is not
    `namespaced` is read in all namespaces; with `only`, just the objects of that name. `namespace` is where
    it is read if not in ours.
    """

    group: str
    version: str
    name: str
    plural: str
    namespaced: bool
    model: type[T_co]
    only: str = ""
    namespace: str = ""

    @property
    def built_in(self) -> bool:
        """Whether it is a part of Kubernetes, which every server has.

        No definition may add a group without a dot, nor one of *.k8s.io without the project's approval
        (annotation api-approved.kubernetes.io).
        """
        return "." not in self.group or self.group.endswith(".k8s.io")

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def ref(self, name: str, namespace: str = "") -> Ref:
        return Ref(api_version=self.api_version, kind=self.name, namespace=namespace, name=name)


def kind_at(
    api_version: str,
    name: str,
    plural: str,
    model: type[Loaded],
    *,
    namespaced: bool = True,
    only: str = "",
    namespace: str = "",
) -> Kind[Loaded]:
    """A kind by its API version, such as apps/v1: a row in a table of kinds."""
    group, _, version = api_version.rpartition("/")
    return Kind(
        group=group,
        version=version,
        name=name,
        plural=plural,
        namespaced=namespaced,
        model=model,
        only=only,
        namespace=namespace,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """One object: its kind and name; `namespace` is '' for what has none."""

    api_version: str
    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, document: Document) -> Ref:
        metadata = document["metadata"]
        return cls(
            api_version=document["apiVersion"],
            kind=document["kind"],
            namespace=metadata.get("namespace", ""),
            name=metadata["name"],
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T_co]):
    """Some objects of a list. `version` is where a watch goes on once the last page is read.

    `served` is False where the server says that it does not know the kind; `dumped` where a dump has no
    object of the kind, and no empty list of it: the cluster may have some.
    """

    items: tuple[T_co, ...]
    version: str
    served: bool = True
    dumped: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(Generic[T_co]):
    """A change that a watch saw, or a bookmark, which has no object.

    `version` is where the next watch goes on.
    """

    version: str
    item: T_co | None
    deleted: bool = False


class Expired(TemporaryFailure):
    """The server no longer has the version that a watch was to go on from (410): list again."""


class Gone(TemporaryFailure):
    """The object is not there (404), in the server's own words."""


class Misled(TemporaryFailure):
    """The answer is not the API server's, or not whole: a proxy's page, another kind, a part of a list.

    Nothing is known of what was asked.
    """


class Conflict(TemporaryFailure):
    """The object is another than the writer thought (409): observe again."""


class Unauthenticated(NotPermitted):
    """The server does not know who asks (401), as while a token is exchanged; 403 knows, and refuses."""


class Overloaded(TemporaryFailure):
    """The server asks everybody to wait (429, 503), `seconds` at least."""

    def __init__(self, brief: str, *, details: Sequence[str] = (), seconds: float = 0) -> None:
        super().__init__(brief, details=details)
        self.seconds = seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Whether an image exists for an architecture ('' for any), asked with these pull secrets."""

    image: str
    arch: str
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`unknown` is all that is neither yes nor no, with the reason: a registry that refuses, or is away.

    `since` is such a reason, too: of a registry that once said `no`, and has refused for some time since.
    """

    found: Literal["yes", "no", "unknown"]
    reason: str = ""
    since: str = ""


class Registries(Protocol):
    """Where images are."""

    def ask(self, question: Question) -> Answer:
        """Ask the image's registry; never raises."""


class Reader(Protocol):
    """What observing needs. Every method raises TemporaryFailure where the same call may work later,
    NotPermitted where the server refuses the user, and Unavailable otherwise.
    """

    def pages(self, kind: Kind[Loaded], *, labels: str = "") -> Iterator[Page[Loaded]]:
        """All objects of a kind, a page at a time; of our own namespace where the kind has namespaces.

        `labels` is a selector in the API's own words. A kind that the server does not know, by its own
        discovery, has no objects.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What a container wrote; with `previous`, what it wrote before its last restart."""

    namespace: str
    pod: str
    container: str
    previous: bool = False

    @property
    def file(self) -> str:
        """Its name in the folder `logs` of a dump; Kubernetes' names have no underscore."""
        parts = (self.namespace, self.pod, self.container, *(("previous",) if self.previous else ()))
        return "_".join(parts) + ".log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """Something that a user may or may not do; `part` is '' or 'status'."""

    verb: str
    group: str
    plural: str
    part: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        resource = f"{self.plural}.{self.group}" if self.group else self.plural
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {resource}{f'/{self.part}' if self.part else ''}{where}"


class Inspector(Reader, Protocol):
    """A `Reader` for somebody who looks for a cause. It changes nothing."""

    def everywhere(self, kind: Kind[Loaded], *, fields: str = "") -> Iterator[Page[Loaded]]:
        """All objects of a kind in all namespaces; `fields` is a field selector: 'spec.nodeName=a'."""

    def tail(self, log: Log, lines: int) -> tuple[str, ...]:
        """The last lines of a log; none where there is no such log (any more)."""

    def may(self, right: Right) -> bool | None:
        """Whether the user may do something; None where nobody can say, as in a dump."""


class Cluster(Reader, Protocol):
    """A `Reader` that also watches and writes. A write made twice does what it did once."""

    def watch(self, kind: Kind[Loaded], since: str, *, labels: str = "") -> Iterator[Event[Loaded]]:
        """Changes after a version; ends when the server ends it, some minutes later, or is silent for long.

        Raises Expired.
        """

    def get(self, kind: Kind[Loaded], name: str) -> Loaded:
        """One object. Raises Gone."""

    def create(self, kind: Kind[Any], document: Document) -> Document:
        """An object that was not there. Raises Conflict where it is."""

    def apply(self, kind: Kind[Any], document: Document) -> Document:
        """Server-side apply under our field manager.

        Returns the object as the server has it afterwards: it may write a value in another way.
        """

    def patch(self, kind: Kind[Any], name: str, body: Document, *, part: str = "") -> str:
        """Merge patch of an object, or of its `part` ('status'); returns the version.

        Raises Gone; and Conflict if `body` names a resourceVersion that is not the object's any more.
        """

    def delete(self, kind: Kind[Any], name: str, *, orphan: bool = False) -> None:
        """Delete an object if it is there; with `orphan` what it owns stays."""
