"""A restore that the node itself carries out: nobody can start our container again while containerd is down.

Before the first write, a folder on the node gets the old bytes and a POSIX-sh script. systemd calls the
script every two seconds, by a transient timer. Without systemd it is a detached process, outside of our
control group.

The script does nothing while the process that makes the change lives. When that has died, or hangs, it puts
the files back and restarts the runtime. It ends as soon as it is disarmed.

Each state is a file name, and each step to the next one is a rename, so that exactly one of driverctl and the
script takes it: armed -> disarmed (driverctl), armed -> firing -> restored (the script).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from shlex import quote

from driverforge_core.errors import DriverforgeError, Unavailable
from driverforge_node import log
from driverforge_node.ports import Host
from driverforge_node.runtime.find.daemon import enter
from driverforge_node.runtime.journal import JournalFile

FOLDER = "/var/lib/driverforge/restore"
SYSTEMD = "/run/systemd/system"
# seconds for a change as a whole; a process that needs longer hangs. A daemon that starts slowly gets more
PATIENCE = 900
EVERY = 2  # seconds between two looks
SCRIPT = "restore.sh"

TEXT = r"""#!/bin/sh
# driverctl wrote this before it changed the container runtime's configuration. It puts the old files back and
# restarts the runtime if the process that makes the change dies or hangs; it does nothing once that has
# renamed `armed`. What it did is in `log` beside it.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
umask 022
here=@HERE@
reloads=@RELOADS@
LC_ALL=C
export LC_ALL

say() {
	echo "$(date -u 2>/dev/null): $*" >>"$here/log"
}

alive() { # PID START: that very process runs (proc(5): state is field 3, start time field 22)
	[ "$1" -gt 0 ] || return 1
	{ read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
	begun=$2
	# shellcheck disable=SC2086  # fields
	set -- x y ${stat##*) }
	case $3 in Z | X) return 1 ;; esac
	[ "${22}" = "$begun" ]
}

uptime() {
	read -r seconds rest </proc/uptime
	echo "${seconds%%.*}"
}

same() { # FILE FILE: equal, or both not there
	if [ -e "$1" ] && [ -e "$2" ]; then
		[ "$(cat "$1"; echo .)" = "$(cat "$2"; echo .)" ]
	else
		[ ! -e "$1" ] && [ ! -e "$2" ]
	fi
}

put() { # NUMBER PATH MODE OWNER LABEL
	if same "$2" "$here/old.$1"; then return 0; fi
	if ! same "$2" "$here/new.$1"; then
		say "left $2 alone: somebody else changed it"
		return 0
	fi
	if [ ! -e "$here/old.$1" ]; then
		rm -f "$2" && say "removed $2"
		return 0
	fi
	draft=${2%/*}/.driverforge-restore
	if cp "$here/old.$1" "$draft" && chmod "$3" "$draft" && chown "$4" "$draft"; then
		[ -z "$5" ] || chcon "$5" "$draft" 2>/dev/null || :
		mv -f "$draft" "$2" 2>/dev/null && say "put $2 back" && return 0
		# nothing is renamed over a file that is mounted by itself
		cat "$draft" >"$2" && rm -f "$draft" && say "put $2 back in its place" && return 0
	fi
	rm -f "$draft"
	say "could not put $2 back"
}

restart() {
@RESTART@
}

check() { # status 1: nothing is left to do
	if [ -e "$here/armed" ]; then
		if alive @OWNER@ && [ "$(uptime)" -lt @DEADLINE@ ]; then return 0; fi
		mv "$here/armed" "$here/firing" 2>/dev/null || return 1
		say "the process that changed the configuration is gone or hangs"
	fi
	[ -e "$here/firing" ] || return 1
@PUTS@
	sync
	if alive @DAEMON@ && [ "$reloads" = no ]; then
		say "the runtime was not restarted yet: nothing more to do"
	elif restart >>"$here/log" 2>&1; then
		say "restarted the runtime"
	else
		say "the runtime did not restart"
	fi
	mv "$here/firing" "$here/restored"
	return 1
}

case ${1-} in
once) check || systemctl stop @TIMER@ 2>/dev/null || : ;;
stay)
	trap '' HUP INT TERM
	if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
		groups=/sys/fs/cgroup/cgroup.procs
	else
		groups=$(echo /sys/fs/cgroup/*/cgroup.procs)
	fi
	# out of the control group of the container, or it would be killed together with it
	for group in $groups; do { echo $$ >"$group"; } 2>/dev/null || :; done
	while check; do sleep 1; done
	;;
esac
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInstance:
    """A process, which a later one with the same number is not mistaken for."""

    pid: int
    start: int  # clock ticks after boot (proc(5))

    def words(self) -> str:
        return f"{self.pid} {self.start}"


def process_instance(host: Host, pid: int | str) -> ProcessInstance:
    """The process with that PID, or ourselves ('self'). PID 0 where it does not run."""
    try:
        number, _, rest = host.node.read_text(f"/proc/{pid}/stat").partition(" ")
    except FileNotFoundError:
        return ProcessInstance(pid=0, start=0)
    return ProcessInstance(pid=int(number), start=int(rest.rpartition(")")[2].split()[19]))


def new_name(host: Host) -> str:
    return f"{int(host.clock.now())}-{secrets.token_hex(4)}"


def arm(
    host: Host,
    name: str,
    files: Sequence[JournalFile],
    *,
    folders: Sequence[str],
    daemon: int,
    restart: str,
    reloads: bool,
    patience: int,
) -> None:
    """Make the node restore `files` if we die, or have not disarmed it `patience` seconds later.

    `restart` is a shell command. Raises Unavailable or CommandFailed where nobody on the node would carry it
    out; nothing is left then.
    """
    here = f"{FOLDER}/{name}"
    host.node.make_dirs(here, mode=0o700)
    for number, file in enumerate(files):
        for prefix, data in (("old", file.before), ("new", file.written)):
            if data is not None:
                host.node.write_atomic(f"{here}/{prefix}.{number}", data, mode=0o600)
    text = script(
        host,
        here,
        files,
        folders=folders,
        daemon=process_instance(host, daemon),
        restart=restart,
        reloads=reloads,
        patience=patience,
    )
    host.node.write_atomic(f"{here}/{SCRIPT}", text.encode(), mode=0o700)
    host.node.write_atomic(f"{here}/armed", b"", mode=0o600)
    try:
        _start(host, name)
    except DriverforgeError:
        disarm(host, name)
        raise


def script(
    host: Host,
    here: str,
    files: Sequence[JournalFile],
    *,
    folders: Sequence[str],
    daemon: ProcessInstance,
    restart: str,
    reloads: bool,
    patience: int = PATIENCE,
) -> str:
    """The script's text."""
    puts = []
    for number, file in enumerate(files):
        metadata = file.metadata
        owner = f"{metadata.user}:{metadata.group}" if metadata else "0:0"
        mode, label = (f"{metadata.mode:o}", metadata.label) if metadata else ("644", "")
        puts.append(f"\tput {number} {quote(host.node.resolve(file.path))} {mode} {owner} {quote(label)}")
    puts += [f"\trmdir {quote(folder)} 2>/dev/null || :" for folder in reversed(folders)]
    deadline = int(float(host.node.read_text("/proc/uptime").split()[0])) + max(patience, PATIENCE)
    values = {
        "HERE": quote(here),
        "RESTART": "\n".join(f"\t{line}" for line in restart.splitlines()) or "\t:",
        "PUTS": "\n".join(puts),
        "OWNER": process_instance(host, "self").words(),
        "DAEMON": daemon.words(),
        "DEADLINE": str(deadline),
        "RELOADS": "yes" if reloads else "no",
        "TIMER": quote(f"{unit_of_restore(PurePosixPath(here).name)}.timer"),
    }
    return re.sub("@([A-Z]+)@", lambda found: values[found[1]], TEXT)


def unit_of_restore(name: str) -> str:
    return f"driverforge-restore-{name}"


def _start(host: Host, name: str) -> None:
    here = f"{FOLDER}/{name}"
    if host.node.exists(SYSTEMD):
        argv = [
            "systemd-run",
            f"--unit={unit_of_restore(name)}",
            f"--on-active={EVERY}",
            f"--on-unit-inactive={EVERY}",
            "--collect",
        ]
        argv += [
            "--timer-property=AccuracySec=100ms",
            "--description=Restore of the container runtime's configuration",
        ]
        done = host.commands.run(
            [*enter(host), *argv, "/bin/sh", f"{here}/{SCRIPT}", "once"], check=False, timeout=60
        )
        if done.ok:
            return
        log.warning(
            "systemd did not accept the restore's timer; a detached process watches instead",
            said=done.stderr.strip(),
        )
    prefix = enter(host)
    host.commands.spawn(
        [*prefix[:-1], "--cgroup", "--", "sh", f"{here}/{SCRIPT}", "stay"]
        if prefix
        else ["sh", f"{here}/{SCRIPT}", "stay"]
    )


def disarm(host: Host, name: str) -> None:
    """Take the restore back.

    Raises Unavailable where the node has begun to restore: the old files are in force, or about to be.
    """
    here = f"{FOLDER}/{name}"
    try:
        host.node.rename(f"{here}/armed", f"{here}/disarmed")
    except FileNotFoundError as error:
        if host.node.exists(f"{here}/firing") or host.node.exists(f"{here}/restored"):
            raise Unavailable(
                "the node has put the old configuration back by itself", details=log_of(host, name)
            ) from error
    _stop_timer(host, name)
    with suppress(DriverforgeError):
        host.node.remove_tree(here)


def settle_restore(host: Host, name: str, *, patience: float = 120.0) -> tuple[str, ...]:
    """Take the restore of a dead driverctl back, or wait for its end. What it did, a line each.

    `patience` is in seconds.
    """
    here = f"{FOLDER}/{name}"
    if not host.node.is_dir(here):
        return ()
    with suppress(Unavailable):
        disarm(host, name)
        return ()
    end = host.clock.monotonic() + patience
    while host.node.exists(f"{here}/firing") and host.clock.monotonic() < end:
        host.clock.pause(0.25)
    done = log_of(host, name)
    _stop_timer(host, name)
    # the node went down meanwhile: nobody will end it, and the journal has the same bytes
    if host.node.exists(f"{here}/firing"):
        done.append("it was cut off; driverctl goes on from the journal")
    host.node.remove_tree(here)
    return tuple(done)


def log_of(host: Host, name: str) -> list[str]:
    """What the script wrote down."""
    try:
        return host.node.read_text(f"{FOLDER}/{name}/log").splitlines()
    except FileNotFoundError:
        return []


def _stop_timer(host: Host, name: str) -> None:
    if host.node.exists(SYSTEMD):
        host.commands.run(
            [*enter(host), "systemctl", "stop", f"{unit_of_restore(name)}.timer"], check=False, timeout=60
        )
