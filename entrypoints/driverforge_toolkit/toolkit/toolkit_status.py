"""What is installed on the node and who serves it.

For `driverctl toolkit status`, and in the status file of a running `toolkit run`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

from driverforge_core.errors import InputError
from driverforge_host.ports import Host, text_of
from driverforge_toolkit.runtime.formats.tomledit import parse
from driverforge_toolkit.toolkit import releases
from driverforge_toolkit.toolkit.config_toml import config_of_table
from driverforge_toolkit.toolkit.release_plan import layout_of
from driverforge_toolkit.toolkit.settings import ToolkitSettings

SCHEMA = 1
RunPhase = Literal["starting", "ready", "stopping"]
STATUS_FILE = "status.json"  # beside the PID file


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolkitStatus:
    """What `status` shows.

    `instance` is the PID of a running `toolkit run` ('' for none), `phase` what it last wrote.
    """

    toolkit: str
    release: str
    others: dict[str, str]  # release -> who uses it
    config: str
    mode: str
    problem: str
    instance: str
    phase: str


def observe_toolkit(host: Host, settings: ToolkitSettings) -> ToolkitStatus:
    """What there is on the node. Never fails for a broken config.toml: that is in `problem`."""
    layout = layout_of(settings)
    found = releases.releases_of(host, layout)
    mode, problem = _mode(host, layout.config)
    return ToolkitStatus(
        toolkit=layout.toolkit,
        release=layout.current(host.node) or ("not ours" if host.node.exists(layout.toolkit) else "none"),
        others={release.name: releases.describe_users(release) for release in found if not release.current},
        config=layout.config,
        mode=mode,
        problem=problem,
        instance=text_of(host.files, settings.pid_file).strip(),
        phase=_phase(text_of(host.files, status_file(settings))),
    )


def _mode(host: Host, path: str) -> tuple[str, str]:
    """The runtime's mode, and what is wrong with the file."""
    if not host.node.exists(path):
        return "", "there is no config.toml"
    try:
        return config_of_table(
            parse(host.node.read_bytes(path), path), path
        ).nvidia_container_runtime.mode, ""
    except InputError as error:
        return "", "; ".join((error.brief, *error.details))


def status_json(status: ToolkitStatus) -> str:
    return json.dumps({"schema": SCHEMA, **asdict(status)}, indent=2)


def status_text(status: ToolkitStatus) -> str:
    lines = [("toolkit", status.toolkit), ("release", status.release)]
    lines += [("release", f"{name}: {users}") for name, users in status.others.items()]
    lines += [("config", status.config), ("mode", status.mode or f"unknown: {status.problem}")]
    lines.append(("instance", f"{status.instance} {status.phase}".strip() or "none"))
    return "\n".join(f"{name:<10} {text}" for name, text in lines)


def status_file(settings: ToolkitSettings) -> str:
    """Where a running `toolkit run` writes how far it is."""
    return f"{settings.pid_file.rpartition('/')[0]}/{STATUS_FILE}"


def write_status(host: Host, settings: ToolkitSettings, *, phase: RunPhase, release: str) -> None:
    """`phase`: 'starting', 'ready' (everything that was asked for is in place), 'stopping'."""
    content = {"schema": SCHEMA, "phase": phase, "since": round(host.clock.now(), 3), "release": release}
    host.files.write_atomic(status_file(settings), (json.dumps(content, indent=2) + "\n").encode())


def _phase(text: str) -> str:
    try:
        data = json.loads(text or "{}")
    except ValueError:
        return "unknown"
    return str(data.get("phase", "")) if isinstance(data, dict) else "unknown"
