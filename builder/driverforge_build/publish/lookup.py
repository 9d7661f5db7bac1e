"""The *exists* question: does a registry have the image of a cell, made from the same inputs?"""

from __future__ import annotations

from driverforge_build import resources
from driverforge_build.advice import Given
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import Cell
from driverforge_build.plan.rows import ImageLookup
from driverforge_build.render.bake import INPUTS_LABEL, immutable_tag_of, repository_of
from driverforge_build.render.context import BuildContext, context_of
from driverforge_build.render.requirements import BaseImage
from driverforge_build.render.spec import SIGNER_KEY_LABEL, SIGNER_LABEL, image_specs
from driverforge_core.errors import DriverforgeError, TemporaryFailure, Unavailable
from driverforge_oci.client import RegistryClient
from driverforge_oci.presence import Presence, Present, Unknown, labels, presence
from driverforge_oci.reference import Reference
from driverforge_oci.session import NotFound


class Unanswered(Unavailable):
    """The registry did not say, and asking again is no use until somebody did something: a login."""

    exit_code = TemporaryFailure.exit_code


def unanswered(reference: Reference, answer: Unknown) -> Unavailable:
    """The error for whoever needs to know whether a registry has an image."""
    return (TemporaryFailure if answer.passing else Unanswered)(
        f"the registry does not say whether it has {reference}; nothing is pushed",
        details=[answer.reason],
        resolution=answer.resolution or "do what the registry asks for, then run the same command again",
    )


def image_lookup(client: RegistryClient, registry: str, lock: Lock, given: Given) -> ImageLookup:
    """A function that asks a registry for a cell's immutable tag, whose revision is made from the inputs.

    The tag alone is not believed: the image's label has to name the same inputs.
    """
    repository = Reference.parse(repository_of(registry))

    def look_up(cell: Cell) -> tuple[str, Presence]:
        (image,) = image_specs((cell,), lock, given=given)
        context = context_of(image, resources.templates())
        reference = repository.with_tag(immutable_tag_of(context))
        return str(reference), made_from(client, reference, context.inputs, f"linux/{cell.arch}")

    return look_up


def standing(client: RegistryClient, registry: str, context: BuildContext) -> list[str]:
    """What the moving tag of an image stands for now, beside what would be built: a line each.

    Why it would be built anew is told by the labels: another base, or other inputs.
    """
    image = context.image
    alias = Reference.parse(repository_of(registry, image.repository)).with_tag(image.alias_tag)
    try:
        found = labels(client, alias, f"linux/{image.arch}")
    except NotFound:
        return [f"{alias}: the registry does not have it"]
    except DriverforgeError as error:
        return [f"{alias}: {error.brief}"]
    made_of = found.get(INPUTS_LABEL, "")
    if made_of == context.inputs:
        return [f"{alias} stands for an image that was made from the same inputs"]
    which = made_of[:12] or "it names none"
    lines = [f"{alias} stands for an image that was made from other inputs ({which})"]
    name, digest = (found.get(f"org.opencontainers.image.base.{what}", "") for what in ("name", "digest"))
    was = BaseImage(name=name, digest=digest)
    if was != image.base:
        lines.append(f"its base was {str(was) or 'not stated'}, it is {image.base} now")
    before, now = (
        f"by {one[SIGNER_LABEL]} ({one.get(SIGNER_KEY_LABEL, '')})" if SIGNER_LABEL in one else "by nobody"
        for one in (found, dict(image.labels))
    )
    if before != now:
        lines.append(f"its modules were signed {before}, {now} now: --sign-certificate")
    return lines


def made_from(client: RegistryClient, reference: Reference, inputs: str, platform: str) -> Presence:
    """Whether the registry has an image made from these inputs.

    Unknown where it has one of that tag that was made from others.
    """
    answer = presence(client, reference)
    if not isinstance(answer, Present):
        return answer
    try:
        found = labels(client, reference.with_digest(answer.digest), platform).get(INPUTS_LABEL, "")
    except DriverforgeError as error:
        return Unknown(error.brief, error.resolution, isinstance(error, TemporaryFailure))
    if found == inputs:
        return answer
    return Unknown(f"its image of that tag was made from other inputs ({found[:12] or 'it names none'})")
