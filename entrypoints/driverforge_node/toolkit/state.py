"""What is installed on the node and who serves it: for `driverctl toolkit status`, and the status file of a running `toolkit run`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from driverforge_core.errors import InputError
from driverforge_node.host.ports import Host
from driverforge_node.runtime.document import parse
from driverforge_node.toolkit import collect
from driverforge_node.toolkit.config import read
from driverforge_node.toolkit.settings import Settings
from driverforge_node.toolkit.wanted import layout_of

SCHEMA = 1
FILE = "status.json"  # beside the PID file


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What `status` shows. `instance` is the PID of a running `toolkit run` ('' for none), `phase` what it last wrote."""

    toolkit: str
    release: str
    others: dict[str, str]  # release -> who uses it
    config: str
    mode: str
    problem: str
    instance: str
    phase: str


def observe(host: Host, settings: Settings) -> Status:
    layout = layout_of(settings)
    found = collect.releases(host, layout)
    mode, problem = _mode(host, layout.config)
    return Status(
        toolkit=layout.toolkit,
        release=layout.current(host.node) or ("not ours" if host.node.exists(layout.toolkit) else "none"),
        others={release.name: collect.describe_users(release) for release in found if not release.current},
        config=layout.config,
        mode=mode,
        problem=problem,
        instance=_text(host, settings.pid_file).strip(),
        phase=_phase(_text(host, status_file(settings))),
    )


def _mode(host: Host, path: str) -> tuple[str, str]:
    """The runtime's mode, and what is wrong with the file."""
    if not host.node.exists(path):
        return "", "there is no config.toml"
    try:
        return read(parse(host.node.read_bytes(path), path), path).nvidia_container_runtime.mode, ""
    except InputError as error:
        return "", "; ".join((error.brief, *error.details))


def as_json(status: Status) -> str:
    return json.dumps({"schema": SCHEMA, **asdict(status)}, indent=2)


def as_text(status: Status) -> str:
    lines = [("toolkit", status.toolkit), ("release", status.release)]
    lines += [("release", f"{name}: {users}") for name, users in status.others.items()]
    lines += [("config", status.config), ("mode", status.mode or f"unknown: {status.problem}")]
    lines.append(("instance", f"{status.instance} {status.phase}".strip() or "none"))
    return "\n".join(f"{name:<10} {text}" for name, text in lines)


def status_file(settings: Settings) -> str:
    return f"{settings.pid_file.rpartition('/')[0]}/{FILE}"


def write(host: Host, settings: Settings, *, phase: str, release: str) -> None:
    """`phase`: 'starting', 'ready' (everything that was asked for is in place), 'stopping'."""
    content = {"schema": SCHEMA, "phase": phase, "since": round(host.clock.now(), 3), "release": release}
    host.files.write_atomic(status_file(settings), (json.dumps(content, indent=2) + "\n").encode())


def _phase(text: str) -> str:
    try:
        data = json.loads(text or "{}")
    except ValueError:
        return "unknown"
    return str(data.get("phase", "")) if isinstance(data, dict) else "unknown"


def _text(host: Host, path: str) -> str:
    try:
        return host.files.read_text(path)
    except FileNotFoundError:
        return ""
