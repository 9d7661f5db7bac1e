"""What a later run cannot see by looking: the journal of kernel state, and the PIDs of our daemons.

Both are files below /run/nvidia/driverforge, written atomically, so one that cannot be read comes from
another program or another version. It counts as none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from driverforge_driver.state import paths
from driverforge_host.ports import Files, Host, text_of


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelJournal:
    """What we changed in the running kernel."""

    # configuration digest of a load that has begun and is not recorded as done, '' for none
    loading: str = ""
    # the kernel's firmware search path before we set it; None: we did not set it
    firmware_path_before: str | None = None
    # paths of the firmware files that we wrote
    firmware: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningDaemon:
    """A daemon of ours that runs."""

    name: str
    pid: int


def read_document(files: Files, path: str) -> object:
    """A JSON file of ours; None where there is none, or where it is no JSON."""
    try:
        return json.loads(text_of(files, path) or "null")
    except (ValueError, RecursionError):
        return None


def read_journal(files: Files) -> KernelJournal:
    """The journal. A field that is missing or of another type counts as not set."""
    data = read_document(files, paths.JOURNAL)
    if not isinstance(data, dict):
        return KernelJournal()
    loading, before, firmware = data.get("loading"), data.get("firmware_path_before"), data.get("firmware")
    whole = isinstance(firmware, list) and all(isinstance(path, str) for path in firmware)
    return KernelJournal(
        loading=loading if isinstance(loading, str) else "",
        firmware_path_before=before if isinstance(before, str) else None,
        firmware=tuple(firmware) if isinstance(firmware, list) and whole else (),
    )


def set_loading(files: Files, digest: str) -> None:
    """Note the configuration under which modules are inserted from now on; '' when that is over."""
    _write_journal(files, replace(read_journal(files), loading=digest))


def set_firmware_path_before(files: Files, value: str | None) -> None:
    """Note the search path to set back one day; None when it is set back."""
    _write_journal(files, replace(read_journal(files), firmware_path_before=value))


def set_firmware(files: Files, written: tuple[str, ...]) -> None:
    """Note the paths of the firmware files that are ours: others in /lib/firmware may belong to a package."""
    _write_journal(files, replace(read_journal(files), firmware=written))


def _write_journal(files: Files, journal: KernelJournal) -> None:
    files.make_dirs(paths.STATE)
    files.write_atomic(paths.JOURNAL, (json.dumps(asdict(journal), indent=2) + "\n").encode())


def running_daemons(host: Host) -> tuple[RunningDaemon, ...]:
    """Daemons that this run or an earlier one started and that still live.

    A PID that belongs to another program by now is none of ours.
    """
    entries = read_document(host.files, paths.DAEMONS)
    pairs = (
        [(e.get("name"), e.get("pid")) for e in entries if isinstance(e, dict)]
        if isinstance(entries, list)
        else []
    )
    daemons = [
        RunningDaemon(name=name, pid=pid)
        for name, pid in pairs
        if isinstance(name, str) and isinstance(pid, int)
    ]
    return tuple(d for d in daemons if host.processes.alive(d.pid, command=d.name))


def record_daemons(host: Host, daemons: Iterable[RunningDaemon]) -> None:
    """Leave the PIDs for a later start, whose in-use check must not take our daemons for users."""
    entries = [{"name": d.name, "pid": d.pid} for d in daemons]
    host.files.make_dirs(paths.STATE)
    host.files.write_atomic(paths.DAEMONS, (json.dumps(entries) + "\n").encode())
