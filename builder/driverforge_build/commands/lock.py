"""`driverforge lock`: find kernels, packages and NVIDIA's archives, and pin them."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driverforge_build.advice import Selection
from driverforge_build.commands.shared import adapters, inputs, options
from driverforge_build.commands.shared.lastread import of_cache, read_state, state_of_all
from driverforge_build.commands.shared.output import say
from driverforge_build.lock.compare import changes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from driverforge_build.app.lock import Locked
    from driverforge_build.documents.locks import BaseState, FoundArchive, LockDocument
    from driverforge_build.nvidia.archives import Pinning
    from driverforge_build.publish.bases import FoundBase
    from driverforge_core.errors import DriverforgeError


@click.command("lock")
@inputs.selection_options(inputs.base_option)
@options.mirror_option
@options.keyring_option
@options.entitlement_option
@options.cache_option
@options.offline_option
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if the lock file would change.")
@click.option(
    "--keep-going", is_flag=True, help="Write the pins of the other drivers where a driver cannot be pinned."
)
@click.option(
    "--accept-shrink",
    is_flag=True,
    help="Accept that kernels of the lock are gone from the repositories.",
)
@options.accept_expired_option
@click.option(
    "--classes/--no-classes",
    default=None,
    help="Read all header packages, so that `plan` can say which kernels differ in their names alone. "
    "Default: for systems where the lock knows that of an earlier run.",
)
@click.option(
    "--archive",
    "archives",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="An archive of NVIDIA's that you have (runfile, or redistributable tar.xz): its sha256 is pinned "
    "for the version and architecture that it says it is; may be repeated.",
)
@click.option(
    "--trust-first-use",
    is_flag=True,
    help="Download archives that NVIDIA publishes no sha256 of (about 400 MB each), and pin what comes.",
)
@click.option(
    "--accept-archive",
    "accepted",
    multiple=True,
    metavar="VERSION-ARCH=REASON",
    callback=options.pairs("VERSION-ARCH=REASON", "580.178.04-amd64='NVIDIA replaced it'"),
    help="Accept that an archive has another sha256 than the lock; the reason is recorded.",
)
@options.json_option
def command(
    *,
    selection: Selection,
    mirrors: dict[str, str],
    keyrings: list[tuple[str, Path]],
    entitlement: Path | None,
    cache_dir: Path | None,
    offline: bool,
    check: bool,
    keep_going: bool,
    accept_shrink: bool,
    accept_expired: bool,
    classes: bool | None,
    archives: tuple[Path, ...],
    trust_first_use: bool,
    accepted: dict[str, str],
    as_json: bool,
) -> int:
    """Find kernels, packages and NVIDIA's archives, and pin them; base images by the digest of now.

    Packages come from signed repositories, the archives' sha256 from NVIDIA's checksum files and manifests.
    Only the OSes and architectures of the selected cells are looked at; the pins of all others stay as they
    are in the lock file. A base image whose registry does not answer keeps its digest, and is told.

    Exit status: 0; 1 where a driver or a system could not be pinned, an archive changed, or --check finds a
    change; 69 without gpgv or a mirror; 75 where a system cannot be read now, or nobody trusted has signed
    its repositories, or NVIDIA does not answer, while the others are pinned; others as `driverforge --help`
    has them.
    """
    from driverforge_build.app.lock import lock_targets
    from driverforge_build.nvidia.archives import Decisions

    told = adapters.discovery(mirrors=mirrors, keyrings=keyrings, entitlement=entitlement)
    settings = replace(told, accept_shrink=accept_shrink, accept_expired=accept_expired, classes=classes)
    decisions = Decisions(
        today=settings.now.date(), files=archives, trust_first_use=trust_first_use, accepted=accepted
    )
    told_closed: dict[str, DriverforgeError] = {}

    def print_closed(closed: Mapping[str, DriverforgeError]) -> None:
        if not as_json:
            _print_closed({key: error for key, error in closed.items() if key not in told_closed})
        told_closed.update(closed)

    with adapters.mirrors(cache_dir, offline=offline, as_json=as_json) as downloads:
        client = None if offline else adapters.asking_client(as_json=as_json, attempts=2)
        done = lock_targets(
            selection,
            settings,
            decisions,
            downloads,
            client,
            tell_closed=print_closed,
            keep_going=keep_going,
            check=check,
        )
    if as_json:
        say(json.dumps(_document(selection.given.lock, done), indent=1))
    else:
        print_closed(done.closed)
        _print(done)
        say(_outcome(selection.given.lock, done, check=check))
    if done.degraded:
        return os.EX_TEMPFAIL
    if done.problems or (check and done.changed):
        return 1
    return os.EX_TEMPFAIL if done.nvidia_silent else 0


def _outcome(path: Path, done: Locked, *, check: bool) -> str:
    # what the cache holds says nothing of today
    known = of_cache(done.reads)
    by = f", by {known}" if known else ""
    if not done.changed:
        return f"{path} is up to date{by}"
    if check:
        return f"{path} would change{by}; nothing was written"
    return (
        f"wrote {path}{by}"
        if done.whole
        else f"{path} stays as it is: see the problems above, or --keep-going"
    )


def _print(done: Locked) -> None:
    for key, target in done.targets.items():
        before = done.before.get(key)
        flavours = Counter(kernel.flavour for kernel in target.kernels.values())
        kinds = ", ".join(f"{flavour} {count}" for flavour, count in sorted(flavours.items()))
        drivers = f"{len(target.drivers)} driver{'' if len(target.drivers) == 1 else 's'}"
        # a target is locked as a whole, also where a driver alone was selected
        named = f": {', '.join(target.drivers)}" if target.drivers else ""
        say(f"{key}: {len(target.kernels)} kernels ({kinds}), {drivers}{named}")
        for suite in target.repositories:
            until = f", valid until {suite.valid_until}" if suite.valid_until else ""
            known = of_cache([done.last_read[key][suite.suite]])
            say(f"  {suite.suite} of {suite.date}{until}, {suite.signers(16)}{known and f': {known}'}")
        if (base := done.bases.get(key)) is not None:
            say(f"  {_base_told('base', base)}")
        for driver, image in done.images[key].items():
            say(f"  {_base_told(f'{driver}: driver image', image)}")
        for line in changes(before, target) if before else ():
            say(f"  {line}")
        if older := done.kernels[key].older:
            say(f"  {len(older)} older kernels left out, as `newest:` of their series says")
        if target.without_headers:
            say(f"  {len(target.without_headers)} older kernels have no headers in the repositories any more")
        _print_hollow(key, done.kernels[key].hollow)
    if done.nowhere:
        error = next(iter(done.nowhere.values()))
        say(f"left out, for nothing says where their repositories are: {', '.join(done.nowhere)}", err=True)
        say(f"  e.g. {error.brief}; {error.resolution}", err=True)
    _print_archives(done)
    for error in done.partial.values():
        say("; ".join((error.brief, *error.details)), err=True)
    for error in [*done.partial.values()][:1]:
        say(f"  e.g. {error.resolution}", err=True)
    for what, error in (*done.degraded.items(), *done.problems.items()):
        say(f"{what}: {error.render()}", err=True)


def _print_hollow(key: str, hollow: Sequence[str]) -> None:
    """Kernels that `verify` cannot boot: images are built of their headers all the same."""
    if hollow:
        say(f"{key}: {len(hollow)} kernels are in no package that `image:` names: {hollow[-1]}", err=True)
        say(
            "  name the package that has the kernel itself in `image:` of their series in the matrix, those "
            "with its modules in `modules:`, and lock again; until then `verify` cannot boot these kernels",
            err=True,
        )


def _print_closed(closed: Mapping[str, DriverforgeError]) -> None:
    for error in closed.values():
        say("; ".join((error.brief, *error.details)), err=True)
    for error in [*closed.values()][:1]:
        say(f"  e.g. {error.resolution}", err=True)


def _base_told(what: str, found: FoundBase) -> str:
    if found.base is None:
        return f"{what} {found.reference} is not pinned: {found.problem}"
    if found.problem:
        return f"{what} {found.reference} stays {found.base.digest}: {found.problem}"
    return f"{what} {found.reference} is {found.base.digest}"


def _base_document(found: FoundBase) -> BaseState:
    return {
        "reference": found.reference,
        "digest": found.base.digest if found.base else "",
        "index": found.base.index if found.base else "",
        "state": found.freshness.value,
        "problem": found.problem,
    }


def _print_archives(done: Locked) -> None:
    from driverforge_build.nvidia.archives import told_by

    for key, pinning in done.archives.items():
        if pin := pinning.pin:
            known = of_cache([pinning.last_read] if pinning.last_read else [])
            say(f"archive {key}: sha256 {pin.sha256}, {told_by(pin)}{known and f': {known}'}")
            if pin.accepted:
                say(f"  accepted in place of another: {pin.accepted}")
        # one that failed is told below, with the drivers
        if pinning.error and not pinning.failed:
            say(f"archive {key}: {pinning.error.render()}", err=True)


def _document(path: Path, done: Locked) -> LockDocument:
    from driverforge_build.documents.failures import failure

    return {
        "schema": 1,
        "lock": str(path),
        "changed": done.changed,
        "targets": {
            key: {
                "kernels": list(target.kernels),
                "without_headers": list(target.without_headers),
                "older": list(done.kernels[key].left_out),
                "hollow": list(done.kernels[key].hollow),
                "drivers": list(target.drivers),
                "suites": {suite.suite: suite.date for suite in target.repositories},
                "state": state_of_all(done.last_read[key].values()),
                "read": {suite: read_state(one) for suite, one in done.last_read[key].items()},
                "base": _base_document(done.bases[key]) if key in done.bases else None,
                "images": {driver: _base_document(one) for driver, one in done.images[key].items()},
                "changes": changes(done.before[key], target) if key in done.before else [],
            }
            for key, target in done.targets.items()
        },
        "nowhere": {key: failure(error) for key, error in done.nowhere.items()},
        "degraded": {key: failure(error) for key, error in done.degraded.items()},
        "closed": {key: failure(error) for key, error in done.closed.items()},
        "partial": {key: failure(error) for key, error in done.partial.items()},
        "archives": {key: _archive(pinning) for key, pinning in done.archives.items()},
        "problems": {what: failure(error) for what, error in done.problems.items()},
    }


def _archive(pinning: Pinning) -> FoundArchive:
    from driverforge_build.documents.failures import failure

    pin = pinning.pin
    return {
        "pinned": pin is not None,
        "url": pin.url if pin else "",
        "sha256": pin.sha256 if pin else "",
        "origin": pin.origin.value if pin else None,
        "source": pin.source if pin else "",
        "asked_in_vain": list(pinning.told),
        "read": read_state(pinning.last_read) if pinning.last_read else None,
        "error": failure(pinning.error) if pinning.error else None,
    }
