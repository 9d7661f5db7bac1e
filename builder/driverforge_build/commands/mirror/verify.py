"""`driverforge mirror verify` and `inventory`: what a mirror holds of the list, or an archive's volumes."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driverforge_build.commands.mirror.copyprogress import shown_copy
from driverforge_build.commands.mirror.listoptions import (
    list_reader,
    mirror_lock_option,
    nodes_option,
    target_options,
    target_or_other_options,
)
from driverforge_build.commands.shared import adapters, options
from driverforge_build.commands.shared.output import say
from driverforge_build.commands.shared.signoptions import verifier_option

if TYPE_CHECKING:
    from driverforge_mirror.lists.target import Target
    from driverforge_mirror.shapes import HeldImage, MirrorInventoryDocument
    from driverforge_mirror.yamltext import Read

_DAMAGED = (
    "take what is damaged out of the registry's storage, for it believes that it has it; with docker's "
    "registry (distribution), stopped, that is the folder blobs/sha256/XX/XXXX… of each digest"
)


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
@click.option(
    "--deep",
    is_flag=True,
    help="Look for every manifest and blob, not for the images alone, and read the bytes of each.",
)
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

    Exit status: 0; 1 where an image is absent, incomplete, damaged, or its tag stands for another, or a
    volume is absent or damaged; 75 where the mirror did not answer for one; others as `driverforge --help`
    has them.
    """
    if archive is not None and target is None:
        return _verify_archive(archive, volumes, verifier, as_json=as_json)
    if target is None or archive is not None or volumes:
        raise click.UsageError("name a mirror with --to, or --archive NAME and its volumes")
    read = list_reader(verifier, lock_path)
    document = (
        _read(lock_path, read, target, as_json=as_json)
        if deep
        else _inventory(lock_path, read, target, deep=False, as_json=as_json)
    )
    if as_json:
        say(json.dumps(document, indent=1))
    else:
        for image in document["images"]:
            say(_held_line(image))
        for step in _next_steps(document, target, lock_path, verifier):
            say(f"next: {step}", err=True)
    return _verify_status(document)


def _read(lock_path: Path, read: Read, target: Target, *, as_json: bool) -> MirrorInventoryDocument:
    from driverforge_build.app.reading import read_mirror
    from driverforge_mirror.copying.tide import Tide

    with shown_copy(as_json=as_json, each=False) as progress:
        tide = Tide(now=time.monotonic)
        client = adapters.sides(tide, progress.waiting)(target.plain_hosts)
        return read_mirror(lock_path, client, target, tide, progress, read=read)


def _next_steps(
    document: MirrorInventoryDocument, target: Target, lock_path: Path, verifier: tuple[str, ...]
) -> list[str]:
    from driverforge_mirror.lists.reader import ARCHIVE_LIST

    states = {image["state"] for image in document["images"]}
    steps = []
    if "damaged" in states:
        steps.append(_DAMAGED)
    if states & {"absent", "incomplete", "damaged", "moved"}:
        scheme = "http://" if target.plain else ""
        # where an archive's list is, no vendor's registry may be reached
        archive = str(lock_path).endswith(ARCHIVE_LIST)
        source = ["--from-archive", str(lock_path).removesuffix(ARCHIVE_LIST)] if archive else []
        source += ["--verifier", shlex.join(verifier)] if archive and verifier else []
        listed = source or ["--mirror-lock", str(lock_path)]
        words = ["--to", f"{scheme}{document['mirror']}", "--paths", target.paths.value, *listed]
        steps.append(f"bring what is not there: driverforge mirror copy --deep {shlex.join(words)}")
    return steps


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
@verifier_option
def inventory(*, target: Target, nodes: Path | None, lock_path: Path, verifier: tuple[str, ...]) -> int:
    """Print, as JSON, which images of the list the mirror holds, and every manifest and blob by digest.

    For the side that fills it: what is missing is all that has to be carried. Exit status: 0, whatever it
    holds; 75 where the mirror did not answer for an image.
    """
    read = list_reader(verifier, lock_path)
    document = _inventory(lock_path, read, target, deep=True, as_json=True, nodes=nodes)
    say(json.dumps(document, indent=1))
    return 75 if _verify_status(document) == 75 else 0


def _inventory(
    lock_path: Path, read: Read, target: Target, *, deep: bool, as_json: bool, nodes: Path | None = None
) -> MirrorInventoryDocument:
    from driverforge_build.app.inventory import inventory as look_up

    client = adapters.registry_client(as_json=as_json, plain_http=target.plain_hosts)
    return look_up(lock_path, client, target, deep=deep, nodes=nodes, read=read)


def _held_line(image: HeldImage) -> str:
    missing = len(image["missing"])
    lacks = f"{missing} of its parts {'is' if missing == 1 else 'are'} not there" if missing else ""
    damaged = image.get("damaged", [])
    if damaged:
        return f"{image['place']}  damaged  other bytes than its digest says: {', '.join(damaged)}"
    why = image["reason"] or (lacks if image["state"] == "incomplete" else "")
    return f"{image['place']}  {image['state']}" + (f"  {why}" if why else "")


def _verify_status(document: MirrorInventoryDocument) -> int:
    states = {image["state"] for image in document["images"]} - {"held"}
    if "unknown" in states:
        return 75
    return 1 if states else 0
