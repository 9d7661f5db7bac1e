"""`driverforge mirror prune`: delete from a mirror what no list needs any more."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driverforge_build.commands.mirror.listoptions import list_reader, target_or_other_options
from driverforge_build.commands.shared import adapters, options
from driverforge_build.commands.shared.output import say
from driverforge_build.commands.shared.signoptions import verifier_option

if TYPE_CHECKING:
    from driverforge_mirror.lists.target import Target
    from driverforge_mirror.shapes import KeptManifest, MirrorPruneDocument, PrunedManifest

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_COLLECT = (
    "the space is free once the registry has collected its garbage; docker's registry (distribution), while "
    "nobody pushes: registry garbage-collect CONFIG, without --delete-untagged, by which 2.8 takes the "
    "platforms out of indexes"
)


@click.command("prune", short_help="delete from a mirror, or a folder of archives, what no list needs")
@target_or_other_options
@click.option(
    "--archives",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Delete archives of this folder instead: those without a part of a list that no newer one has.",
)
@click.option(
    "--mirror-lock",
    "locks",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    default=["mirror.lock.json"],
    show_default=True,
    metavar="FILE",
    help="A list that counts: what it has stays. May be repeated, for the list before, too.",
)
@click.option(
    "--inventory",
    "inventories",
    multiple=True,
    type=_FILE,
    metavar="FILE",
    help="What this has stays, and drivers for the kernels in it: a receipt, or `driverforge mirror "
    "inventory`. May be repeated.",
)
@click.option(
    "--nodes",
    "dumps",
    multiple=True,
    type=_FILE,
    metavar="FILE",
    help="What a cluster runs stays, and drivers for the kernels of its nodes: kubectl get nodes,pods -A "
    "-o json. May be repeated.",
)
@click.option(
    "--drop",
    "dropped",
    multiple=True,
    type=_FILE,
    metavar="FILE",
    help="An old list: what it alone has goes, without a tag or in a repository that no other list has, "
    "too. May be repeated.",
)
@verifier_option
@click.option("--dry-run", is_flag=True, help="Show what stays and what would go; delete nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.json_option
def prune(
    *,
    target: Target | None,
    archives: Path | None,
    locks: tuple[Path, ...],
    inventories: tuple[Path, ...],
    dumps: tuple[Path, ...],
    dropped: tuple[Path, ...],
    verifier: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Delete images that no list needs, from the repositories of the lists alone.

    Shows first what stays, and why: each tag and digest of the lists, with their platforms and what refers to
    them, what runs, and what goes. Then it asks. Manifests go by digest; what is pushed while it asks stays.

    With --archives: whole archives, each with its volumes, sums, list and signature.

    Exit status: 0; 1 where the answer is not yes; 64 where there is nobody to ask, and no --yes; 78 where the
    registry deletes nothing; others as `driverforge --help` has them.
    """
    from driverforge_build.app.prune import PruneInputs, plan_prune

    if archives is not None and target is None and not (inventories or dumps or dropped):
        return _archives(archives, locks, verifier, dry_run=dry_run, yes=yes, as_json=as_json)
    if target is None or archives is not None:
        raise click.UsageError("name a mirror with --to, or --archives DIR and lists alone")
    client = adapters.registry_client(as_json=as_json, plain_http=target.plain_hosts)
    read = list_reader(verifier, *locks, *dropped)
    inputs = PruneInputs(locks=locks, inventories=inventories, dumps=dumps, dropped=dropped, read=read)
    plan = plan_prune(inputs, client, target)
    planned = plan.planned()
    document = plan.document(planned)
    if not as_json:
        for line in _lines(document):
            say(line)
    if planned and not dry_run:
        if not (yes or _agreed(f"{len(planned)} manifests")):
            return 1
        deleted = []
        for one in plan.carry_out():
            deleted.append(one)
            if not as_json:
                say(f"{one['state']}  {_named(one)}")
        document = plan.document(deleted)
        say(_COLLECT, err=True)
    if as_json:
        say(json.dumps(document, indent=1))
    return 0


def _archives(
    folder: Path,
    locks: tuple[Path, ...],
    verifier: tuple[str, ...],
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    from driverforge_mirror.lists.reader import load_mirror_lock
    from driverforge_mirror.prune.shelf import judge_shelf

    read = list_reader(verifier, *locks, archives=True)
    shelf = judge_shelf(folder, {str(path): load_mirror_lock(path, read) for path in locks}, read)
    going = [one for one in shelf if not one.why]
    for one in () if as_json else shelf:
        say(f"{'keep   ' if one.why else 'delete '} {folder / one.name}  {one.why}".rstrip())
    done = bool(going) and not dry_run
    if done:
        if not (yes or _agreed(f"{len(going)} archives")):
            return 1
        for one in going:
            one.delete()
    if as_json:
        gone = "deleted" if done else "planned"
        states = [{"name": one.name, "state": "kept" if one.why else gone, "why": one.why} for one in shelf]
        say(json.dumps({"schema": 1, "archives": states}, indent=1))
    return 0


def _agreed(what: str) -> bool:
    if not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask on: look at --dry-run, then say --yes")
    say(f"Delete {what}? [y/N]", err=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _lines(document: MirrorPruneDocument) -> Iterator[str]:
    for kept in document["kept"]:
        yield f"keep    {_place(kept)}  {'; '.join(kept['why'])}"
    for one in document["deleted"]:
        yield f"delete  {_named(one)}"
    for line in document["left"]:
        yield f"left    {line}"
    foreign = document["foreign"]
    if foreign is None:
        yield "the registry does not list its repositories: others than those of the lists were not looked at"
    for name in foreign or ():
        yield f"left    {name}: in no list"


def _place(kept: KeptManifest) -> str:
    tagged = f":{kept['tag']}" if kept["tag"] else ""
    return f"{kept['repository']}{tagged}@{kept['digest']}"


def _named(one: PrunedManifest) -> str:
    tags = f" ({', '.join(one['tags'])})" if one["tags"] else ""
    return f"{one['repository']}@{one['digest']}{tags}"
