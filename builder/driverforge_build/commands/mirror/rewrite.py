"""`driverforge mirror rewrite`: what makes a cluster pull from its mirror."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from driverforge_build.commands.mirror.listoptions import list_reader, mirror_lock_option, target_options
from driverforge_build.commands.shared.output import say
from driverforge_build.commands.shared.signoptions import verifier_option

if TYPE_CHECKING:
    from driverforge_mirror.lists.target import Target


@click.command("rewrite", short_help="write what makes a cluster pull from its mirror")
@target_options
@mirror_lock_option
@verifier_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default="mirror",
    show_default=True,
    metavar="DIR",
    help="The folder for the files; those of the same names are replaced.",
)
def rewrite(*, target: Target, lock_path: Path, verifier: tuple[str, ...], out: Path) -> None:
    """Write values, patches and runtime configuration with which a cluster pulls from the mirror.

    Of the values only what differs. values.yaml: for helm, behind your own. clusterpolicy-patch.yaml and
    nvidiadriver-NAME-patch.yaml: for kubectl patch --type merge --patch-file. certs.d: containerd's, for the
    folder of its registry configuration. registries.conf.d: CRI-O's and podman's. openshift.yaml: an
    ImageDigestMirrorSet and an ImageTagMirrorSet. images.txt: what is to be copied, source and place. One way
    is enough: the values or patches, or the runtimes.

    Exit status: 0, 65 where two repositories would become one; others as `driverforge --help` has them.
    """
    from driverforge_build.sharedfile import replace_text
    from driverforge_mirror.lists.reader import load_mirror_lock
    from driverforge_mirror.rewrite import not_rewritten, rewritten

    document = load_mirror_lock(lock_path, list_reader(verifier, lock_path))
    for name, text in rewritten(document, target).items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, text, option="--out")
        say(str(path))
    for line in not_rewritten(document):
        say(f"warning: {line}", err=True)
