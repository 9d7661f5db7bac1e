"""One built image to a registry, under a tag that is written once, with the moving tag after it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from driverforge_build.advice import Given
from driverforge_build.ports import BuiltImage, Engine, Layer, StepListener
from driverforge_build.publish.alias import move_alias
from driverforge_build.render.bake import INPUTS_LABEL, immutable_tag_of, local_reference, repository_of
from driverforge_build.render.context import BuildContext
from driverforge_build.render.library import library_versions
from driverforge_core.errors import InputError, TemporaryFailure, Unavailable, UsageError
from driverforge_oci.client import RegistryClient
from driverforge_oci.presence import Absent, Present, labels, presence
from driverforge_oci.reference import Reference

SAME_AS_BUILD = "push takes the same --matrix, --lock, --base and --toolkit-artifacts as build"
"""For the tag is made from all of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushReport:
    """One image in the registry.

    `sent` is False where it was there already, `moved` where the alias stood for it already.
    """

    cell: str
    reference: str
    digest: str
    sent: bool
    alias: str
    alias_digest: str
    moved: bool


def immutable_reference(context: BuildContext, registry: str) -> Reference:
    """Where the image of a context is at a registry."""
    repository = Reference.parse(repository_of(registry, context.image.repository))
    return repository.with_tag(immutable_tag_of(context))


def stand_for(context: BuildContext, registry: str, client: RegistryClient) -> BuiltImage:
    """Let the alias stand for an image that a builder has pushed; the image as the registry has it.

    Raises InputError where the tag is taken by an image that was made from other inputs, Unavailable where
    nothing came.
    """
    remote, platform = immutable_reference(context, registry), f"linux/{context.image.arch}"
    if not _is_there(client, remote, context, platform):
        raise Unavailable(
            f"the builder said that it pushed {remote}, and the registry does not have it",
            resolution="look into the build's log and the registry's; then run the same command again",
        )
    image = client.resolve(remote, platform)
    move_alias(client, remote.with_tag(context.image.alias_tag), image, platform)
    layers = tuple(Layer(digest=layer.digest, size=layer.size, created_by="") for layer in image.layers)
    return BuiltImage(
        reference=str(remote),
        id=image.digest,
        size=sum(layer.size for layer in layers),
        layers=layers,
        labels=labels(client, remote.with_digest(image.digest), platform),
    )


def push_image(
    context: BuildContext,
    registry: str,
    engine: Engine,
    client: RegistryClient,
    *,
    given: Given,
    progress: StepListener,
) -> PushReport:
    """Push one image unless the registry has it, and let the alias stand for it.

    Raises UsageError (not built), InputError (the immutable tag is taken by other content), TemporaryFailure
    (the registry does not say).
    """
    remote, platform = immutable_reference(context, registry), f"linux/{context.image.arch}"
    sent = not _is_there(client, remote, context, platform)
    if sent:
        _check_built(engine, context, given)
        progress(f"pushing {remote}")
        engine.push(local_reference(context), str(remote), progress)
    image = client.resolve(remote, platform)
    alias = remote.with_tag(context.image.alias_tag)
    alias_digest, moved = move_alias(client, alias, image, platform)
    return PushReport(
        cell=context.image.id,
        reference=str(remote),
        digest=image.digest,
        sent=sent,
        alias=str(alias),
        alias_digest=alias_digest,
        moved=moved,
    )


def _is_there(client: RegistryClient, remote: Reference, context: BuildContext, platform: str) -> bool:
    answer = presence(client, remote)
    if isinstance(answer, Absent):
        return False
    if not isinstance(answer, Present):
        raise TemporaryFailure(
            f"the registry does not say whether it has {remote}; nothing is pushed",
            details=[answer.reason],
            resolution=answer.resolution or "do what the registry asks for, then run the same command again",
        )
    found = labels(client, remote.with_digest(answer.digest), platform).get(INPUTS_LABEL, "")
    if found != context.inputs:
        raise InputError(
            f"{remote} is taken by an image made from other inputs, and an immutable tag is never "
            f"overwritten",
            details=[
                f"digest there: {answer.digest}",
                f"its inputs: {found or 'not stated'}",
                f"ours:       {context.inputs}",
            ],
            resolution="push to another --registry, or delete that tag if nobody uses it",
        )
    return True


def _check_built(engine: Engine, context: BuildContext, given: Given) -> None:
    local = local_reference(context)
    image = engine.inspect(local)
    if image is not None and image.labels.get(INPUTS_LABEL) == context.inputs:
        return
    details = [SAME_AS_BUILD, f"the tag is made from these Python packages too: {library_versions()}"]
    # `build` refuses a base image for an OS that it is not to build
    bases = {key: base for key, base in given.bases.items() if key == context.image.os}
    build = replace(given, bases=bases).command("build", select=(context.image.id,))
    advice = f"give push the same options as build; or build it: {build}"
    if image is None:
        raise UsageError(
            f"{context.image.id} has not been built from these inputs: the engine has no {local}",
            details=details,
            resolution=advice,
        )
    raise InputError(
        f"{local} was not built from what matrix, lock and templates say now",
        details=details,
        resolution=advice,
    )
