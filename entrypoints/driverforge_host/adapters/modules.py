"""Kernel modules: the kmod programs to change, /proc/modules and /sys/module to look."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from driverforge_core.errors import CommandFailed, InUse, TemporaryFailure
from driverforge_host.ports import Commands, Files, LoadedModule, Result

KMSG = "/dev/kmsg"
# Seconds for one modprobe or rmmod: many times what a node full of GPUs needs.
LIMIT = 600.0
KMSG_RECORD = 8192  # a read returns one record; the kernel's limit (Documentation/ABI/testing/dev-kmsg)


def parse_proc_modules(text: str, version_of: Callable[[str], str] = lambda _: "") -> dict[str, LoadedModule]:
    """/proc/modules: name, size, reference count, holders, state, address."""
    found = {}
    for line in text.splitlines():
        name, _size, count, holders, state, *_ = line.split()
        names = tuple(sorted(h for h in holders.split(",") if h not in ("", "-", "[permanent]")))
        refcount = -1 if count == "-" else int(count)
        found[name] = LoadedModule(
            name=name, refcount=refcount, holders=names, version=version_of(name), state=state
        )
    return found


def kmsg_text(record: str) -> str:
    """The message of a /dev/kmsg record: 'priority,sequence,time,flags;message'.

    Continuation lines with key=value come after it.
    """
    return record.partition(";")[2].split("\n")[0]


def kmsg_sequence(record: str) -> int:
    return int(record.split(",", 2)[1])


def in_use(message: str) -> bool:
    return "in use" in message or "Resource temporarily unavailable" in message


class KernelModules:
    """The `Modules` port of the running kernel."""

    def __init__(self, commands: Commands, files: Files, *, limit: float = LIMIT) -> None:
        self._commands = commands
        self._files = files
        self._limit = limit

    def release(self) -> str:
        return os.uname().release

    def loaded(self) -> Mapping[str, LoadedModule]:
        # a kernel without loadable modules has no such file
        text = self._files.read_text("/proc/modules") if self._files.exists("/proc/modules") else ""
        return parse_proc_modules(text, self._version)

    def _version(self, name: str) -> str:
        with suppress(FileNotFoundError):
            return self._files.read_text(f"/sys/module/{name}/version").strip()
        return ""

    def insert(self, name: str, *, base: str = "/", parameters: Sequence[str] = ()) -> None:
        # only the kernel's lines of this attempt explain it
        before = self._last_sequence()
        failure = f"could not insert the module {name}"
        result = self._run(["modprobe", "-d", base, name, *parameters], failure, before)
        if not result.ok:
            raise CommandFailed(
                failure,
                details=[
                    f"$ modprobe -d {base} {name}",
                    *result.stderr.splitlines(),
                    *self._log_after(before),
                ],
                resolution="look at the kernel's lines above, or at `dmesg`",
            )

    def remove(self, name: str) -> None:
        failure = f"could not remove the module {name}"
        result = self._run(["rmmod", name], failure, self._last_sequence())
        if not result.ok:
            kind = InUse if in_use(result.stderr) else CommandFailed
            raise kind(failure, details=[f"$ rmmod {name}", *result.stderr.splitlines()])

    def _run(self, argv: Sequence[str], failure: str, before: int) -> Result:
        """Run one of kmod's programs. Raises TemporaryFailure with the kernel's lines after the limit.

        The kernel may go on with what it was asked for: a program that waits in it cannot be ended.
        """
        try:
            return self._commands.run(argv, check=False, timeout=self._limit)
        except TemporaryFailure as error:
            raise TemporaryFailure(
                f"{failure}: {argv[0]} has not ended after {self._limit:g} s",
                details=[*error.details, *self._log_after(before)],
                resolution="look at the kernel's lines above, or at `dmesg`, for what it waits for; "
                "where the kernel never gets out of it, reboot the node",
            ) from error

    def index(self, base: str, release: str) -> None:
        self._commands.run(["depmod", "-b", base, release])

    def kernel_log(self) -> tuple[str, ...]:
        return tuple(kmsg_text(record) for record in self._records())

    def _records(self) -> list[str]:
        """All records of the ring buffer; none where it may not be read.

        That is so without /dev/kmsg, and with dmesg_restrict but without CAP_SYSLOG.
        """
        records: list[str] = []
        try:
            handle = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return records
        try:
            while True:
                try:
                    record = os.read(handle, KMSG_RECORD)
                except BrokenPipeError:
                    continue  # overwritten while we read: the next read gives the oldest that is left
                except OSError:
                    return records
                if not record:
                    return records  # a regular file in a test's root
                records.append(record.decode("utf-8", "replace"))
        finally:
            os.close(handle)

    def _last_sequence(self) -> int:
        records = self._records()
        return kmsg_sequence(records[-1]) if records else -1

    def _log_after(self, sequence: int) -> list[str]:
        later = (record for record in self._records() if kmsg_sequence(record) > sequence)
        return [f"kernel: {kmsg_text(record)}" for record in later]
