"""`driverforge mirror explain`: why an image is in the list, or why not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driverforge_build.commands.mirror.listoptions import list_reader, mirror_lock_option
from driverforge_build.commands.shared.output import say
from driverforge_build.commands.shared.signoptions import verifier_option

if TYPE_CHECKING:
    from driverforge_mirror.shapes import MirrorLockDocument


@click.command("explain", short_help="say why an image is in the list, or why not")
@click.argument("image")
@mirror_lock_option
@verifier_option
def explain(image: str, lock_path: Path, verifier: tuple[str, ...]) -> int:
    """Say why IMAGE is needed, or why it is left out, from the lock alone.

    IMAGE is a reference, or a part of one: k8s-mig-manager. Exit status: 0, 1 where nothing in the lock has
    that name.
    """
    from driverforge_mirror.lists.reader import load_mirror_lock

    document = load_mirror_lock(lock_path, list_reader(verifier, lock_path))
    found = list(_explained(document, image))
    for line in found:
        say(line)
    if found:
        return 0
    chart = document["chart"]
    named = f"chart {chart['version']}" if chart else "the ClusterPolicy"
    say(f"{image}: neither needed nor left out: {named} does not name it", err=True)
    for line in _resembling(document, image):
        say(line, err=True)
    return 1


def _explained(document: MirrorLockDocument, wanted: str) -> Iterator[str]:
    for image in document["images"]:
        # what is in an artifact made here, its reasons name
        told = [one["text"] for one in image["reasons"]] if "addresses" in image else []
        meant = _is_meant(image["image"], wanted) or any(wanted in text for text in told)
        if meant or wanted == image["digest"]:
            yield f"{image['image']}: needed, {image['digest']}"
            for reason in image["reasons"]:
                yield f"    {reason['slot']}: {reason['text']}"
                if reason["nodes"]:
                    yield f"        nodes: {', '.join(reason['nodes'])}"
    for one in document["left_out"]:
        if _is_meant(one["image"], wanted):
            yield f"{one['image']}: left out"
            yield f"    {one['slot']}: {one['text']}"


def _is_meant(image: str, wanted: str) -> bool:
    """Whether somebody means an image by a part of its name, or by its place in a mirror."""
    return wanted in image or wanted.endswith(f"/{image.rpartition('/')[2]}")


def _resembling(document: MirrorLockDocument, wanted: str) -> Iterator[str]:
    """Images of the same name, here or in a mirror: the tag is what is wrong."""
    name = wanted.partition("@")[0].rpartition("/")[2].partition(":")[0]
    for image in document["images"]:
        if image["image"].rpartition("/")[2].startswith((f"{name}:", f"{name}@")):
            yield f"  needed of it: {image['image']}"
