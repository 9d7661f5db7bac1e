"""What `runtime status` shows: as text for people, and as values for programs (--json)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from driverforge_core.errors import DriverforgeError, InputError
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.backends import config_files
from driverforge_toolkit.runtime.backends.effective import effective_configuration
from driverforge_toolkit.runtime.find import selection
from driverforge_toolkit.runtime.model import RuntimeDaemon
from driverforge_toolkit.runtime.transaction import refused
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem
from driverforge_toolkit.runtime.transaction.consequences import default_lines
from driverforge_toolkit.runtime.transaction.observed import nvidia_handlers_of, observe_runtime
from driverforge_toolkit.runtime.transaction.stopped import select_daemon
from driverforge_toolkit.runtime.transaction.summary import daemon_object

# after a refused change
WAY_ON = "change what it names and run `driverctl runtime apply`; the same again only with `--force`"


@dataclass(frozen=True, slots=True, kw_only=True)
class _FilesStatus:
    """What a daemon's files say. Lines are for people."""

    nvidia: dict[str, str]  # NVIDIA's handlers, whoever wrote them
    broken: tuple[str, ...] = ()  # why they cannot be read
    fault: tuple[str, ...] = ()  # why the daemon cannot serve pods with them


def _files_status(system: RuntimeSystem, daemon: RuntimeDaemon) -> _FilesStatus:
    try:
        seen = observe_runtime(system, daemon)
        view = effective_configuration(system.host, daemon, seen.disk, seen.disk)
    except InputError as error:
        return _FilesStatus(nvidia={}, broken=(error.brief, *error.details))
    wrong = seen.edit.unservable(view)
    return _FilesStatus(
        nvidia=nvidia_handlers_of(seen.edit, view),
        fault=(wrong, *(line for line, _ in default_lines(seen.disk))) if wrong else (),
    )


def runtime_status(system: RuntimeSystem) -> dict[str, Any]:
    """The daemon, our change, and whether all of it still holds.

    Raises as `plans.apply_plan`, but not for broken files, which `broken` tells of.
    """
    daemon = select_daemon(system)
    entry = journal.read_entry(system.host, daemon.kind, daemon.config)
    files = _files_status(system, daemon)
    ours = dict(entry.handlers) if entry else {}
    try:
        found = system.status(daemon).believed(ours)
        reported = {name: found[name] for name in sorted(found)}
        answer = ""
    except DriverforgeError as error:
        reported, answer = {}, error.brief
    written = {file.path: file.written for file in (entry.files if entry else ())}
    now = {path: config_files.contents(system.host.node, path) for path in written}
    drift = [path for path in written if now[path] != written[path]]
    down = [] if entry else selection.entries_of_stopped(system.host, system.sockets, system.request)
    return {
        "runtime": daemon_object(daemon),
        "change": entry.state if entry else "none",
        "files": [file.path for file in entry.files] if entry else [],
        "drift": drift,
        "gone": [path for path in drift if now[path] is None],
        "handlers": ours,
        "missing": [name for name, program in ours.items() if reported.get(name, "") not in (program, None)],
        "foreign": {name: program for name, program in files.nvidia.items() if ours.get(name) != program},
        "reported": reported,
        "problem": answer,
        "broken": list(files.broken),
        "fault": list(files.fault),
        "refused": _refused(system, daemon),
        "down": [f"{each.kind} at {each.socket}" for each in down],
    }


def _refused(system: RuntimeSystem, daemon: RuntimeDaemon) -> dict[str, Any] | None:
    last = refused.last_refusal(system.host, daemon.kind, daemon.config)
    return {"when": last.when, "said": list(last.said)} if last else None


def status_text(found: dict[str, Any]) -> str:
    out = [f"{found['runtime']['kind']}:", *(f"  {line}" for line in found["runtime"]["evidence"])]
    out.append(f"our change: {_state(found)}")
    out += [f"  {path}{_drift(found, path)}" for path in found["files"]]
    lacking = "" if found["problem"] else " (the daemon does not have it)"
    out += [
        f"  {name}: {program}{lacking if name in found['missing'] else ''}"
        for name, program in found["handlers"].items()
    ]
    if found["broken"]:
        out += ["its files cannot be read:", *(f"  {line}" for line in found["broken"])]
    if found["fault"]:
        out += ["with its files it cannot serve pods:", *(f"  {line}" for line in found["fault"])]
    if found["foreign"]:
        out.append("NVIDIA's handlers that driverctl did not write:")
        out += [f"  {name}: {program}" for name, program in found["foreign"].items()]
    out += [
        f"driverctl has changed {each}, which is not running; `driverctl runtime revert` puts its files back"
        for each in found["down"]
    ]
    if refusal := found["refused"]:
        out.append(f"a change that {found['runtime']['kind']} did not accept on {refusal['when']}:")
        out += [f"  {line}" for line in refusal["said"]]
        out.append(f"  {WAY_ON}")
    out.append(f"the daemon reports: {', '.join(found['reported']) or found['problem'] or 'no handlers'}")
    return "\n".join(out)


def _state(found: dict[str, Any]) -> str:
    """How far our change came, and what is left of it."""
    words = {
        "none": "none",
        "in force": "in force",
        "prepared": "began and was not finished",
        "written": "written, not in force yet",
    }
    if found["change"] != "in force" or not found["missing"]:
        return words[found["change"]]
    if found["problem"]:
        return "came into force; whether it still is, the daemon does not tell"
    lost = "all" if len(found["missing"]) == len(found["handlers"]) else "some"
    return f"came into force, and the daemon has lost {lost} of its handlers since"


def _drift(found: dict[str, Any], path: str) -> str:
    """What became of a file of ours, '' where it is as we wrote it."""
    if path in found["gone"]:
        return " (removed by somebody else since)"
    return " (changed by somebody else since)" if path in found["drift"] else ""
