"""The *exists* question: does a registry have the image of a cell, made from the same inputs?"""

from __future__ import annotations

from collections.abc import Mapping

from driverforge_build import resources
from driverforge_build.advice import Given
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import Cell
from driverforge_build.plan.rows import ImageLookup
from driverforge_build.render.bake import INPUTS_LABEL, immutable_tag_of, repository_of
from driverforge_build.render.context import context_of
from driverforge_build.render.spec import image_specs
from driverforge_core.errors import DriverforgeError, TemporaryFailure, Unavailable
from driverforge_oci.client import RegistryClient
from driverforge_oci.presence import Presence, Present, Unknown, labels, presence
from driverforge_oci.reference import Reference


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


def image_lookup(client: RegistryClient, registry: str, lock: Lock, bases: Mapping[str, str]) -> ImageLookup:
    """A function that asks a registry for a cell's immutable tag, whose revision is made from the inputs.

    The tag alone is not believed: the image's label has to name the same inputs.
    """
    repository = Reference.parse(repository_of(registry))

    def look_up(cell: Cell) -> tuple[str, Presence]:
        (image,) = image_specs((cell,), lock, given=Given(bases=bases))
        context = context_of(image, resources.templates())
        reference = repository.with_tag(immutable_tag_of(context))
        return str(reference), made_from(client, reference, context.inputs, f"linux/{cell.arch}")

    return look_up


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
