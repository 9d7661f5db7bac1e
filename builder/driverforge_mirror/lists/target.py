"""Where images lie in a mirror: an explicit policy of paths that never lets two repositories become one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from driverforge_core.errors import InputError
from driverforge_oci.reference import Reference


class Paths(Enum):
    """What becomes of nvcr.io/nvidia/driver below a mirror's path.

    KEEP: nvidia/driver. HOST: nvcr.io/nvidia/driver. FLATTEN: driver.
    """

    KEEP = "keep"
    HOST = "host"
    FLATTEN = "flatten"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A mirror: HOST[:PORT], and the path below which it has the images; `plain`: without TLS."""

    host: str
    path: str = ""
    paths: Paths = Paths.KEEP
    plain: bool = False

    @classmethod
    def parse(cls, text: str, paths: Paths) -> Target:
        """From '[http://]HOST[:PORT][/PATH]'. InputError for what is no registry."""
        bare, plain = without_scheme(text)
        host, _, path = bare.partition("/")
        target = cls(host=host, path=path, paths=paths, plain=plain)
        if Reference.parse(target.place(Reference.parse("nvcr.io/nvidia/driver:1")).name).host != host:
            raise InputError(
                f"{text!r} names no registry", resolution="write HOST[:PORT][/PATH]: registry.site/nvidia"
            )
        return target

    @property
    def plain_hosts(self) -> tuple[str, ...]:
        """Its host where it has no TLS: as clients want to know it."""
        return (self.host,) if self.plain else ()

    def place(self, image: Reference) -> Reference:
        """Where an image lies, with its tag and digest."""
        repository = {
            Paths.KEEP: image.repository,
            Paths.HOST: f"{image.host.replace(':', '-')}/{image.repository}",
            Paths.FLATTEN: image.repository.rpartition("/")[2],
        }[self.paths]
        whole = f"{self.path}/{repository}" if self.path else repository
        return Reference(host=self.host, repository=whole, tag=image.tag, digest=image.digest)

    def places(self, images: Iterable[str]) -> dict[str, Reference]:
        """The place of each image. InputError where two repositories would share one."""
        found = {image: self.place(Reference.parse(image)) for image in images}
        owners: dict[str, set[str]] = {}
        for image, place in found.items():
            owners.setdefault(place.name, set()).add(Reference.parse(image).name)
        shared = [
            f"{name}: {', '.join(sorted(sources))}" for name, sources in owners.items() if len(sources) > 1
        ]
        if shared:
            raise InputError(
                f"two repositories would become one with --paths {self.paths.value}",
                details=shared,
                resolution="use --paths host, which keeps the registry's name in the path",
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where images are asked for instead of where their names say.

    `places` is as `in_registry` takes it; of its hosts `plain_hosts` have no TLS.
    """

    places: Mapping[str, str]
    plain_hosts: tuple[str, ...]

    @classmethod
    def parse(cls, named: Mapping[str, str]) -> Sources:
        """From HOST[/PATH] → [http://]HOST[:PORT][/PATH]."""
        found = {above: without_scheme(text) for above, text in named.items()}
        return cls(
            places={above: bare for above, (bare, _) in found.items()},
            plain_hosts=tuple(bare.partition("/")[0] for bare, plain in found.values() if plain),
        )


def without_scheme(text: str) -> tuple[str, bool]:
    """HOST[:PORT][/PATH], and whether it has no TLS."""
    return text.removeprefix("http://").removeprefix("https://").rstrip("/"), text.startswith("http://")


def in_registry(reference: Reference, registries: Mapping[str, str]) -> Reference:
    """Where a reference is asked for.

    `registries` maps HOST[/PATH] to HOST[:PORT][/PATH] of a cache, a mirror or the vendor. The longest
    counts.
    """
    for above in sorted(registries, key=len, reverse=True):
        if reference.name == above or reference.name.startswith(f"{above}/"):
            host, _, repository = f"{registries[above]}{reference.name[len(above) :]}".partition("/")
            return Reference(host=host, repository=repository, tag=reference.tag, digest=reference.digest)
    return reference
