"""From what NVIDIA publishes, a user has and the lock holds, to the pin of an archive.

A pin that is in the lock stays there: it is compared with what is published today, and another digest is an
error that names both, until a person accepts it with a reason. What nobody publishes is pinned only by a
person's decision: a file that they have, or trust in the first download.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from driverforge_build.lock.pins import Lock, LockedArchive, Origin, archive_key
from driverforge_build.nvidia.inside import inside
from driverforge_build.nvidia.published import Answer, Wanted, ask, redistributable_url
from driverforge_build.nvidia.site import Site
from driverforge_build.ports import LastRead
from driverforge_core.driverversion import DriverVersion
from driverforge_core.errors import (
    DriverforgeError,
    InputError,
    TemporaryFailure,
    Unavailable,
    UsageError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """What a person decides: files that they have, trust in a first download, digests that may change.

    `accepted` maps '580.178.04-amd64' to the reason. `today` is UTC's.
    """

    today: date
    files: tuple[Path, ...] = ()
    trust_first_use: bool = False
    accepted: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinning:
    """What came of one archive. `pin` is what the lock is to hold, None where it holds nothing.

    `error` says why there is none, or that what is published differs from the pin. `undecided`: a person has
    to decide, and nothing failed. `told` are the places that were asked in vain. `last_read` is when the
    place that has a sha256 said so, None where none does, or none was asked.
    """

    pin: LockedArchive | None = None
    error: DriverforgeError | None = None
    undecided: bool = False
    told: tuple[str, ...] = ()
    last_read: LastRead | None = None

    @property
    def recorded(self) -> LockedArchive | None:
        """What goes into the lock. What the matrix pins stands there alone, until it replaces a pin."""
        pin = self.pin
        return None if pin is None or (pin.origin is Origin.MATRIX and not pin.accepted) else pin

    @property
    def failed(self) -> bool:
        return self.error is not None and not self.undecided and not self.silent

    @property
    def silent(self) -> bool:
        """Whether the same run may end differently later."""
        return isinstance(self.error, TemporaryFailure)


def pin_archives(
    wanted: Sequence[Wanted], earlier: Lock, site: Site, decisions: Decisions
) -> dict[str, Pinning]:
    """What came of each archive, by its key.

    Raises UsageError for a file or an accepted digest that no wanted archive is about, InputError for a file
    that is no archive of NVIDIA's.
    """
    by_key = {archive_key(one.version, one.arch): one for one in wanted}
    if stray := sorted(set(decisions.accepted) - set(by_key)):
        raise UsageError(
            f"--accept-archive names {', '.join(stray)}, which no selected cell needs",
            resolution=f"write one of {_some(by_key)}",
        )
    files = _files(decisions, by_key, site)
    return {
        key: _pinned(one, earlier.archives.get(key), files.get(key), site, decisions)
        for key, one in by_key.items()
    }


def _pinned(
    wanted: Wanted, known: LockedArchive | None, given: LockedArchive | None, site: Site, decisions: Decisions
) -> Pinning:
    held = given or known
    answer = Answer(found=_of_row(wanted)) if wanted.sha256 else ask(wanted, site, held.name if held else "")
    if held is None:
        return _first(wanted, answer, site, decisions)
    best = answer.found or held
    for other in (one for one in (known, given) if one is not None and one.sha256 != best.sha256):
        reason = decisions.accepted.get(other.key, "")
        if not reason:
            return Pinning(
                pin=known, error=_changed(other, best), told=answer.told, last_read=answer.last_read
            )
        best = replace(best, accepted=f"{reason} (before: sha256 {other.sha256})")
    # what NVIDIA says is worth more than what was trusted; what the lock has so already stays as it is
    better = answer.found is not None and answer.found.origin.published
    stays = known is not None and known.sha256 == best.sha256 and (known.origin.published or not better)
    return Pinning(pin=known if stays else best, told=answer.told, last_read=answer.last_read)


def _of_row(wanted: Wanted) -> LockedArchive:
    return LockedArchive(
        version=wanted.version,
        arch=wanted.arch,
        url=wanted.url,
        sha256=wanted.sha256,
        size=0,
        origin=Origin.MATRIX,
        source="`sha256:` of the driver's row",
    )


def _first(wanted: Wanted, answer: Answer, site: Site, decisions: Decisions) -> Pinning:
    """An archive that the lock knows nothing of, and of which nobody gave a file."""
    if answer.found:
        return Pinning(pin=answer.found, told=answer.told, last_read=answer.last_read)
    name = f"{wanted.version} for {wanted.arch}"
    if answer.silent:
        error: DriverforgeError = TemporaryFailure(
            f"NVIDIA's archive {name} is not pinned: not every place that may have its sha256 answers",
            details=answer.told,
            resolution="run the same command again later, name a mirror of NVIDIA's hosts with "
            "--mirror nvidia=URL, or give a file that you have with --archive FILE",
        )
        return Pinning(error=error, told=answer.told)
    if decisions.trust_first_use:
        return _trusted(wanted, answer, site, decisions.today)
    error = Unavailable(
        f"NVIDIA's archive {name} is not pinned: no sha256 of it was found where NVIDIA publishes them",
        details=answer.told,
        resolution=f"--trust-first-use downloads {wanted.url} once and pins what comes; --archive FILE pins "
        "one that you have",
    )
    return Pinning(error=error, undecided=True, told=answer.told)


def _trusted(wanted: Wanted, answer: Answer, site: Site, today: date) -> Pinning:
    try:
        measured = site.measured(wanted.url)
    except DriverforgeError as failure:
        return Pinning(error=failure, told=answer.told)
    found = inside(measured.head)
    if found is None or (found.version, found.arch) != (_plain(wanted.version), wanted.arch):
        what = f"{found.version} for {found.arch}" if found else "no archive of NVIDIA's driver"
        error = Unavailable(
            f"{wanted.url} is not the driver {wanted.version} for {wanted.arch}",
            details=[f"it is {what}: {measured.size} bytes, sha256 {measured.sha256}"],
            resolution="correct `url:` of the driver's row in the matrix",
        )
        return Pinning(error=error, told=answer.told)
    pin = replace(
        _of_row(wanted),
        sha256=measured.sha256,
        size=measured.size,
        origin=Origin.FIRST_USE,
        source=wanted.url,
        date=f"{today:%Y-%m-%d}",
    )
    return Pinning(pin=pin, told=answer.told)


def _files(decisions: Decisions, by_key: Mapping[str, Wanted], site: Site) -> dict[str, LockedArchive]:
    """The archives that `--archive` names, by the key of the driver that they say they are."""
    found: dict[str, LockedArchive] = {}
    for path in decisions.files:
        measured = site.measured(path.resolve().as_uri())
        what = inside(measured.head)
        if what is None:
            raise InputError(
                f"{path} is no archive of NVIDIA's driver that can be read",
                details=[f"{measured.size} bytes, sha256 {measured.sha256}"],
                resolution="give NVIDIA-Linux-*.run or nvidia_driver-linux-*-archive.tar.xz as NVIDIA has it",
            )
        fitting = {
            key: one
            for key, one in by_key.items()
            if (_plain(one.version), one.arch) == (what.version, what.arch)
        }
        if not fitting:
            raise UsageError(
                f"{path} is the driver {what.version} for {what.arch}, which no selected cell takes from an "
                "archive of NVIDIA's",
                details=[f"wanted: {_some(by_key)}"],
                resolution="leave it out, or set `version:` of the driver's row in the matrix",
            )
        for key, one in fitting.items():
            found[key] = LockedArchive(
                version=one.version,
                arch=one.arch,
                url=one.url if what.runfile else redistributable_url(one),
                sha256=measured.sha256,
                size=measured.size,
                origin=Origin.FILE,
                source=path.name,
                date=f"{decisions.today:%Y-%m-%d}",
            )
    return found


def _changed(before: LockedArchive, now: LockedArchive) -> InputError:
    return InputError(
        f"NVIDIA's archive {before.key} has another sha256 than the one that is pinned; the pin stays",
        details=[f"{before.sha256}  {told_by(before)}", f"{now.sha256}  {told_by(now)}"],
        resolution="find out which is right; if it is the new one: "
        f"--accept-archive '{before.key}=why you trust it'",
    )


def told_by(archive: LockedArchive) -> str:
    """Who says that this is the archive's sha256, as a clause."""
    match archive.origin:
        case Origin.MATRIX:
            return f"as the matrix says: {archive.source}"
        case Origin.CHECKSUM_FILE | Origin.MANIFEST:
            return f"as {archive.source} says"
        case Origin.FIRST_USE:
            return f"trusted at its first download on {archive.date}, {archive.size} bytes from {archive.url}"
        case Origin.FILE:
            return f"of the file {archive.source} given on {archive.date}, {archive.size} bytes"


def _plain(version: str) -> str:
    return DriverVersion(version).without_grid


def _some(keys: Mapping[str, object]) -> str:
    return ", ".join(sorted(keys)) or "nothing: no selected cell has payload runfile"
