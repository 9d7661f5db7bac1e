"""What the builder asks of the world: an engine that builds images, mirrors that hold packages, and guests
that boot a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from driverforge_core.errors import Unavailable
from driverforge_core.headertree import HeaderDigests

StepListener = Callable[[str], None]
"""Is told what happens now, one line of text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildJob:
    """One target of a bake file.

    `log` takes the engine's whole output. `secrets` are files by the id that the Dockerfiles know: `ca`, a
    site's authorities, `mirror`, its package mirror, and `subscription`, with others that its name begins;
    all of them serve downloads and stay out of the image.
    `network` is the one in the bake file. Jobs of one `group` share stages: one of them is built before the
    others begin, so that these find them made. `remote` is the name at a registry that the image is to
    have: the builder itself sends it there, without the tag; '' keeps it in the engine's store, under
    `reference`. `contexts` are folders in the
    place of stages of the same name. `arguments` are build arguments beside those of the bake file. With
    `output`, no image is made: that folder gets the files of `stage`.
    """

    cell: str
    group: str
    target: str
    bake_file: Path
    reference: str
    log: Path
    secrets: Mapping[str, Path] = field(default_factory=dict)
    network: str = ""
    no_cache: bool = False
    remote: str = ""
    contexts: Mapping[str, Path] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    stage: str = ""
    output: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer of an image.

    `digest` is that of its uncompressed tar, `size` that of its files in bytes, `created_by` the instruction.
    """

    digest: str
    size: int
    created_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltImage:
    """An image in the engine's store, or at a registry.

    `id` and `size` (bytes) are the engine's own, or the registry's: digest, and size of compressed layers.
    `labels` are the image's.
    """

    reference: str
    id: str
    size: int
    layers: tuple[Layer, ...]
    labels: Mapping[str, str] = field(default_factory=dict)


class Engine(Protocol):
    """Builds, keeps and pushes images. Every method raises Unavailable when the engine does not answer."""

    @property
    def makes_images(self) -> bool:
        """False for one that only goes through the motions."""

    def check(self) -> str:
        """Name and versions of what will build, in one line; raises Unavailable with what to install."""

    def network(self) -> str:
        """The network that build steps need to be given.

        '' for the engine's default one, 'host' where it has none.
        """

    def build(self, job: BuildJob, progress: StepListener) -> str:
        """Build one target; the image is in the store under the job's reference then, or files of a stage are
        in its `output`, or the image is in the repository of its `remote`, and its digest is returned.

        Raises CommandFailed with the last lines, TemporaryFailure where the reason passes by itself.
        """

    def inspect(self, reference: str) -> BuiltImage | None:
        """The image of that name, None when the store has none."""

    def push(self, reference: str, remote: str, progress: StepListener) -> None:
        """Push an image under another name. Raises CommandFailed, NotPermitted, TemporaryFailure."""

    def pull(self, remote: str, reference: str, platform: str) -> None:
        """Take an image ('linux/amd64') from a registry, and keep it as `reference`. Raises as `push`."""

    def files(self, reference: str, folder: str) -> Mapping[str, bytes] | None:
        """Content of the files below a folder of an image, by their path there.

        None where the image has no such folder. Nothing of the image is run. Raises CommandFailed.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ToSign:
    """An unsigned module: its file, and the digest that is to be signed ('sha256' and its bytes)."""

    module: Path
    algorithm: str
    digest: bytes


ModuleSigner = Callable[[ToSign], bytes]
"""Gives the bare signature (RSA, PKCS#1 v1.5) or a whole CMS message, as bytes or in base64.

Raises InputError, NotPermitted, Unavailable, CommandFailed, and TemporaryFailure where the reason passes.
"""


class Algorithm(Enum):
    """What sums count here: those that nobody finds a second file for. They are called so everywhere."""

    SHA256 = "sha256"
    SHA384 = "sha384"
    SHA512 = "sha512"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """A digest of a file, in hexadecimal digits."""

    algorithm: Algorithm
    digest: str

    def __str__(self) -> str:
        return f"{self.algorithm.value} {self.digest}"


def sha256_sum(digest: str) -> Sum:
    return Sum(algorithm=Algorithm.SHA256, digest=digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A file as an index lists it, by whatever sum. `urls` are tried in order where one answers that it has
    none.
    """

    urls: tuple[str, ...]
    sum: Sum
    size: int

    @property
    def name(self) -> str:
        return unquote(urlsplit(self.urls[-1]).path.rpartition("/")[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """Content that its sha256 names: what locks and images pin. `urls` as of Listed."""

    urls: tuple[str, ...]
    sha256: str
    size: int

    @property
    def listed(self) -> Listed:
        return Listed(urls=self.urls, sum=sha256_sum(self.sha256), size=self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a file is, and its first bytes; `size` in bytes."""

    sha256: str
    size: int
    head: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCertificate:
    """What a mirror wants to see of us, and the authorities that it was made by (None: the system's)."""

    certificate: Path
    key: Path
    authorities: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRead:
    """When a server last said what stands at an address.

    `fresh`: in this run; else the cache answered in its place. `time` is UTC, ISO 8601; '' where the cache
    does not say it, as an earlier version's.
    """

    fresh: bool
    time: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatedDocument:
    """What stands at an address, and since when that is known."""

    body: bytes
    last_read: LastRead


class NotThere(Unavailable):
    """The mirror answered that it does not have this (404, 410)."""


class Refused(Unavailable):
    """The mirror answered that we may not have this (401, 403)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadHeaders:
    """What was read of a package with headers.

    `texts` are by path below its header tree, None for a header that it does not have. `digests` is None
    where nobody asked for them.
    """

    texts: Mapping[str, str | None]
    digests: HeaderDigests | None = None


class Downloads(Protocol):
    """Reads what mirrors hold.

    Every method raises TemporaryFailure where one does not answer now, Unavailable where none can.
    """

    def document(self, url: str) -> bytes:
        """What stands at an address now. Raises NotThere, Refused."""

    def dated_document(self, url: str) -> DatedDocument:
        """The same, with when its server said so."""

    def blob(self, blob: Blob) -> Path:
        """A file with that very content. Raises NotThere."""

    def pinned(self, file: Listed) -> Blob:
        """The file by its sha256. Where its index has another sum, it is downloaded and measured, but once.

        Raises NotThere.
        """

    def measured(self, url: str, *, head: int, limit: int) -> Measured:
        """Read a whole file whose digest nobody says, and keep `head` bytes of it.

        Raises NotThere, and Unavailable where it has more than `limit` bytes.
        """

    def identify(self, url: str, certificate: ClientCertificate) -> None:
        """Show a certificate to the host of an address, whenever it is asked."""

    def headers(self, package: Blob, names: Collection[str], *, abi: str | None = None) -> ReadHeaders:
        """Texts of headers out of a package (.deb, .rpm); with `abi`, as HeaderTree has it, digests too."""

    def unpack(self, package: Blob, target: Path) -> None:
        """Put the files of a package below a folder; links and modes do not matter there.

        Raises InputError for what is no such package, StorageFailed.
        """


class GuestEnd(Enum):
    """How a guest ended."""

    OFF = "off"
    """It powered off, or rebooted, which is what a panic does."""
    SILENT = "silent"
    """It said nothing for too long, and was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestBoot:
    """A kernel that is booted once, without disks and network, until it powers off.

    `memory` is in MiB. `console` takes what the kernel writes to its console. `silence` is how many seconds
    the guest may say nothing on its second serial port, whose name is on the kernel's command line:
    driverforge.results=ttyS1.
    """

    arch: str
    kernel: Path
    first_root: Path
    append: str
    memory: int
    console: Path
    silence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestRun:
    """A guest that has ended. `machine` says what ran it."""

    end: GuestEnd
    machine: str


class Guests(Protocol):
    """Boots kernels."""

    def busybox(self, arch: str) -> bytes:
        """A static busybox for guests of an architecture.

        Raises Unavailable, with what to install, where that or another part of such guests is missing.
        """

    def run(self, boot: GuestBoot, on_line: StepListener) -> GuestRun:
        """Boot a kernel; each line that the guest says is told when it is whole. Raises CommandFailed."""


class StatementSigner(Protocol):
    """Signs with a key that we never see."""

    def sign(self, content: bytes, *, image: str, predicate: str) -> bytes:
        """A signature over the content, which is a statement of the type `predicate` about an image.

        Raises Unavailable, CommandFailed, and TemporaryFailure where the same may work later.
        """


class ImageSigner(Protocol):
    """Signs images, and keeps the signature where its verifiers look for it."""

    def sign_image(self, image: str) -> None:
        """Sign REPOSITORY@DIGEST. Raises as StatementSigner."""


class StatementVerifier(Protocol):
    """Knows whose signatures are to be trusted."""

    def objection(self, content: bytes, signature: bytes) -> str:
        """Why a signature is not accepted, '' where it is. Raises Unavailable, CommandFailed."""
