"""`driverforge mirror`: what a closed cluster needs, by digest, and why."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from driverforge_build.commands import adapters, options
from driverforge_build.commands.output import say

if TYPE_CHECKING:
    from driverforge_build.documents import HeldImage, MirrorInventoryDocument, MirrorLockDocument
    from driverforge_build.mirror.needs import Needs
    from driverforge_build.mirror.target import Target

F = TypeVar("F", bound=Callable[..., Any])
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)

mirror_lock_option = click.option(
    "--mirror-lock",
    "lock_path",
    type=click.Path(path_type=Path, dir_okay=False),
    default="mirror.lock.json",
    show_default=True,
    metavar="FILE",
    help="The list of what the mirror has to hold, of `driverforge mirror lock`.",
)


def target_options(function: F) -> F:
    """--to and --paths; the command gets `target`."""

    @wraps(function)
    def merged(*, to: str, paths: str, **rest: Any) -> Any:
        from driverforge_build.mirror.target import Paths, Target

        return function(target=Target.parse(to, Paths(paths)), **rest)

    decorated = click.option(
        "--paths",
        type=click.Choice(["keep", "host", "flatten"]),
        default="keep",
        show_default=True,
        help="What becomes of nvcr.io/nvidia/driver below the mirror's path: nvidia/driver, "
        "nvcr.io/nvidia/driver, or driver.",
    )(merged)
    return click.option(
        "--to",
        required=True,
        metavar="[http://]HOST[:PORT][/PATH]",
        help="The mirror. http:// where it has no TLS.",
    )(decorated)  # type: ignore[return-value]


@click.group("mirror")
def command() -> None:
    """Find out which images a closed cluster needs, and look after a mirror that holds them."""


@command.command("lock", short_help="pin every image that a cluster needs, and say why")
@click.option(
    "--chart",
    metavar="FILE|DIR|VERSION",
    help="NVIDIA's chart gpu-operator: the archive of `helm pull`, its folder, or one around it; or a "
    "version that is known here, e.g. v26.7.0.",
)
@click.option(
    "--values", "-f", multiple=True, type=_FILE, metavar="FILE", help="Your values, as helm takes them."
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=_FILE,
    metavar="FILE",
    help="ClusterPolicy and NVIDIADriver objects, as kubectl get -o yaml writes them. They stand in the "
    "values' place; add --chart for the operator's own image.",
)
@click.option("--nodes", type=_FILE, metavar="FILE", help="The nodes: kubectl get nodes -o json > nodes.json")
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
@click.option(
    "--registry",
    "registries",
    multiple=True,
    metavar="HOST[/PATH]=HOST[:PORT][/PATH]",
    callback=options.pairs("HOST[/PATH]=HOST[:PORT][/PATH]", "nvcr.io=cache.site:5000/nvcr.io"),
    help="Ask another registry, a cache or the one that a mirror is filled from; may be repeated.",
)
@click.option(
    "--plan", is_flag=True, help="Only show what is needed and why; ask no registry, write nothing."
)
@mirror_lock_option
@options.json_option
def lock(
    *,
    chart: str | None,
    values: tuple[Path, ...],
    policies: tuple[Path, ...],
    nodes: Path | None,
    matrix_lock: Path | None,
    kernels: tuple[str, ...],
    registries: dict[str, str],
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
    from driverforge_build.mirror.file import dump_mirror_lock
    from driverforge_build.sharedfile import replace_text

    if not (chart or policies):
        raise click.UsageError("name --chart, or --policy with the objects of a running cluster")
    if values and not chart:
        raise click.UsageError("--values need the --chart that they are for")
    if plan and as_json:
        raise click.UsageError("--plan has no JSON: without the registries there is no lock")
    inputs = MirrorInputs(
        chart=chart, values=values, policies=policies, nodes=nodes, lock=matrix_lock, kernels=kernels
    )
    if plan:
        for line in _plan_lines(needed(inputs)):
            say(line)
        return
    document = mirror_lock(inputs, adapters.registry_client(as_json=as_json), registries)
    replace_text(lock_path, dump_mirror_lock(document), option="--mirror-lock")
    if as_json:
        say(json.dumps(document, indent=1))
        return
    for line in _lines(document):
        say(line)
    for warning in document["warnings"]:
        say(f"warning: {warning}", err=True)


def bytes_text(size: int) -> str:
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
        yield f"{image['image']}  {image['digest']}  {bytes_text(image['size'])}"
        for reason in image["reasons"]:
            yield f"    {reason['slot']}: {reason['text']}"
        for platform in image["platforms"]:
            parts |= {platform["digest"]: platform["size"], **platform["blobs"]}
    left = len(document["left_out"])
    yield (
        f"{len(document['images'])} images, {bytes_text(sum(parts.values()))} with all platforms, "
        f"parts that they share counted once; {left} left out"
    )


@command.command("explain", short_help="say why an image is in the list, or why not")
@click.argument("image")
@mirror_lock_option
def explain(image: str, lock_path: Path) -> int:
    """Say why IMAGE is needed, or why it is left out, from the lock alone.

    IMAGE is a reference, or a part of one: k8s-mig-manager. Exit status: 0, 1 where nothing in the lock has
    that name.
    """
    from driverforge_build.mirror.file import load_mirror_lock

    document = load_mirror_lock(lock_path)
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
        if wanted in image["image"] or wanted == image["digest"]:
            yield f"{image['image']}: needed, {image['digest']}"
            for reason in image["reasons"]:
                yield f"    {reason['slot']}: {reason['text']}"
                if reason["nodes"]:
                    yield f"        nodes: {', '.join(reason['nodes'])}"
    for one in document["left_out"]:
        if wanted in one["image"]:
            yield f"{one['image']}: left out"
            yield f"    {one['slot']}: {one['text']}"


def _resembling(document: MirrorLockDocument, wanted: str) -> Iterator[str]:
    """Images of the same repository: the tag is what is wrong."""
    repository = wanted.partition("@")[0].rpartition(":")[0] or wanted
    for image in document["images"]:
        if image["image"].startswith((f"{repository}:", f"{repository}@")):
            yield f"  needed of it: {image['image']}"


@command.command("rewrite", short_help="write what makes a cluster pull from its mirror")
@target_options
@mirror_lock_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default="mirror",
    show_default=True,
    metavar="DIR",
    help="The folder for the files; those of the same names are replaced.",
)
def rewrite(*, target: Target, lock_path: Path, out: Path) -> None:
    """Write values, patches and runtime configuration with which a cluster pulls from the mirror.

    Of the values only what differs. values.yaml: for helm, behind your own. clusterpolicy-patch.yaml and
    nvidiadriver-NAME-patch.yaml: for kubectl patch --type merge --patch-file. certs.d: containerd's, for the
    folder of its registry configuration. registries.conf.d: CRI-O's and podman's. openshift.yaml: an
    ImageDigestMirrorSet and an ImageTagMirrorSet. images.txt: what is to be copied, source and place. One way
    is enough: the values or patches, or the runtimes.

    Exit status: 0, 65 where two repositories would become one; others as `driverforge --help` has them.
    """
    from driverforge_build.mirror.file import load_mirror_lock
    from driverforge_build.mirror.rewrite import not_rewritten, rewritten
    from driverforge_build.sharedfile import replace_text

    document = load_mirror_lock(lock_path)
    for name, text in rewritten(document, target).items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, text, option="--out")
        say(str(path))
    for line in not_rewritten(document):
        say(f"warning: {line}", err=True)


@command.command("verify", short_help="check a mirror against the list")
@target_options
@mirror_lock_option
@click.option("--deep", is_flag=True, help="Look for every manifest and blob, not for the images alone.")
@options.json_option
def verify(*, target: Target, lock_path: Path, deep: bool, as_json: bool) -> int:
    """Check that the mirror has every image by its digest, and that its tags stand for these digests.

    Exit status: 0; 1 where an image is absent, incomplete, or its tag stands for another; 75 where the mirror
    did not answer for one; others as `driverforge --help` has them.
    """
    document = _inventory(lock_path, target, deep=deep, as_json=as_json)
    if as_json:
        say(json.dumps(document, indent=1))
    else:
        for image in document["images"]:
            say(_held_line(image))
    return _verify_status(document)


@command.command("inventory", short_help="write down what a mirror holds of the list")
@target_options
@mirror_lock_option
def inventory(*, target: Target, lock_path: Path) -> int:
    """Print, as JSON, which images of the list the mirror holds, and every manifest and blob by digest.

    For the side that fills it: what is missing is all that has to be carried. Exit status: 0, whatever it
    holds; 75 where the mirror did not answer for an image.
    """
    document = _inventory(lock_path, target, deep=True, as_json=True)
    say(json.dumps(document, indent=1))
    return 75 if _verify_status(document) == 75 else 0


def _inventory(lock_path: Path, target: Target, *, deep: bool, as_json: bool) -> MirrorInventoryDocument:
    from driverforge_build.app.mirror import inventory as look_up

    plain = (target.host,) if target.plain else ()
    client = adapters.registry_client(as_json=as_json, plain_http=plain)
    return look_up(lock_path, client, target, deep=deep)


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
