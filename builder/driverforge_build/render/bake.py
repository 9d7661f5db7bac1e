"""docker-bake.json: every generated image as a target of `docker buildx bake`.

People and our own engine use it alike.

Images of one OS, architecture and driver share two stages. They are targets of their own, to which the
images' stages of the same names are linked, so a site can put a published image in their place: `--set
'*.contexts.jit=docker-image://REF'`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driverforge_build.nvidia.site import mirrored
from driverforge_build.render.context import BuildContext, write_context
from driverforge_build.render.spec import ImageSpec
from driverforge_core.errors import StorageFailed

INPUTS_LABEL = "io.driverforge.inputs"
"""The image's label with the sha256 over all that went in."""

LOCAL_REGISTRY = "localhost/driverforge"
"""Where images are that were built and not pushed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCache:
    """Repositories (HOST[:PORT]/PATH) that keep the layers which images share, for other builders.

    A tag for each OS, architecture, driver and stage. Modules have none: an image that the registry has is
    not built again.
    """

    read: tuple[str, ...] = ()
    written: str = ""

    def of_stage(self, name: str) -> dict[str, Any]:
        """A bake target's keys (docs.docker.com, registry cache storage backend)."""
        keys: dict[str, Any] = {}
        if self.read:
            keys["cache-from"] = [f"type=registry,ref={one}:{name}" for one in self.read]
        if self.written:
            # a cache that cannot be written must not cost the image
            how = "mode=max,image-manifest=true,oci-mediatypes=true,ignore-error=true"
            keys["cache-to"] = [f"type=registry,ref={self.written}:{name},{how}"]
        return keys


NO_CACHE = LayerCache()


def target_name(name: str) -> str:
    """A target's name: bake allows letters, digits, '_' and '-'."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def bake_document(
    contexts: Sequence[BuildContext],
    *,
    vcs_ref: str = "",
    network: str = "",
    mirrors: Mapping[str, str] | None = None,
    cache: LayerCache = NO_CACHE,
) -> dict[str, Any]:
    """The content of docker-bake.json.

    Each context is expected in the folder that has its cell's name, beside the file. `network` is for all
    steps of all targets; buildx takes it from the file only, not from --set. Of `mirrors` those of NVIDIA's
    hosts and of vendors' repositories are taken: BuildKit itself downloads from there.
    """
    targets: dict[str, Any] = {}
    for context in contexts:
        for stage in context.image.stages:
            name = _stage_name(context, stage)
            shared = _shared_target(context, stage, mirrors or {})
            targets.setdefault(name, {**shared, **cache.of_stage(name)})
        targets[target_name(context.image.id)] = _target(context, vcs_ref, mirrors or {})
    if network:
        targets = {name: {**target, "network": network} for name, target in targets.items()}
    groups = {"default": {"targets": [target_name(context.image.id) for context in contexts]}}
    return {"group": groups, "target": dict(sorted(targets.items()))}


def bake_text(
    contexts: Iterable[BuildContext],
    *,
    vcs_ref: str = "",
    network: str = "",
    mirrors: Mapping[str, str] | None = None,
    cache: LayerCache = NO_CACHE,
) -> str:
    document = bake_document(tuple(contexts), vcs_ref=vcs_ref, network=network, mirrors=mirrors, cache=cache)
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def repository_of(registry: str, name: str = "driver") -> str:
    """The repository at a registry that a user names.

    `registry` is the operator's `driver.repository`, `name` its `driver.image`.
    """
    return f"{registry.rstrip('/')}/{name}"


def local_reference(context: BuildContext) -> str:
    """The name and immutable tag that the engine gives the image."""
    return f"{repository_of(LOCAL_REGISTRY, context.image.repository)}:{immutable_tag_of(context)}"


def immutable_tag_of(context: BuildContext) -> str:
    """The tag that is written once, ever; its revision is made from all that went in."""
    return context.image.immutable_tag(context.revision)


def _stage_name(context: BuildContext, stage: str) -> str:
    return target_name(f"{context.image.shared_id}-{stage}")


def _links(context: BuildContext, *stages: str) -> dict[str, Any]:
    links = {stage: f"target:{_stage_name(context, stage)}" for stage in stages}
    return {"contexts": links} if links else {}


def _shared_target(context: BuildContext, stage: str, mirrors: Mapping[str, str]) -> dict[str, Any]:
    """A stage as a target; the tool chain stands on the same user space target as everything else."""
    return {
        **_common(context, mirrors),
        **_links(context, *(["userspace"] if stage == "jit" else [])),
        "target": stage,
    }


def _target(context: BuildContext, vcs_ref: str, mirrors: Mapping[str, str]) -> dict[str, Any]:
    labels = {INPUTS_LABEL: context.inputs}
    if vcs_ref:
        labels |= {"vcs-ref": vcs_ref, "org.opencontainers.image.revision": vcs_ref}
    return {
        **_common(context, mirrors),
        **_links(context, *context.image.stages),
        "labels": labels,
        "tags": [local_reference(context)],
    }


def _common(context: BuildContext, mirrors: Mapping[str, str]) -> dict[str, Any]:
    image = context.image
    return {
        "context": image.id,
        "platforms": [f"linux/{image.arch}"],
        "args": {"SOURCE_DATE_EPOCH": str(image.epoch), **_downloads_at(context, mirrors)},
    }


def _downloads_at(context: BuildContext, mirrors: Mapping[str, str]) -> dict[str, str]:
    """Where mirrors have NVIDIA's archive and vendors' packages, if not at the Dockerfile's own address."""
    image = context.image
    if not isinstance(image, ImageSpec):
        return {}
    own = {"ARCHIVE_URL": image.archive.url} if image.archive else {}
    at = {name: mirrored(url, mirrors) for name, url in own.items()}
    for vendor in image.vendors:
        own[vendor.argument] = vendor.url
        keys = (f"{image.os}-{image.arch}/{vendor.id}", f"{image.os}/{vendor.id}")
        exact = next((mirrors[key] for key in keys if key in mirrors), "")
        at[vendor.argument] = (exact or mirrored(vendor.url, mirrors)).rstrip("/")
    return {name: url for name, url in at.items() if url != own[name]}


BAKE_FILE = "docker-bake.json"


def write_all(
    contexts: Sequence[BuildContext],
    output: Path,
    *,
    vcs_ref: str = "",
    network: str = "",
    mirrors: Mapping[str, str] | None = None,
    cache: LayerCache = NO_CACHE,
) -> Path:
    """Write each context to OUTPUT/<cell> and the bake file of them all; returns the bake file.

    Folders of other cells are left alone. Raises StorageFailed.
    """
    for context in contexts:
        write_context(context, output / context.image.id)
    bake_file = output / BAKE_FILE
    try:
        text = bake_text(contexts, vcs_ref=vcs_ref, network=network, mirrors=mirrors, cache=cache)
        bake_file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageFailed(
            f"{bake_file} cannot be written: {error.strerror}", resolution="give another --output"
        ) from error
    return bake_file
