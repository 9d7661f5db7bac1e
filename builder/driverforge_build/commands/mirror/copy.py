"""`driverforge mirror copy`: the images of the list, to a mirror or into an archive and out of it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driverforge_build.commands.mirror.copyprogress import shown_copy
from driverforge_build.commands.mirror.listoptions import (
    list_reader,
    mirror_lock_option,
    nodes_option,
    paths_option,
    registries_option,
)
from driverforge_build.commands.shared import adapters, options
from driverforge_build.commands.shared.output import say
from driverforge_build.commands.shared.signoptions import program, verifier_option

if TYPE_CHECKING:
    from driverforge_mirror.lists.target import Sources
    from driverforge_mirror.shapes import MirrorCopyDocument

_ARCHIVE = click.Path(path_type=Path)
_SUFFIXES = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def _bytes(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int:
    """'4G' as a number of bytes."""
    if value is None:
        return 0
    number, factor = value.upper().removesuffix("B"), 1
    if number and number[-1] in _SUFFIXES:
        number, factor = number[:-1], _SUFFIXES[number[-1]]
    if not number.isdecimal() or int(number) * factor < 10**6:
        raise click.BadParameter(f"{value!r} is no size of a volume; write e.g. 4G, 700M; 1M at least")
    return int(number) * factor


@click.command("copy", short_help="copy the list's images to a mirror, into an archive, or out of one")
@click.option(
    "--to",
    metavar="[http://]HOST[:PORT][/PATH]",
    help="The mirror. http:// where it has no TLS.",
)
@paths_option
@click.option(
    "--deep",
    is_flag=True,
    help="With --to, ask the mirror for every part of images whose tag it has, and bring what is missing.",
)
@click.option(
    "--to-archive",
    type=_ARCHIVE,
    metavar="NAME",
    help="Write NAME.tar (or volumes NAME.tar.001 …), and NAME.list.json, which says what is in them.",
)
@click.option("--from-archive", type=_ARCHIVE, metavar="NAME", help="Read an archive instead of registries.")
@click.option(
    "--volume-size",
    callback=_bytes,
    metavar="SIZE",
    help="Cut the archive into files of this size at most, e.g. 4G.",
)
@click.option(
    "--inventory",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Leave out what the receiver holds by this file: a receipt, or `driverforge mirror inventory`.",
)
@registries_option("Take images from another registry than their names say; may be repeated.")
@click.option(
    "--signer",
    metavar="COMMAND",
    callback=program,
    help="Sign the archive's list by this program: it reads the list on standard input, and prints the "
    "signature, for NAME.list.json.sig. Run without a shell.",
)
@verifier_option
@click.option(
    "--receipt",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="With --from-archive, write down what the mirror holds then, for whoever made the archive: their "
    "--inventory for the next one.",
)
@nodes_option
@options.cache_option
@mirror_lock_option
@options.json_option
def copy(
    *,
    to: str | None,
    paths: str,
    deep: bool,
    to_archive: Path | None,
    from_archive: Path | None,
    volume_size: int,
    inventory: Path | None,
    sources: Sources,
    signer: tuple[str, ...],
    verifier: tuple[str, ...],
    receipt: Path | None,
    nodes: Path | None,
    cache_dir: Path | None,
    lock_path: Path,
    as_json: bool,
) -> int:
    """Copy all images of the list, by digest and with all platforms.

    From the registries of their names to a mirror (--to) or into an archive (--to-archive), and from an
    archive to a mirror (--from-archive with --to). What is there already is not sent again; a run that was
    stopped goes on where it was. Every byte is compared with its digest.

    Exit status: 0; 1 where an image failed; 75 where a later run may succeed; others as `driverforge --help`
    has them.
    """
    if (to is None) == (to_archive is None):
        raise click.UsageError("say where to: --to HOST[:PORT][/PATH], or --to-archive NAME")
    if from_archive is not None and to is None:
        raise click.UsageError("--from-archive needs the mirror: --to HOST[:PORT][/PATH]")
    if deep and to is None:
        raise click.UsageError("--deep is for --to: an archive's parts are always looked at")
    if to_archive is None and (volume_size or inventory):
        raise click.UsageError("--volume-size and --inventory are for --to-archive")
    if signer and to_archive is None:
        raise click.UsageError("--signer is for --to-archive")
    if (from_archive is None and receipt) or (receipt is None and nodes):
        raise click.UsageError("--receipt is for --from-archive, and --nodes for --receipt")
    if from_archive is not None and sources.places:
        raise click.UsageError("--registry is for copies from registries; an archive asks none")
    from driverforge_build.app import carry
    from driverforge_build.sharedfile import replace_text
    from driverforge_mirror.copying.tide import Tide
    from driverforge_mirror.lists.reader import load_mirror_lock
    from driverforge_mirror.lists.target import Paths, Target

    target = Target.parse(to, Paths(paths)) if to is not None else None
    read = list_reader(verifier, lock_path, archives=from_archive is not None)
    with shown_copy(as_json=as_json) as progress:
        tide = Tide(now=time.monotonic)
        files = adapters.copying_downloads(cache_dir, progress.waiting)
        carrying = carry.Carrying(tide=tide, listener=progress, files=files)
        client = adapters.sides(tide, progress.waiting)
        begun = (cache_dir or adapters.default_cache()) / "uploads.json"
        if target is None:
            assert to_archive is not None
            document = carry.save(
                carrying,
                load_mirror_lock(lock_path, read),
                client(sources.plain_hosts),
                to_archive,
                registries=sources.places,
                volume_size=volume_size,
                inventory=inventory,
                signer=adapters.list_signer(signer),
            )
        elif from_archive is not None:
            archive, mirror = (
                carry.arrived(from_archive, adapters.verifier(verifier)),
                client(target.plain_hosts),
            )
            document = carry.load(carrying, archive, mirror, target, begun=begun, deep=deep)
            if receipt:
                told = carry.receipt(archive, mirror, target, nodes)
                replace_text(receipt, json.dumps(told, indent=1) + "\n", option="--receipt")
        else:
            document = carry.copy_between(
                carrying,
                load_mirror_lock(lock_path, read),
                client(sources.plain_hosts),
                client(target.plain_hosts),
                target,
                registries=sources.places,
                begun=begun,
                deep=deep,
            )
    return _ended(document, as_json=as_json)


def _ended(document: MirrorCopyDocument, *, as_json: bool) -> int:
    failed = [image for image in document["images"] if image["state"] == "failed"]
    if as_json:
        say(json.dumps(document, indent=1))
    else:
        held = sum(image["state"] == "held" for image in document["images"])
        copied = len(document["images"]) - held - len(failed)
        sent = f"{document['sent'] / 1e6:.1f} MB sent"
        say(f"{copied} copied, {held} were there, {len(failed)} failed; {sent}")
        if document["list"]:
            say(document["list"])
        steps = dict.fromkeys(image["error"]["resolution"] for image in failed if image["error"])
        for step in filter(None, steps):
            say(f"next: {step}", err=True)
    statuses = {image["error"]["exit_status"] for image in failed if image["error"]}
    return 0 if not failed else 75 if statuses == {75} else 1
