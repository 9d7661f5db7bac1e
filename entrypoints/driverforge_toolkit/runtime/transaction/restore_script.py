"""The script by which the node itself restores, and the unit that runs it after a reboot. Texts, no more.

Each state of a restore is a file name beside the script, and each step to the next one is a rename, so that
exactly one of driverctl and the script takes it: armed -> disarmed (driverctl), armed -> firing -> restored
(the script). `seen` says that the script has run once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from shlex import quote

from driverforge_host.ports import Host
from driverforge_toolkit.runtime.find.instance import process_instance
from driverforge_toolkit.runtime.journal import JournalFile
from driverforge_toolkit.runtime.model import ProcessInstance

SCRIPT = "restore.sh"
UNIT_FOLDER = "/etc/systemd/system"
# seconds for a change as a whole; a process that needs longer hangs. A daemon that starts slowly gets more
PATIENCE = 900

TEXT = r"""#!/bin/sh
# driverctl wrote this before it changed the container runtime's configuration. It puts the files old.N into
# place and restarts the runtime if the process that makes the change dies or hangs, or at once where that
# handed it over (`firing`). It does nothing once `armed` has another name. What it did is in `log` beside it.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
umask 022
here=@HERE@
reloads=@RELOADS@
journal=@JOURNAL@
LC_ALL=C
export LC_ALL

say() {
	echo "$(date -u 2>/dev/null): $*" >>"$here/log"
}

this_boot() { # after a reboot the same numbers are other processes
	now=
	{ read -r now </proc/sys/kernel/random/boot_id; } 2>/dev/null
	[ "$now" = @BOOT@ ]
}

alive() { # PID START: that very process runs (proc(5): state is field 3, start time field 22)
	[ "$1" -gt 0 ] && this_boot || return 1
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

clear_drafts() { # NUMBER PATH: what a kill in the middle of writing PATH left beside it
	rm -f "${2%/*}/.${2##*/}.driverforge-draft"
	swap=${2%/*}/.${2##*/}.driverforge-swap
	if same "$swap" "$here/old.$1" || same "$swap" "$here/new.$1"; then
		rm -f "$swap"
	elif [ -e "$swap" ] && same "$2" "$here/new.$1"; then
		mv -f "$swap" "$2" && say "gave $2 back what somebody else wrote into it"
	fi
}

put() { # NUMBER PATH MODE OWNER LABEL
	clear_drafts "$1" "$2"
	if same "$2" "$here/old.$1"; then return 0; fi
	if ! same "$2" "$here/new.$1"; then
		say "left $2 alone: somebody else changed it"
		return 0
	fi
	if [ ! -e "$here/old.$1" ]; then
		rm -f "$2" && say "removed $2"
		return 0
	fi
	draft=${2%/*}/.${2##*/}.driverforge-draft
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
	if [ "$reloads" = yes ] && alive @DAEMON@ && kill -HUP @PID@; then return 0; fi
@RESTART@
}

tell() { # MODE: have the runtime see its files; status 1 where it does not
	if [ "$1" = boot ]; then
		say "the runtime starts after this"
	elif [ "$reloads" = no ] && alive @DAEMON@; then
		say "the runtime was not restarted yet: nothing more to do"
	elif restart >>"$here/log" 2>&1; then
		say "restarted the runtime"
	else
		say "the runtime did not restart"
		return 1
	fi
}

check() { # MODE; status 1: nothing is left to do
	if [ -e "$here/armed" ]; then
		[ -e "$here/seen" ] || : >"$here/seen"
		if alive @OWNER@ && [ "$(uptime)" -lt @DEADLINE@ ]; then return 0; fi
		mv "$here/armed" "$here/firing" 2>/dev/null || return 1
		say "the process that changed the configuration is gone or hangs"
	fi
	[ -e "$here/firing" ] || return 1
	: >"$here/seen"
@PUTS@
	sync
	gone=
	if tell "$1" && [ -n "$journal" ]; then # handed over: nobody comes to clear up
		# no other driverctl goes on while `firing` is there
		if same "$journal" "$here/journal"; then rm -f "$journal"; fi
		gone=$here
	fi
	mv "$here/firing" "$here/restored"
	rm -f @BOOT_FILES@
	[ -z "$gone" ] || rm -rf "$gone"
	return 1
}

case ${1-} in
once) check once || systemctl stop @TIMER@ 2>/dev/null || : ;;
boot) this_boot || check boot || : ;;
stay)
	trap '' HUP INT TERM
	if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
		groups=/sys/fs/cgroup/cgroup.procs
	else
		groups=$(echo /sys/fs/cgroup/*/cgroup.procs)
	fi
	# out of the control group of the container, or it would be killed together with it
	for group in $groups; do { echo $$ >"$group"; } 2>/dev/null || :; done
	while check stay; do sleep 1; done
	;;
esac
"""

BOOT_UNIT = """\
# driverctl wrote this for as long as it changes the container runtime's configuration. After a reboot in the
# middle of that, the old files come back before the runtime starts.
[Unit]
Description=Restore of the container runtime's configuration after a reboot
ConditionPathExists=@HERE@/restore.sh
RequiresMountsFor=@FOLDERS@
Before=@RUNTIME@

[Service]
Type=oneshot
ExecStart=/bin/sh @HERE@/restore.sh boot
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOrder:
    """What the node is to do by itself."""

    files: tuple[JournalFile, ...]  # each gets `before`, where it still is as `written`
    folders: tuple[str, ...]  # go away where they are empty then; outermost first
    daemon: ProcessInstance  # it is left alone where it is this one still, and does not reload
    restart: str  # a shell command
    unit: str  # of systemd: starts after the restore in a boot
    reloads: bool = False
    patience: int = PATIENCE  # seconds
    journal: str = ""  # handed over: the journal's entry, which goes away at the end


def script(host: Host, here: str, order: RestoreOrder) -> str:
    """The script's text. `here` is its folder on the node."""
    name = PurePosixPath(here).name
    puts = [_put(host, number, file) for number, file in enumerate(order.files)]
    puts += [f"\trmdir {quote(folder)} 2>/dev/null || :" for folder in reversed(order.folders)]
    owner = process_instance(host, "self")
    uptime = int(float(host.node.read_text("/proc/uptime").split()[0]))
    values = {
        "HERE": quote(here),
        "BOOT": quote(owner.boot),
        "JOURNAL": quote(order.journal),
        "RESTART": "\n".join(f"\t{line}" for line in order.restart.splitlines()) or "\t:",
        "PUTS": "\n".join(puts),
        "OWNER": f"{owner.pid} {owner.start}",
        "DAEMON": f"{order.daemon.pid} {order.daemon.start}",
        "PID": str(order.daemon.pid),
        "DEADLINE": str(uptime + max(order.patience, PATIENCE)),
        "RELOADS": "yes" if order.reloads else "no",
        "TIMER": quote(f"{unit_of_restore(name)}.timer"),
        "BOOT_FILES": " ".join(map(quote, boot_files(name))),
    }
    return _filled(TEXT, values)


def _put(host: Host, number: int, file: JournalFile) -> str:
    metadata = file.metadata
    owner = f"{metadata.user}:{metadata.group}" if metadata else "0:0"
    mode, label = (f"{metadata.mode:o}", metadata.label) if metadata else ("644", "")
    return f"\tput {number} {quote(host.node.resolve(file.path))} {mode} {owner} {quote(label)}"


def boot_unit(here: str, order: RestoreOrder) -> str:
    """The unit's text (systemd.unit(5), systemd.service(5))."""
    folders = dict.fromkeys([here, *(file.path.rpartition("/")[0] for file in order.files)])
    return _filled(
        BOOT_UNIT,
        {"HERE": here, "FOLDERS": " ".join(_unit_words(folders)), "RUNTIME": order.unit},
    )


def _unit_words(paths: Iterable[str]) -> list[str]:
    escaped = (path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") for path in paths)
    return [f'"{path}"' for path in escaped]


def _filled(text: str, values: Mapping[str, str]) -> str:
    return re.sub("@([A-Z_]+)@", lambda found: values[found[1]], text)


def unit_of_restore(name: str) -> str:
    """The transient units of a restore, without .timer and .service."""
    return f"driverforge-restore-{name}"


def boot_files(name: str) -> tuple[str, str]:
    """The unit for the next boot, and the link by which systemd starts it.

    Its name is not the timer's: systemd makes no transient unit where a file has the name.
    """
    unit = f"driverforge-boot-{name}.service"
    return f"{UNIT_FOLDER}/{unit}", f"{UNIT_FOLDER}/multi-user.target.wants/{unit}"
