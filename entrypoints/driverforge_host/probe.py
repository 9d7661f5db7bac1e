"""The startup probe: is the driver of this node ready?

Asks what the startup probe of NVIDIA's operator asks (the kernel module is there, the daemons are ready), and
then our own status file. A kubelet repeats it every ten seconds, with a time limit of one or a few seconds,
while the node may be busy compiling: so it imports next to nothing (`sys` alone is always there) and reads at
most four small files.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

REFCOUNT = "/sys/module/nvidia/refcnt"
DAEMONS = "/run/nvidia/validations/.driver-daemons-status"
STATUS = "/run/nvidia/driverforge/status.json"
USAGE = "usage: driverctl probe"


def read(path: "str") -> "str | None":
    """The text of a file, None where it is not there or may not be read."""
    try:
        # pathlib costs more than the whole probe
        with open(path, encoding="utf-8", errors="replace") as text:  # noqa: PTH123
            return text.read()
    except OSError:
        return None


def field(status: "str", name: "str") -> "str":
    """A top-level value of our status file. We write it a key a line, so this needs no JSON parser."""
    for line in status.splitlines():
        key, _, value = line.partition(": ")
        if key == f'  "{name}"':
            return value.strip('",')
    return ""


def reason_not_ready(look: "Callable[[str], str | None]" = read) -> "str | None":
    """Why the driver is not ready, or None when it is."""
    if look(REFCOUNT) is None:
        return f"the nvidia module is not loaded (no {REFCOUNT})"
    daemons = look(DAEMONS)
    # an image without this file is older than the contract: not checked, as upstream
    if daemons is not None and daemons.strip() != "Ready":
        return f"{DAEMONS} says {daemons.strip() or 'nothing'!r}, not 'Ready'"
    status = look(STATUS)
    if status is None:
        return None
    if field(status, "phase") != "ready":
        return f"{STATUS} says phase {field(status, 'phase')!r}, not 'ready'"
    pid = field(status, "pid")
    return None if look(f"/proc/{pid}/stat") else f"{STATUS} is from process {pid}, which is gone"


def main(argv: "Sequence[str]") -> "int":
    """Exit status: 0 ready, 1 not ready (the reason on stderr), 64 usage."""
    if argv:
        wants_help = argv[0] in ("-h", "--help")
        print(USAGE, file=sys.stdout if wants_help else sys.stderr)
        return 0 if wants_help else 64
    reason = reason_not_ready()
    if reason is not None:
        print(f"not ready: {reason}", file=sys.stderr)
    return 0 if reason is None else 1
