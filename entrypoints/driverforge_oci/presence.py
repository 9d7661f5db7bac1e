"""Whether an image exists, in three answers: a registry that refuses, is busy or is away has not said no."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from driverforge_core.errors import CommandFailed, DriverforgeError, TemporaryFailure
from driverforge_oci.client import RegistryClient
from driverforge_oci.reference import Reference
from driverforge_oci.session import NotFound

ASKED_AT_ONCE = 8
"""Questions that whoever has many of them asks at the same time."""


@dataclass(frozen=True, slots=True)
class Present:
    digest: str


@dataclass(frozen=True, slots=True)
class Absent:
    """The registry answered 404."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Anything but 200 and 404: 401, 403, 429, 5xx, a name that does not resolve, a timeout.

    `reason` is one sentence, `resolution` the next step. `passing`: the same question may be answered later
    without anybody doing anything, so not after 401 and 403.
    """

    reason: str
    resolution: str = field(default="", compare=False)
    passing: bool = field(default=False, compare=False)


Presence = Present | Absent | Unknown


def presence(client: RegistryClient, reference: Reference) -> Presence:
    """Whether the registry has this tag or digest.

    Raises InputError for a reference without either, CommandFailed where a credential helper fails.
    """
    _ = reference.target
    try:
        return Present(client.head_manifest(reference).digest)
    except NotFound:
        return Absent()
    # this machine's own: the registry was not asked
    except CommandFailed:
        raise
    except DriverforgeError as error:
        return Unknown(error.brief, error.resolution, isinstance(error, TemporaryFailure))


def labels(client: RegistryClient, reference: Reference, platform: str) -> dict[str, str]:
    """The labels in the configuration of the image for `platform` ('linux/amd64').

    Raises as RegistryClient does, and Unavailable where the configuration cannot be read.
    """
    found = _container(client, reference, platform).get("Labels")
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def environment(client: RegistryClient, reference: Reference, platform: str) -> dict[str, str]:
    """The variables that the image for `platform` sets. Raises as `labels` does."""
    found = _container(client, reference, platform).get("Env")
    pairs = (value.partition("=") for value in found or () if isinstance(value, str))
    return {name: value for name, _, value in pairs}


def _container(client: RegistryClient, reference: Reference, platform: str) -> dict[str, Any]:
    """What the configuration says of containers of the image (image spec 1.1, config.md: `config`)."""
    document = client.image_configuration(reference, client.resolve(reference, platform))
    container = document.get("config")
    return container if isinstance(container, dict) else {}
