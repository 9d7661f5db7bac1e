"""`driverforge verify`: the modules of built images in the kernels that they were made for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click

from driverforge_build.advice import Selection
from driverforge_build.commands.shared import adapters, inputs, options
from driverforge_build.commands.shared.output import say
from driverforge_build.commands.shared.signoptions import attest_options


@click.command("verify")
@click.argument("cells", nargs=-1, metavar="[CELL]...")
@inputs.selection_options(inputs.base_option, inputs.certificate_option)
@options.mirror_option
@options.keyring_option
@options.entitlement_option
@options.cache_option
@click.option(
    "--offline", is_flag=True, help="Ask no mirror: only kernels whose packages are in the cache already."
)
@click.option(
    "--silence",
    type=click.IntRange(5, 3600),
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="How long a guest may say nothing: to boot, and for each module.",
)
@options.jobs_option("Kernels that are tried at a time.")
@click.option(
    "--busybox",
    "shells",
    multiple=True,
    metavar="ARCH=FILE",
    callback=options.pairs("ARCH=FILE"),
    help="A static busybox for guests of an architecture. Default: this machine's, for its own.",
)
@click.option(
    "--junit",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the report as JUnit XML, too.",
)
@click.option(
    "--attestations",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write an in-toto statement about each image: DIR/CELL.intoto.json.",
)
@click.option(
    "--registry",
    metavar=options.REGISTRY,
    callback=options.check_registry,
    help="With --attest and --pull, where the images are: HOST[:PORT]/PATH/driver:TAG.",
)
@click.option(
    "--pull",
    "pulling",
    is_flag=True,
    help="Take the selected images that the engine does not have from --registry, as where another machine "
    "has built them.",
)
@attest_options
@options.json_option
def command(
    *,
    cells: tuple[str, ...],
    selection: Selection,
    mirrors: dict[str, str],
    keyrings: list[tuple[str, Path]],
    entitlement: Path | None,
    cache_dir: Path | None,
    offline: bool,
    silence: int,
    workers: int,
    shells: dict[str, str],
    junit: Path | None,
    attestations: Path | None,
    registry: options.Registry | None,
    pulling: bool,
    attest: adapters.Attest | None,
    as_json: bool,
) -> int:
    """Boot the kernel of each cell under QEMU and insert every module of its built image.

    A kernel takes a second or two with KVM; without it QEMU emulates, which takes some five. There is no GPU:
    nvidia.ko has to say so and leave, and whatever else a kernel can object to is a failure: a module of
    another kernel, an unknown symbol, a signature that does not fit. docs/verify.md says what a pass is.

    Without CELL and --select: every image that the engine has, with --pull every image that there is. Give
    the --matrix, --lock, --base and --sign-certificate that `build` was given. The kernel's packages come
    from its distribution, by the lock's sha256. With --attest the outcome goes beside the image in its
    registry, passed or not.

    Exit status: 0; 1 where an image failed, could not be tried, or its outcome not be attached; 64 where a
    named cell has no image; 69 without QEMU, a static busybox or an engine; others as `driverforge --help`
    has them.
    """
    from driverforge_build.app.prepare import prepare
    from driverforge_build.app.verify import Means, attach_proofs, subjects, verify_all, write_reports
    from driverforge_build.commands.shared.progress import shown_builds
    from driverforge_build.verify.findings import document, text

    if attest and registry is None:
        raise click.UsageError("--attest needs --registry: where are the images?")
    if pulling and registry is None:
        raise click.UsageError("--pull needs --registry: where from?")
    prepared = prepare(replace(selection, select=(*cells, *selection.select)))
    settings = adapters.discovery(mirrors=mirrors, keyrings=keyrings, entitlement=entitlement)
    engine = adapters.engine()
    engine.check()
    publisher = (
        adapters.publisher(registry, engine, prepared, as_json=as_json, attest=attest) if registry else None
    )
    fetch = {"fetch": publisher.fetch} if publisher and pulling else {}
    wanted = subjects(prepared, engine, named=cells, selected=selection.select, mirrors=mirrors, **fetch)
    with adapters.mirrors(cache_dir, offline=offline, as_json=as_json) as downloads:
        means = Means(
            engine=engine,
            downloads=downloads,
            settings=settings,
            guests=adapters.guests(shells),
            consoles=(cache_dir or adapters.default_cache()) / "logs" / "verify",
            silence=silence,
            workers=workers,
        )
        with shown_builds([subject.cell for subject in wanted]) as told:
            proofs = verify_all(wanted, means, told)
    if attest and publisher:
        proofs = attach_proofs(proofs, prepared, publisher)
    write_reports(proofs, junit_file=junit, statements=attestations)
    if as_json:
        say(json.dumps(document(proofs), indent=1))
    elif proofs:
        say("\n".join(text(proofs)))
    else:
        say("nothing to verify: the engine has no image of these cells with kernel modules of its own")
    return int(not all(proof.passed and not proof.not_attached for proof in proofs))
