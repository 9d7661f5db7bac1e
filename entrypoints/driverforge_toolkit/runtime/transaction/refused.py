"""Changes that a daemon did not accept. Each try costs two restarts, so that none is made twice.

A refusal counts for as long as everything is as it was: the plan, the daemon's version, every file that it
reads, and how it was to be restarted. One file a daemon has it, in /var/lib/driverforge/refused of the node.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from driverforge_core import log
from driverforge_core.errors import CommandFailed
from driverforge_host.ports import Host, text_of
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.backends import config_files
from driverforge_toolkit.runtime.model import RuntimeKind
from driverforge_toolkit.runtime.transaction.change_plan import ChangePlan, RuntimeSystem

FOLDER = "/var/lib/driverforge/refused"
SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedChange:
    """A change that a daemon did not accept."""

    digest: str  # of all that it was made from
    said: tuple[str, ...]  # why, a line each, with the daemon's own last lines
    at: int  # seconds since the epoch

    @property
    def when(self) -> str:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.at))


def digest_of(plan: ChangePlan, system: RuntimeSystem) -> str:
    """What has to stay the same for a refusal to count. Raises as `config_files.read_files`."""
    request, daemon = system.request, plan.daemon
    files = config_files.read_files(system.host, daemon, known=plan.read)
    parts = [
        [daemon.kind, daemon.binary, *map(str, daemon.version)],
        sorted(_hashes((file.path, file.data) for file in files.values())),
        _hashes((file.path, file.written) for file in plan.writes),
        sorted(plan.present),
        [plan.default, plan.activation],
        [request.restart_mode, request.restart_command, str(request.patience)],
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _hashes(files: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, str]]:
    return [(path, "" if data is None else hashlib.sha256(data).hexdigest()) for path, data in files]


def remember(system: RuntimeSystem, plan: ChangePlan, digest: str, said: Sequence[str]) -> None:
    host = system.host
    refused = RefusedChange(digest=digest, said=tuple(said), at=int(host.clock.now()))
    host.node.make_dirs(FOLDER, mode=0o700)
    text = json.dumps({"schema": SCHEMA, **asdict(refused)}, indent=2) + "\n"
    host.node.write_atomic(_path(plan), text.encode(), mode=0o600)


def forget(host: Host, plan: ChangePlan) -> None:
    host.node.remove(_path(plan))


def refusal_of(system: RuntimeSystem, plan: ChangePlan, digest: str) -> RefusedChange | None:
    """What the daemon said of this very change, None where it was not tried yet."""
    found = last_refusal(system.host, plan.daemon.kind, plan.daemon.config)
    return found if found is not None and found.digest == digest else None


def check_not_refused(system: RuntimeSystem, plan: ChangePlan, digest: str) -> None:
    """Raises CommandFailed, with the daemon's words of then, where it has refused this very change."""
    refused = refusal_of(system, plan, digest)
    if refused is not None:
        raise CommandFailed(
            f"{note_of(plan, refused)}; nothing was changed, and nothing restarted",
            details=refused.said,
            resolution="change what it did not accept (its own message is above), or try the same again with "
            "`driverctl runtime apply --force`",
        )


def note_of(plan: ChangePlan, refused: RefusedChange) -> str:
    return f"{plan.daemon.kind} did not accept this change on {refused.when}, and all is as it was then"


def last_refusal(host: Host, kind: RuntimeKind, config: str) -> RefusedChange | None:
    """The last change that a daemon did not accept, None where it has accepted one since."""
    return _read(host, f"{FOLDER}/{journal.name_of(kind, config)}")


def _read(host: Host, path: str) -> RefusedChange | None:
    text = text_of(host.node, path)
    if not text:
        return None
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            return None  # of another release, which may do it better
        return RefusedChange(
            digest=str(data["digest"]), said=tuple(map(str, data["said"])), at=int(data["at"])
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("the record of a refused change is damaged, and does not count", file=path, why=error)
        return None


def _path(plan: ChangePlan) -> str:
    return f"{FOLDER}/{journal.name_of(plan.daemon.kind, plan.daemon.config)}"
