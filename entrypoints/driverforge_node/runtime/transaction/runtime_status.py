"""What `runtime status` shows: as text for people, and as values for programs (--json)."""

from __future__ import annotations

from typing import Any

from driverforge_core.errors import DriverforgeError
from driverforge_node.runtime.backends.effective import effective_configuration
from driverforge_node.runtime.find import selection
from driverforge_node.runtime.model import RuntimeDaemon
from driverforge_node.runtime.transaction import refused
from driverforge_node.runtime.transaction.change_plan import RuntimeSystem
from driverforge_node.runtime.transaction.observed import nvidia_handlers_of, observe_runtime
from driverforge_node.runtime.transaction.summary import daemon_object

# after a refused change
WAY_ON = "change what it names and run `driverctl runtime apply`; the same again only with `--force`"


def runtime_status(system: RuntimeSystem) -> dict[str, Any]:
    """The daemon, our change, and whether all of it still holds.

    Raises as `plans.apply_plan`.
    """
    daemon = selection.select(system.host, system.sockets, system.request)
    seen = observe_runtime(system, daemon)
    entry = seen.entry
    ours = dict(entry.handlers) if entry else {}
    try:
        found = system.status(daemon).believed(ours)
        reported = {name: found[name] for name in sorted(found)}
        answer = ""
    except DriverforgeError as error:
        reported, answer = {}, error.brief
    drift = [file.path for file in (entry.files if entry else ()) if seen.disk[file.path] != file.written]
    view = effective_configuration(system.host, daemon, seen.disk, seen.disk)
    down = [] if entry else selection.entries_of_stopped(system.host, system.sockets, system.request)
    return {
        "runtime": daemon_object(daemon),
        "change": entry.state if entry else "none",
        "files": [file.path for file in entry.files] if entry else [],
        "drift": drift,
        "handlers": ours,
        "missing": [name for name, program in ours.items() if reported.get(name, "") not in (program, None)],
        "foreign": {
            name: program
            for name, program in nvidia_handlers_of(seen.edit, view).items()
            if ours.get(name) != program
        },
        "reported": reported,
        "problem": answer,
        "refused": _refused(system, daemon),
        "down": [f"{each.kind} at {each.socket}" for each in down],
    }


def _refused(system: RuntimeSystem, daemon: RuntimeDaemon) -> dict[str, Any] | None:
    last = refused.last_refusal(system.host, daemon.kind, daemon.config)
    return {"when": last.when, "said": list(last.said)} if last else None


def status_text(found: dict[str, Any]) -> str:
    out = [f"{found['runtime']['kind']}:", *(f"  {line}" for line in found["runtime"]["evidence"])]
    words = {
        "none": "none",
        "in force": "in force",
        "prepared": "began and was not finished",
        "written": "written, not in force yet",
    }
    out.append(f"our change: {words[found['change']]}")
    out += [
        f"  {path}{' (changed by somebody else since)' if path in found['drift'] else ''}"
        for path in found["files"]
    ]
    out += [
        f"  {name}: {program}{' (the daemon does not have it)' if name in found['missing'] else ''}"
        for name, program in found["handlers"].items()
    ]
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
