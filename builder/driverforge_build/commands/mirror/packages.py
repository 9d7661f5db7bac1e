"""`driverforge mirror packages`: the packages of the list as a folder that a web server serves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from driverforge_build.commands.mirror.listoptions import (
    list_reader,
    mirror_lock_option,
    target_or_other_options,
)
from driverforge_build.commands.shared import adapters
from driverforge_build.commands.shared.output import say
from driverforge_build.commands.shared.signoptions import verifier_option

if TYPE_CHECKING:
    from driverforge_mirror.lists.target import Target


@click.command("packages", short_help="lay out the packages that nodes fetch when they compile")
@target_or_other_options
@click.option(
    "--from-archive",
    type=click.Path(path_type=Path),
    metavar="NAME",
    help="Take them out of an archive instead of a mirror.",
)
@verifier_option
@mirror_lock_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default="packages",
    show_default=True,
    metavar="DIR",
    help="The folder: files that are there and right stay, others are replaced, none is removed.",
)
@click.option(
    "--url",
    metavar="URL",
    help="Where nodes reach this folder, once a web server of yours serves it. Default: file://DIR.",
)
def packages(
    *,
    target: Target | None,
    from_archive: Path | None,
    verifier: tuple[str, ...],
    lock_path: Path,
    out: Path,
    url: str | None,
) -> None:
    """Write the packages of the list as repositories, a folder for each OS and architecture.

    They have the distribution's own indexes, with its signatures: what nodes trust stays what they trusted.
    Beside them lies a ConfigMap for each OS, repo-config-OS.yaml, which names them for the driver's pods
    (driver.repoConfig). Any web server will do.

    Exit status: 0; 65 where the list has no packages, or the archive is damaged; others as `driverforge
    --help` has them.
    """
    from driverforge_build.app import carry
    from driverforge_mirror.archive.packagefolders import configuration_name
    from driverforge_mirror.lists.reader import load_mirror_lock

    if (target is None) == (from_archive is None):
        raise click.UsageError("name a mirror with --to, or --from-archive NAME")
    address = url or out.absolute().as_uri()
    if from_archive is not None:
        archive = carry.arrived(from_archive, adapters.verifier(verifier))
        found = carry.unpack(archive, out, address)
    else:
        assert target is not None
        lock = load_mirror_lock(lock_path, list_reader(verifier, lock_path))
        client = adapters.registry_client(plain_http=target.plain_hosts)
        found = carry.unpack_held(lock, client, target, out, address)
    for one in found:
        say(f"{one.folder}  {one.files} files written, {one.held} were there")
        for line in one.definition.splitlines():
            say(f"    {line}")
    for os in sorted({one.os for one in found}):
        file, name = out / f"repo-config-{os}.yaml", configuration_name(os)
        say(f"{os}: kubectl apply --namespace gpu-operator --filename {file}")
        say(f"    helm: --set driver.repoConfig.configMapName={name}")
        say(f"    NVIDIADriver: spec.repoConfig.name: {name}")
