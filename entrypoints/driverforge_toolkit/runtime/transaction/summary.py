"""Plans: as text for people, and as values for programs (--json)."""

from __future__ import annotations

from typing import Any

from driverforge_core import log
from driverforge_host.ports import Host
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.model import RuntimeDaemon
from driverforge_toolkit.runtime.transaction.activation import activation_text
from driverforge_toolkit.runtime.transaction.change_plan import ChangePlan, RuntimeSystem


def daemon_object(daemon: RuntimeDaemon) -> dict[str, Any]:
    return {
        "kind": daemon.kind,
        "pid": daemon.pid,
        "binary": daemon.binary,
        "version": ".".join(map(str, daemon.version)),
        "socket": daemon.socket,
        "config": daemon.config,
        "drop_in": daemon.drop_in,
        "supervisor": {"kind": daemon.supervisor.kind, "unit": daemon.supervisor.unit},
        "evidence": list(daemon.evidence),
    }


def plan_object(plan: ChangePlan, system: RuntimeSystem) -> dict[str, Any]:
    return {
        "runtime": daemon_object(plan.daemon),
        "files": [{"path": file.path, "diff": file_diff(file)} for file in plan.writes],
        "effective": list(plan.effective),
        "activation": plan.activation,
        "why": plan.why,
        "restart": activation_text(plan, system),
        "handlers": dict(plan.present),
        "notes": list(plan.notes),
    }


def file_diff(file: journal.JournalFile) -> list[str]:
    """A unified diff. Line ends count."""
    import difflib  # an apply with nothing to do shows none

    old, new = (
        (data or b"").decode("utf-8", "replace").splitlines(keepends=True)
        for data in (file.before, file.written)
    )
    names = (
        "(not there)" if file.before is None else file.path,
        "(goes away)" if file.written is None else file.path,
    )
    return [_visible(line) for line in difflib.unified_diff(old, new, *names, lineterm="")]


def _visible(line: str) -> str:
    body = line.removesuffix("\n")
    return body.replace("\r", "\\r") if "\r" in body else body


def plan_text(plan: ChangePlan, system: RuntimeSystem) -> str:
    """The plan: what was found, the diffs of the files, the effective difference, the restart."""
    out = [f"{plan.daemon.kind}:", *(f"  {line}" for line in plan.daemon.evidence)]
    for file in plan.writes:
        out += ["", *file_diff(file)]
    out += ["", "the files stay as they are"] if not plan.writes else [""]
    out += [f"effective: {line}" for line in plan.effective]
    out += [f"note: {line}" for line in plan.notes]
    out.append(
        f"{plan.activation if plan.activation != 'none' else 'restart'}: {activation_text(plan, system)} "
        f"({plan.why})"
    )
    return "\n".join(out)


def done_text(plan: ChangePlan, system: RuntimeSystem) -> str:
    """What was done, in a line."""
    if plan.settled:
        return "nothing to do"
    done = [
        f"wrote {file.path}" if file.written is not None else f"removed {file.path}" for file in plan.writes
    ]
    if plan.activation == "none":
        done.append("no restart needed")
    elif system.request.restart_mode == "none":
        done.append(f"not in force until {plan.daemon.kind} is restarted")
    else:
        done.append(f"{'reloaded' if plan.activation == 'reload' else 'restarted'} {plan.daemon.kind}")
    return ", ".join(done)


def warn_missing(host: Host, plan: ChangePlan) -> None:
    """Log which programs of the handlers are not on the node."""
    missing = [program for _, program in plan.present if not host.node.exists(program)]
    if missing:
        log.warning(
            "programs of handlers are not on the node yet; containers with them will not start",
            missing=",".join(missing),
        )
