"""Built images to a registry: an immutable tag that is written once, and a moving tag of NVIDIA's grammar that follows it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from driverforge_build.advice import Given
from driverforge_build.engine.ports import Engine, Progress
from driverforge_build.published import INPUTS
from driverforge_build.render.bake import immutable_tag_of, local_reference, repository_of
from driverforge_build.render.context import Context
from driverforge_build.render.library import library_versions
from driverforge_core.errors import DriverforgeError, InputError, TemporaryFailure, UsageError
from driverforge_oci.client import OCI_INDEX, Descriptor, Manifest, RegistryClient
from driverforge_oci.presence import Absent, Present, labels, presence
from driverforge_oci.reference import Reference
from driverforge_oci.session import NotFound

SAME_AS_BUILD = "push takes the same --matrix, --lock, --base and --toolkit-artifacts as build"
"""For the tag is made from all of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushReport:
    """One image in the registry. `sent` is False where it was there already, `moved` where the alias stood for it already."""

    cell: str
    reference: str
    digest: str
    sent: bool
    alias: str
    alias_digest: str
    moved: bool


def alias_tag_of(context: Context) -> str:
    """The moving tag: the one that NVIDIA's operator asks for."""
    return context.image.alias_tag


def push_all(
    contexts: Iterable[Context],
    registry: str,
    engine: Engine,
    client: RegistryClient,
    *,
    given: Given,
    keep_going: bool,
    progress: Progress,
) -> tuple[list[PushReport], dict[str, DriverforgeError]]:
    """Push images one after the other: what became of each, and the errors by cell. Stops at the first one unless `keep_going`.

    `given` is what this command was told, for the advice about images that are not there.
    """
    reports: list[PushReport] = []
    errors: dict[str, DriverforgeError] = {}
    for context in contexts:
        outcome = _attempt(context, registry, engine, client, given=given, progress=progress)
        if isinstance(outcome, PushReport):
            reports.append(outcome)
        else:
            errors[context.image.id] = outcome
            if not keep_going:
                break
    return reports, errors


def _attempt(
    context: Context,
    registry: str,
    engine: Engine,
    client: RegistryClient,
    *,
    given: Given,
    progress: Progress,
) -> PushReport | DriverforgeError:
    try:
        return push_image(context, registry, engine, client, given=given, progress=progress)
    except DriverforgeError as error:
        return error


def push_image(
    context: Context,
    registry: str,
    engine: Engine,
    client: RegistryClient,
    *,
    given: Given,
    progress: Progress,
) -> PushReport:
    """Push one image unless the registry has it, and let the alias stand for it.

    Raises UsageError (not built), InputError (the immutable tag is taken by other content), TemporaryFailure (the registry does not say).
    """
    repository = Reference.parse(repository_of(registry, context.image.repository))
    remote = repository.with_tag(immutable_tag_of(context))
    platform = f"linux/{context.image.arch}"
    sent = not _is_there(client, remote, context, platform)
    if sent:
        _check_built(engine, context, given)
        progress(f"pushing {remote}")
        engine.push(local_reference(context), str(remote), progress)
    image = client.resolve(remote, platform)
    alias = repository.with_tag(alias_tag_of(context))
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


def _is_there(client: RegistryClient, remote: Reference, context: Context, platform: str) -> bool:
    answer = presence(client, remote)
    if isinstance(answer, Absent):
        return False
    if not isinstance(answer, Present):
        raise TemporaryFailure(
            f"the registry does not say whether it has {remote}; nothing is pushed",
            details=[answer.reason],
            resolution=answer.resolution or "see to what the registry said; then the same command again",
        )
    found = labels(client, remote.with_digest(answer.digest), platform).get(INPUTS, "")
    if found != context.inputs:
        raise InputError(
            f"{remote} is taken by an image made from other inputs, and an immutable tag is never overwritten",
            details=[
                f"digest there: {answer.digest}",
                f"its inputs: {found or 'not stated'}",
                f"ours:       {context.inputs}",
            ],
            resolution="push to another --registry, or delete that tag if nobody uses it",
        )
    return True


def _check_built(engine: Engine, context: Context, given: Given) -> None:
    local = local_reference(context)
    image = engine.inspect(local)
    if image is not None and image.labels.get(INPUTS) == context.inputs:
        return
    details = [SAME_AS_BUILD, f"the tag is made from these Python packages too: {library_versions()}"]
    build = (
        f"give push what build was given; or build it: {given.command('build', select=(context.image.id,))}"
    )
    if image is None:
        raise UsageError(
            f"{context.image.id} is not built from what this command names: the engine has no {local}",
            details=details,
            resolution=build,
        )
    raise InputError(
        f"{local} was not built from what matrix, lock and templates say now",
        details=details,
        resolution=build,
    )


def move_alias(client: RegistryClient, alias: Reference, image: Manifest, platform: str) -> tuple[str, bool]:
    """Let a moving tag stand for `image` on `platform`, and for what it stood for on others.

    Returns the digest of its index and whether anything changed. Of two pushes for two architectures at the same moment one can be lost.
    """
    before = _standing(client, alias)
    mine = Descriptor(
        media_type=image.media_type, digest=image.digest, size=len(image.data), platform=platform
    )
    entries = {**{entry.platform: entry for entry in before}, platform: mine}
    data = index_text([entries[name] for name in sorted(entries)]).encode()
    try:
        if client.get_manifest(alias).data == data:
            return client.head_manifest(alias).digest, False
    except NotFound:
        pass
    return client.put_manifest(alias, data, OCI_INDEX), True


def _standing(client: RegistryClient, alias: Reference) -> list[Descriptor]:
    """Platform images that a tag stands for now; attestations belong to the index that named them and are left out."""
    try:
        manifest = client.get_manifest(alias)
    except NotFound:
        return []
    if manifest.is_index:
        return [child for child in manifest.children if child.platform and "unknown" not in child.platform]
    sink = io.BytesIO()
    client.get_blob(alias, manifest.config.digest, sink)
    platform = f"linux/{json.loads(sink.getvalue()).get('architecture', '')}"
    return [
        Descriptor(
            media_type=manifest.media_type, digest=manifest.digest, size=len(manifest.data), platform=platform
        )
    ]


def index_text(entries: list[Descriptor]) -> str:
    """An OCI image index (image spec 1.1); the same entries give the same bytes."""
    return json.dumps(
        {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [_entry(entry) for entry in entries]},
        separators=(",", ":"),
    )


def _entry(entry: Descriptor) -> dict[str, Any]:
    names = ("os", "architecture", "variant")
    platform = dict(zip(names, entry.platform.split("/"), strict=False))
    return {"mediaType": entry.media_type, "digest": entry.digest, "size": entry.size, "platform": platform}
