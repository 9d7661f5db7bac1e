"""A restore that the node itself carries out: nobody can start our container again while containerd is down.

Before the first write, a folder on the node gets the old bytes and a POSIX-sh script. systemd calls the
script every two seconds, by a transient timer, and after a reboot by a unit that is there for the time of the
change only. Without systemd it is a detached process, outside of our control group; that does not outlive a
reboot.

The script does nothing while the process that makes the change lives. When that has died, or hangs, it puts
the files back and restarts the runtime. It ends as soon as it is disarmed. `restore_script` has its states.
"""

from __future__ import annotations

import secrets
from contextlib import suppress

from driverforge_core import log
from driverforge_core.errors import DriverforgeError, Unavailable
from driverforge_host.ports import Host, Result, text_of
from driverforge_toolkit.runtime.find.daemon import enter
from driverforge_toolkit.runtime.find.instance import boot_id
from driverforge_toolkit.runtime.find.supervisor import SYSTEMD
from driverforge_toolkit.runtime.transaction.polling import poll
from driverforge_toolkit.runtime.transaction.restore_script import (
    SCRIPT,
    UNIT_FOLDER,
    RestoreOrder,
    boot_files,
    boot_unit,
    script,
    unit_of_restore,
)

FOLDER = "/var/lib/driverforge/restore"
EVERY = 2  # seconds between two looks
FIRST_LOOK = 30.0  # seconds until the script must have run once; it takes a fraction of one
LAST_LOOK = 420.0  # seconds for a restore under way: rke2 alone may take 300 to start
SYSTEMD_TIMEOUT = 60.0  # seconds for one answer of systemd


def new_name(host: Host) -> str:
    return f"{int(host.clock.now())}-{secrets.token_hex(4)}"


def arm(host: Host, name: str, order: RestoreOrder) -> None:
    """Make the node restore if we die, or have not disarmed it `order.patience` seconds later.

    It returns when the script was seen running. Raises Unavailable or CommandFailed where nobody on the node
    carries it out; what was made for it goes away with `disarm`.
    """
    _prepare(host, name, order)
    host.node.write_atomic(f"{FOLDER}/{name}/armed", b"", mode=0o600)
    _start(host, name)


def hand_over(host: Host, name: str, order: RestoreOrder) -> None:
    """Make the node carry out `order` at once, whatever becomes of us.

    Raises Unavailable or CommandFailed where nobody on the node does; nothing is left then.
    """
    here = f"{FOLDER}/{name}"
    _prepare(host, name, order)
    host.node.copy(order.journal, f"{here}/journal")
    host.node.write_atomic(f"{here}/firing", b"", mode=0o600)
    try:
        _start(host, name)
    except DriverforgeError:
        _clear(host, name)
        raise


def _prepare(host: Host, name: str, order: RestoreOrder) -> None:
    here = f"{FOLDER}/{name}"
    host.node.make_dirs(here, mode=0o700)
    for number, file in enumerate(order.files):
        for prefix, data in (("old", file.before), ("new", file.written)):
            if data is not None:
                host.node.write_atomic(f"{here}/{prefix}.{number}", data, mode=0o600)
    host.node.write_atomic(f"{here}/{SCRIPT}", script(host, here, order).encode(), mode=0o700)
    if host.node.exists(SYSTEMD):
        _prepare_boot(host, name, order)


def _prepare_boot(host: Host, name: str, order: RestoreOrder) -> None:
    """Have the next boot of the node restore before its runtime starts. systemd reads these files then."""
    unit, link = boot_files(name)
    try:
        host.node.make_dirs(link.rpartition("/")[0])
        host.node.symlink(f"../{unit.rpartition('/')[2]}", link)
        # after the link: this is synced, and the link with it
        host.node.write_atomic(unit, boot_unit(f"{FOLDER}/{name}", order).encode(), mode=0o644)
    except DriverforgeError as error:
        log.warning(
            "a reboot in the middle of this change would start the runtime with the new files",
            why=error.brief,
        )


def _start(host: Host, name: str) -> None:
    """Have the node call the script, and wait until it has run once."""
    here = f"{FOLDER}/{name}"
    if not (host.node.exists(SYSTEMD) and _start_timer(host, name)):
        prefix = enter(host)
        words = ["sh", f"{here}/{SCRIPT}", "stay"]
        host.commands.spawn([*prefix[:-1], "--cgroup", "--", *words] if prefix else words)
    for _ in poll(host.clock, FIRST_LOOK, every=0.05):
        if host.node.exists(f"{here}/seen"):
            return
    raise Unavailable(
        "the node does not run the restore that would put the old files back if driverctl died",
        details=[f"{here}/{SCRIPT} has not run within {FIRST_LOOK:.0f} s"],
        resolution="see whether systemd-run and /bin/sh work on the node; nothing was changed",
    )


def _start_timer(host: Host, name: str) -> bool:
    """Whether systemd calls the script from now on."""
    argv = [
        "systemd-run",
        f"--unit={unit_of_restore(name)}",
        "--on-active=0",
        f"--on-unit-inactive={EVERY}",
        "--collect",
        "--timer-property=AccuracySec=100ms",
        "--description=Restore of the container runtime's configuration",
    ]
    done = _ask_systemd(host, *argv, "/bin/sh", f"{FOLDER}/{name}/{SCRIPT}", "once")
    if not done.ok:
        log.warning(
            "systemd did not accept the restore's timer; a detached process watches instead",
            said=done.stderr.strip(),
        )
    return done.ok


def _ask_systemd(host: Host, *argv: str) -> Result:
    return host.commands.run([*enter(host), *argv], check=False, timeout=SYSTEMD_TIMEOUT)


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
    with suppress(DriverforgeError):
        _clear(host, name)


def settle_restore(host: Host, name: str, *, patience: float = LAST_LOOK) -> tuple[str, ...]:
    """Take the restore of a dead driverctl back, or wait for its end. What it did, a line each.

    `patience` is in seconds.
    """
    here = f"{FOLDER}/{name}"
    if not host.node.is_dir(here):
        return ()
    with suppress(Unavailable):
        disarm(host, name)
        return ()
    for _ in poll(host.clock, patience, every=0.25):
        if not _under_way(host, here):
            break
    done = log_of(host, name)
    # nobody will end it, and the journal has the same bytes
    if host.node.exists(f"{here}/firing"):
        done.append("it was cut off; driverctl goes on from the journal")
    _clear(host, name)
    return tuple(done)


def _under_way(host: Host, here: str) -> bool:
    """Whether somebody restores. Nobody does after a reboot: that was over before the runtime started."""
    firing = host.node.exists(f"{here}/firing")
    return firing and boot_id(host.node) in text_of(host.node, f"{here}/{SCRIPT}")


def remove_stray_boot_units(host: Host) -> None:
    """Remove the units of restores that are gone: a kill may have left them."""
    for path in (f"{UNIT_FOLDER}/{name}" for name in host.node.list_dir(UNIT_FOLDER)):
        restore = path.rpartition("/driverforge-boot-")[2].removesuffix(".service")
        if path == boot_files(restore)[0] and not host.node.is_dir(f"{FOLDER}/{restore}"):
            _remove_boot_unit(host, restore)


def log_of(host: Host, name: str) -> list[str]:
    """What the script wrote down."""
    return text_of(host.node, f"{FOLDER}/{name}/log").splitlines()


def _clear(host: Host, name: str) -> None:
    """Take away all that was made for a restore."""
    if host.node.exists(SYSTEMD):
        _ask_systemd(host, "systemctl", "stop", f"{unit_of_restore(name)}.timer")
    _remove_boot_unit(host, name)
    host.node.remove_tree(f"{FOLDER}/{name}")


def _remove_boot_unit(host: Host, name: str) -> None:
    unit, link = boot_files(name)
    host.node.remove(link)
    host.node.remove(unit)
