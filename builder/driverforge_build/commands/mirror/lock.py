"""`driverforge mirror lock`: what a cluster needs, asked for in its registries."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driverforge_build.commands.mirror.listoptions import LiveOrFile, mirror_lock_option, registries_option
from driverforge_build.commands.shared import adapters, inputs, options
from driverforge_build.commands.shared.output import say

if TYPE_CHECKING:
    from driverforge_mirror.contents.chartarchive import ChartArchive
    from driverforge_mirror.lists.target import Sources
    from driverforge_mirror.needs.needed import Needs
    from driverforge_mirror.ports import Files
    from driverforge_mirror.shapes import MirrorLockDocument
    from driverforge_oci.client import RegistryClient

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command("lock", short_help="pin every image that a cluster needs, and say why")
@click.option(
    "--chart",
    metavar="FILE|DIR|VERSION|oci://REF",
    help="NVIDIA's chart gpu-operator, or ours: the archive of `helm pull`, its folder, or one around it; "
    "its place in a registry; a version of NVIDIA's that is known here, e.g. v26.7.0; or driverforge, which "
    "is ours. The chart itself is in the list unless it is a folder, or known here.",
)
@click.option(
    "--chart-repository",
    metavar="URL",
    help="Take the chart of that version out of this repository, as helm's --repo does.",
)
@click.option(
    "--values", "-f", multiple=True, type=_FILE, metavar="FILE", help="Your values, as helm takes them."
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=LiveOrFile("clusterpolicies,nvidiadrivers"),
    metavar="FILE|live",
    help="ClusterPolicy and NVIDIADriver objects, as kubectl get -o yaml writes them; live: those of the "
    "cluster. They stand in the values' place; add --chart for the operator's own image.",
)
@click.option(
    "--nodes",
    type=LiveOrFile("nodes"),
    metavar="FILE|live",
    help="The nodes: kubectl get nodes -o json > nodes.json; live: those of the cluster that kubectl speaks "
    "to (KUBECONFIG), with the right to list them.",
)
@click.option(
    "--lock",
    "matrix_lock",
    type=_FILE,
    metavar="FILE",
    help="driverforge.lock.json, which knows the newest kernels: precompiled drivers for them are in, too.",
)
@click.option(
    "--kernel",
    "kernels",
    multiple=True,
    metavar="RELEASE",
    help="A kernel that nodes will boot next, as `uname -r` says it; may be repeated.",
)
@registries_option("Ask another registry, a cache or the one that a mirror is filled from; may be repeated.")
@click.option(
    "--platform",
    "platforms",
    multiple=True,
    metavar="OS/ARCH",
    help="Take this platform of each image alone, e.g. linux/amd64; may be repeated. Digests are then those "
    "of the choice.",
)
@click.option(
    "--packages",
    "with_packages",
    is_flag=True,
    help="Take the packages along that nodes fetch when they compile the driver, for their kernels and the "
    "newest of the repositories. The next options say where these are, as in `driverforge lock`.",
)
@inputs.matrix_option
@options.mirror_option
@options.keyring_option
@options.entitlement_option
@options.accept_expired_option
@options.cache_option
@click.option(
    "--plan", is_flag=True, help="Only show what is needed and why; ask no registry, write nothing."
)
@mirror_lock_option
@options.json_option
def lock(
    *,
    chart: str | None,
    chart_repository: str | None,
    values: tuple[Path, ...],
    policies: tuple[Path, ...],
    nodes: Path | None,
    matrix_lock: Path | None,
    kernels: tuple[str, ...],
    sources: Sources,
    platforms: tuple[str, ...],
    with_packages: bool,
    matrix: Path | None,
    mirrors: dict[str, str],
    keyrings: list[tuple[str, Path]],
    entitlement: Path | None,
    accept_expired: bool,
    cache_dir: Path | None,
    plan: bool,
    lock_path: Path,
    as_json: bool,
) -> None:
    """Pin every image that a cluster needs by its digest, each with the reason why it is in.

    Settings come from the chart with your values, or from a ClusterPolicy and NVIDIADrivers; systems and
    kernels from the nodes. Every image is asked for in its registry. One that does not exist, or of which a
    registry says nothing, is an error: the list is whole, or there is none.

    Exit status: 0, 65 where an input is wrong or an image does not exist, 75 where a registry did not answer;
    others as `driverforge --help` has them.
    """
    from driverforge_build.app.mirror import MirrorInputs, mirror_lock, needed
    from driverforge_build.matrix.load import load_matrix
    from driverforge_build.nodepackages import Repositories
    from driverforge_build.sharedfile import replace_text
    from driverforge_mirror.contents.listtext import dump_mirror_lock

    if not (chart or policies):
        raise click.UsageError("name --chart, or --policy with the objects of a running cluster")
    if values and not chart:
        raise click.UsageError("--values need the --chart that they are for")
    if plan and as_json:
        raise click.UsageError("--plan has no JSON: without the registries there is no lock")
    if chart_repository and not chart:
        raise click.UsageError("--chart-repository needs the --chart that is in it, e.g. --chart v26.7.0")
    client = adapters.registry_client(as_json=as_json, plain_http=sources.plain_hosts)
    with adapters.mirrors(cache_dir, offline=False, as_json=as_json) as downloads:
        archive = _chart_archive(chart, chart_repository, client, sources.places, downloads)
    given = MirrorInputs(
        chart=chart,
        archive=archive,
        values=values,
        policies=policies,
        nodes=nodes,
        lock=matrix_lock,
        kernels=kernels,
        platforms=platforms,
    )
    if plan:
        for line in _plan_lines(needed(given, adapters.input_reader())):
            say(line)
        return
    with adapters.mirrors(cache_dir, offline=False, as_json=as_json) as downloads:
        repositories = None
        if with_packages:
            told = adapters.discovery(mirrors=mirrors, keyrings=keyrings, entitlement=entitlement)
            settings = replace(told, accept_expired=accept_expired)
            repositories = Repositories(matrix=load_matrix(matrix), settings=settings, downloads=downloads)
        document = mirror_lock(given, client, sources.places, repositories, read=adapters.input_reader())
    replace_text(lock_path, dump_mirror_lock(document), option="--mirror-lock")
    if as_json:
        say(json.dumps(document, indent=1))
        return
    for line in _lines(document):
        say(line)
    for warning in document["warnings"]:
        say(f"warning: {warning}", err=True)


def _bytes_text(size: int) -> str:
    """A size for people, in powers of ten."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def _plan_lines(needs: Needs) -> Iterator[str]:
    for image, reasons in sorted(needs.images.items()):
        yield image
        for reason in reasons:
            yield f"    {reason.slot}: {reason.text}"
    for one in needs.left_out:
        yield f"left out: {one.image}"
        yield f"    {one.slot}: {one.text}"
    for warning in needs.warnings:
        yield f"warning: {warning}"


def _lines(document: MirrorLockDocument) -> Iterator[str]:
    parts: dict[str, int] = {}
    for image in document["images"]:
        yield f"{image['image']}  {image['digest']}  {_bytes_text(image['size'])}"
        for reason in image["reasons"]:
            yield f"    {reason['slot']}: {reason['text']}"
        for one in image["attached"]:
            yield f"    with {one['tag'] or one['kind'] or one['digest']}"
        for content in (image, *image["attached"]):
            for platform in content["platforms"]:
                parts |= {platform["digest"]: platform["size"], **platform["blobs"]}
    left = len(document["left_out"])
    yield (
        f"{len(document['images'])} images, {_bytes_text(sum(parts.values()))} "
        f"parts that they share counted once; {left} left out"
    )


def _chart_archive(
    chart: str | None,
    repository: str | None,
    client: RegistryClient,
    registries: Mapping[str, str],
    files: Files,
) -> ChartArchive | None:
    """The chart's archive, of --chart and --chart-repository.

    None for a folder, and for a version that is known here.
    """
    from driverforge_mirror.contents.chartarchive import (
        OCI,
        chart_file,
        chart_in_registry,
        chart_in_repository,
    )

    if chart and repository:
        return chart_in_repository(files, repository, chart)
    if chart and chart.startswith(OCI):
        return chart_in_registry(client, chart, registries)
    return chart_file(Path(chart)) if chart and Path(chart).is_file() else None
