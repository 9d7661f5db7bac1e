"""The life of `driverforge index`: aliases for all architectures, and the kernels that are covered."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from driverforge_build.attest.attached import Kind
from driverforge_build.attest.read import believed, lack, read_image
from driverforge_build.ports import StatementVerifier
from driverforge_build.publish.alias import Joined
from driverforge_build.publish.upload import Publisher
from driverforge_build.render.context import BuildContext
from driverforge_build.render.spec import ImageSpec
from driverforge_core.errors import DriverforgeError
from driverforge_oci.client import RegistryClient
from driverforge_oci.presence import ASKED_AT_ONCE
from driverforge_oci.reference import Reference

if TYPE_CHECKING:
    from driverforge_build.documents.images import JoinedAlias
    from driverforge_build.documents.runs import CoveredImage


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReport:
    """One alias and its family; `joined` is None where that failed with `error`."""

    alias: Reference
    family: Sequence[BuildContext]
    joined: Joined | None = None
    error: DriverforgeError | None = None

    @property
    def missing(self) -> list[str]:
        """Cells whose image the registry does not have."""
        found = self.joined.found if self.joined else frozenset()
        return [one.image.id for one in self.family if f"linux/{one.image.arch}" not in found]

    def document(self, joined: Joined) -> JoinedAlias:
        return {
            "alias": str(self.alias),
            "digest": joined.digest,
            "moved": joined.moved,
            "images": dict(joined.images),
            "missing": self.missing,
        }


def join_all(contexts: Iterable[BuildContext], publisher: Publisher) -> tuple[JoinReport, ...]:
    """Let the alias of each image stand for its whole family, as far as the registry has it.

    An error costs one alias, not the run.
    """
    families: dict[Reference, Sequence[BuildContext]] = {}
    for context in contexts:
        alias = publisher.alias(context)
        if alias not in families:
            families[alias] = publisher.family_of(context)

    def one(alias: Reference) -> JoinReport:
        family = families[alias]
        try:
            return JoinReport(alias=alias, family=family, joined=publisher.join(family))
        except DriverforgeError as error:
            return JoinReport(alias=alias, family=family, error=error)

    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        return tuple(pool.map(one, families))


PassedTest = Callable[[str, Reference], bool | None]
"""Whether a cell's image passed its newest test; None where nobody says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveredNow:
    """Images by kernel release; `failed` are the digests of those whose newest test was no pass."""

    images: Mapping[str, list[CoveredImage]]
    failed: frozenset[str]


def listed_or_attested(
    listed: Collection[str], client: RegistryClient | None, verifier: StatementVerifier | None
) -> PassedTest:
    """By a list of cells; and with a client by the newest test result that the image has attached."""

    def passed(cell: str, image: Reference) -> bool | None:
        if cell in listed:
            return True
        if client is None:
            return None
        found, verified = read_image(client, image, verifier, kinds=(Kind.TEST_RESULT,)), verifier is not None
        if believed(found, Kind.TEST_RESULT, verified=verified) is None:
            return None
        return not lack(found, Kind.TEST_RESULT, verified=verified)

    return passed


def covered_images(reports: Iterable[JoinReport], publisher: Publisher, passed: PassedTest) -> CoveredNow:
    """The precompiled images that the registry has and that their aliases stand for.

    `passed` is asked for a cell and the image, by its digest. Raises as it does.
    """
    found: dict[str, list[CoveredImage]] = {}
    failed = set[str]()
    for report in reports:
        for image, context, digest in _there(report):
            said = passed(image.id, publisher.member(context).reference.with_digest(digest))
            if said is False:
                failed.add(digest)
            one: CoveredImage = {
                "os": image.os,
                "arch": image.arch,
                "driver": image.driver,
                "branch": str(image.branch),
                "cell": image.id,
                "tag": str(report.alias),
                "image": str(publisher.member(context).reference),
                "digest": digest,
                "tested": bool(said),
            }
            found.setdefault(image.kernel, []).append(one)
    return CoveredNow(images=found, failed=frozenset(failed))


def _there(report: JoinReport) -> Iterator[tuple[ImageSpec, BuildContext, str]]:
    joined = report.joined
    for context in report.family if joined else ():
        image, platform = context.image, f"linux/{context.image.arch}"
        if joined and isinstance(image, ImageSpec) and image.kernel and platform in joined.found:
            yield image, context, joined.images[platform]
