"""Image references, as docker reads them: [host[:port]/]path[:tag][@digest].

The grammar is that of github.com/distribution/reference.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TypeGuard

from driverforge_core.errors import InputError

DOCKER_HUB = "docker.io"

_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:]+\])(?::[0-9]{{1,5}})?")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_MAX_NAME = 255


def is_digest(value: object) -> TypeGuard[str]:
    """Whether it is 'sha256:<hex>' or 'sha512:<hex>'."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A repository on a registry, with a tag, a digest, both or (for the repository alone) neither.

    `host` carries a port where the text did; 'debian' is docker.io/library/debian. Raises InputError.
    """

    host: str
    repository: str
    tag: str = ""
    digest: str = ""

    def __post_init__(self) -> None:
        for value, pattern, what in (
            (self.host, _HOST, "registry host"),
            (self.repository, _NAME, "repository"),
            (self.tag or "latest", _TAG, "tag"),
            (self.digest or "sha256:" + "0" * 64, _DIGEST, "digest"),
        ):
            if not pattern.fullmatch(value) or len(self.repository) > _MAX_NAME:
                raise InputError(
                    f"{value!r} is not a {what}",
                    resolution="write HOST[:PORT]/PATH:TAG or HOST[:PORT]/PATH@sha256:DIGEST",
                )

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Without tag and digest both stay '': nothing is taken for 'latest' silently."""
        rest, _, digest = text.partition("@")
        host, slash, path = rest.partition("/")
        if not slash or not ("." in host or ":" in host or host == "localhost" or host != host.lower()):
            host, path = DOCKER_HUB, rest
        name, colon, tag = path.partition(":")
        if (colon and not tag) or ("@" in text and not digest):
            raise InputError(f"{text!r} is not an image reference: there is nothing after its last : or @")
        if host == DOCKER_HUB and "/" not in name:
            name = f"library/{name}"
        return cls(host=host, repository=name, tag=tag, digest=digest)

    def __str__(self) -> str:
        return self.name + (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")

    @property
    def name(self) -> str:
        """Host and repository."""
        return f"{self.host}/{self.repository}"

    @property
    def target(self) -> str:
        """What a manifest is asked for by: the digest where there is one, else the tag.

        InputError where there is neither.
        """
        if not (self.digest or self.tag):
            raise InputError(f"{self} names no image", resolution="add a tag or a digest")
        return self.digest or self.tag

    def with_tag(self, tag: str) -> Reference:
        return replace(self, tag=tag, digest="")

    def with_digest(self, digest: str) -> Reference:
        """The same image by digest alone."""
        return replace(self, tag="", digest=digest)
