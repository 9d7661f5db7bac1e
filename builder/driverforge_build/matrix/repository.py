"""Repositories of an operating system, as rows: where one is, who signs it, and who may ask it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from driverforge_build.matrix.fields import (
    Arch,
    ArchAddresses,
    Download,
    Flag,
    PlainPathOrNone,
    RepositoryId,
    Row,
    RowId,
    filled,
    on_arch,
)
from driverforge_core.arch import to_machine


class Repository(Row):
    """A repository of a distribution, or of NVIDIA.

    Where it is, this machine's or the base image's own configuration says first.
    """

    id: RepositoryId = Field(
        description="apt: the suite; dnf and zypper: the repository's id, {machine} is x86_64 or aarch64."
    )
    archive: str = Field(
        default="",
        description="apt: last path element of the archive that holds the suite, e.g. debian-security.",
    )
    components: tuple[RowId, ...] = Field(
        default=(),
        description="apt: components to read; a repository without suites, as NVIDIA's is, has none of "
        "these and no `archive`.",
    )
    urls: ArchAddresses = Field(
        default=(),
        description="Its address, one an architecture, where no configuration has one. apt: the archive; dnf "
        "and zypper: the folder with repodata/. {machine} and {releasever} are replaced.",
    )
    mirrorlist: Download | None = Field(
        default=None, description="Address of a list of such addresses, one a line, instead of `urls`."
    )
    older: Download | None = Field(
        default=None,
        description="Its address where the OS's `releasever` names a minor release, as 9.6: a vault, or what "
        "is kept for subscribers of such a release.",
    )
    signed: Literal["index", "packages"] = Field(
        default="index",
        description="What its keys have signed: InRelease or repomd.xml, or each package and no index.",
    )
    keyring: str = Field(
        default="",
        description="Keys that sign it where the OS's do not: a file of the machine that runs `lock`.",
    )
    key: PlainPathOrNone = Field(
        default="",
        description="File with its public key below its address, for a vendor whose keys no distribution "
        "has; `lock` takes it where it has the sum or the fingerprint below.",
    )
    key_sha256: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = Field(
        default="", description="sha256 of that file's text without its `Version:` line."
    )
    key_fingerprint: Annotated[str, Field(pattern=r"^([0-9A-F]{40})?$")] = Field(
        default="", description="Fingerprint of the one key in that file, in place of `key_sha256`."
    )
    entitled: Flag = Field(
        default=False, description="true: it answers to a subscription only, which the host or a secret has."
    )
    role: Literal["main", "updates", "security", "backports", "extra"] = Field(
        default="main",
        description="What it is to the others. From `backports` and `extra` comes what is asked for by name, "
        "and what no other has, whatever the mirror's copy says of itself.",
    )
    optional: Flag = Field(
        default=False, description="true: not enabled in the base image, only read for kernels and drivers."
    )

    @property
    def vendors(self) -> bool:
        """Whether a vendor of its own signs it: no base image is configured with it, and what an image takes
        from there is asked for by name.
        """
        return bool(self.role == "extra" and self.urls and (self.key or self.keyring))

    @property
    def on_request(self) -> bool:
        """Whether other repositories go first, whatever versions it has: no base image has it enabled."""
        return self.role in ("backports", "extra") or self.entitled

    @property
    def flat(self) -> bool:
        """apt: whether it is one folder with its index and its packages (sources.list(5): a path that ends
        in a slash).
        """
        return not (self.archive or self.components)

    def on(self, arch: Arch) -> Repository:
        """The repository as one architecture sees it."""
        machine = to_machine(arch)
        (name,) = filled((self.id,), machine=machine)
        return self.model_copy(
            update={
                "id": name,
                "urls": filled(on_arch(self.urls, arch), machine=machine),
                "mirrorlist": self.mirrorlist and filled((self.mirrorlist,), machine=machine)[0],
                "older": self.older and filled((self.older,), machine=machine)[0],
            }
        )

    def addresses(self, releasever: str) -> tuple[str, ...]:
        """Where it is: for a minor release (9.6) at `older`, if there is such a place."""
        told = (self.older,) if self.older and "." in releasever else self.urls
        return filled(told, releasever=releasever)
