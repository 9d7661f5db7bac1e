"""`driverforge mirror verify` and `inventory`: what a mirror holds of the list, or an archive's volumes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driverforge_build.commands import adapters, options
from driverforge_build.commands.mirroroptions import (
    mirror_lock_option,
    nodes_option,
    target_options,
    target_or_other_options,
    typed,
)
from driverforge_build.commands.output import say
from driverforge_build.commands.signing import verifier_option

if TYPE_CHECKING:
    from driverforge_build.documents import HeldImage, MirrorInventoryDocument
    from driverforge_build.mirror.target import Target


@click.command("verify", short_help="check a mirror, or an archive's volumes, against the list")
@target_or_other_options
@click.option(
    "--archive",
    type=click.Path(path_type=Path),
    metavar="NAME",
    help="Check volumes of this archive instead: each alone, those that are named or all.",
)
@click.argument("volumes", nargs=-1, metavar="[VOLUME]...")
@verifier_option
@mirror_lock_option
@click.option("--deep", is_flag=True, help="Look for every manifest and blob, not for the images alone.")
@options.json_option
def verify(
    *,
    target: Target | None,
    archive: Path | None,
    volumes: tuple[str, ...],
    verifier: tuple[str, ...],
    lock_path: Path,
    deep: bool,
    as_json: bool,
) -> int:
    """Check that the mirror has every image by its digest, and that its tags stand for these digests.

    With --archive: that volumes have the bytes that the list of their archive states. VOLUME is a file's name
    without its folder, which is the list's. With --verifier the list counts if its signature is accepted.

    Exit status: 0; 1 where an image is absent, incomplete, or its tag stands for another, or a volume is
    absent or damaged; 75 where the mirror did not answer for one; others as `driverforge --help` has them.
    """
    if archive is not None and target is None:
        return _verify_archive(archive, volumes, verifier, as_json=as_json)
    if target is None or archive is not None or volumes or typed("verifier"):
        raise click.UsageError("name a mirror with --to, or --archive NAME, its volumes and --verifier")
    document = _inventory(lock_path, target, deep=deep, as_json=as_json)
    if as_json:
        say(json.dumps(document, indent=1))
    else:
        for image in document["images"]:
            say(_held_line(image))
    return _verify_status(document)


def _verify_archive(
    archive: Path, volumes: tuple[str, ...], verifier: tuple[str, ...], *, as_json: bool
) -> int:
    from driverforge_build.app.carry import checked

    document = checked(archive, volumes, adapters.verifier(verifier))
    if as_json:
        say(json.dumps(document, indent=1))
    else:
        for volume in document["volumes"]:
            say(f"{volume['name']}  {volume['state']}")
    return 0 if all(volume["state"] == "held" for volume in document["volumes"]) else 1


@click.command("inventory", short_help="write down what a mirror holds of the list")
@target_options
@nodes_option
@mirror_lock_option
def inventory(*, target: Target, nodes: Path | None, lock_path: Path) -> int:
    """Print, as JSON, which images of the list the mirror holds, and every manifest and blob by digest.

    For the side that fills it: what is missing is all that has to be carried. Exit status: 0, whatever it
    holds; 75 where the mirror did not answer for an image.
    """
    document = _inventory(lock_path, target, deep=True, as_json=True, nodes=nodes)
    say(json.dumps(document, indent=1))
    return 75 if _verify_status(document) == 75 else 0


def _inventory(
    lock_path: Path, target: Target, *, deep: bool, as_json: bool, nodes: Path | None = None
) -> MirrorInventoryDocument:
    from driverforge_build.app.inventory import inventory as look_up

    plain = (target.host,) if target.plain else ()
    client = adapters.registry_client(as_json=as_json, plain_http=plain)
    return look_up(lock_path, client, target, deep=deep, nodes=nodes)


def _held_line(image: HeldImage) -> str:
    missing = len(image["missing"])
    lacks = f"{missing} of its parts {'is' if missing == 1 else 'are'} not there" if missing else ""
    why = image["reason"] or (lacks if image["state"] == "incomplete" else "")
    return f"{image['place']}  {image['state']}" + (f"  {why}" if why else "")


def _verify_status(document: MirrorInventoryDocument) -> int:
    states = {image["state"] for image in document["images"]} - {"held"}
    if "unknown" in states:
        return 75
    return 1 if states else 0
