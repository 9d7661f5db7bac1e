"""What /proc tells of the node's processes: their command lines, their variables, what they call a file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from driverforge_core.errors import DriverforgeError, Unsupported
from driverforge_host.ports import Files, Host
from driverforge_host.ports.mounts import parse_mountinfo, translated
from driverforge_toolkit.runtime.model import DaemonPath, NodePath

CAP_SYS_ADMIN = 21  # include/uapi/linux/capability.h
_POWERS = re.compile(r"^CapEff:\s*([0-9a-fA-F]+)$", re.MULTILINE)


def processes(node: Files) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The PID and the command line of each process that has one."""
    for name in node.list_dir("/proc"):
        if name.isdigit() and (words := command_of(node, int(name))):
            yield int(name), words


def command_of(node: Files, pid: int) -> tuple[str, ...]:
    """The command line of a process; () where it does not run."""
    try:
        text = node.read_text(f"/proc/{pid}/cmdline") if pid else ""
    except (FileNotFoundError, DriverforgeError):
        return ()
    return tuple(word for word in text.split("\0") if word)


def of_node(node: Files, *programs: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The node's own processes of these programs, as `processes`.

    Any process chooses its own command line, also one of a pod or of a user. Those lack the right to mount
    (CAP_SYS_ADMIN on the node), which what serves pods has.
    """
    for pid, words in processes(node):
        if program_name(words) in programs and _may_mount(node, pid):
            yield pid, words


def _may_mount(node: Files, pid: int) -> bool:
    """Whether a process has CAP_SYS_ADMIN in the node's user namespace (proc(5), user_namespaces(7))."""
    try:
        found = _POWERS.search(node.read_text(f"/proc/{pid}/status"))
    except (FileNotFoundError, DriverforgeError):
        return False
    powers = int(found.group(1), 16) if found else 0
    return bool(powers >> CAP_SYS_ADMIN & 1) and _shares_namespace(node, pid, "user")


def _shares_namespace(node: Files, pid: int, kind: str) -> bool:
    """Whether a process is in the same namespace of a kind as the node's own processes."""
    ours, theirs = (node.resolve(f"/proc/{who}/ns/{kind}").rpartition("/")[2] for who in (_own(node), pid))
    return ours == theirs


def _own(node: Files) -> str:
    """A process of the node itself."""
    return "1" if node.root != "/" else "self"


def program_name(command: Sequence[str]) -> str:
    return command[0].rpartition("/")[2] if command else ""


def options_of(node: Files, pid: int) -> tuple[str, ...]:
    """The options that a running daemon was started with; () where it does not run."""
    return command_of(node, pid)[1:]


def option_values(command: Sequence[str], names: Sequence[str]) -> list[str]:
    """All values of an option in a command line, in order."""
    found = []
    for index, word in enumerate(command):
        name, _, value = word.partition("=")
        if name in names:
            found.append(value or "".join(command[index + 1 : index + 2]))
    return found


def option_value(command: Sequence[str], names: Sequence[str]) -> str:
    """The value of an option in a command line, the last one's; '' where the option is not in it."""
    return (option_values(command, names) or [""])[-1]


def variable_of(node: Files, pid: int, name: str) -> str:
    """A variable that a process was started with; '' where it has none of that name."""
    try:
        text = node.read_text(f"/proc/{pid}/environ")
    except (FileNotFoundError, DriverforgeError):
        return ""
    return next((word.partition("=")[2] for word in text.split("\0") if word.startswith(f"{name}=")), "")


def node_path_of(host: Host, pid: int, path: DaemonPath) -> NodePath:
    """What the node calls a path of a process's mount namespace.

    Raises Unsupported where the node does not see the file system that it lies on.
    """
    if _shares_namespace(host.node, pid, "mnt"):
        return NodePath(path)
    inside, outside = (
        parse_mountinfo(host.node.read_text(f"/proc/{who}/mountinfo")) for who in (pid, _own(host.node))
    )
    found = translated(path, inside, outside)
    if found is None:
        raise Unsupported(
            f"{path} of the process {pid} lies on a file system that the node's own processes do not see",
            resolution="run this inside of the container that this daemon runs in, or give the file with "
            "--config",
        )
    return NodePath(found)


def absolute_path(host: Host, pid: int, path: str) -> NodePath:
    """What the node calls a path of a process's command line. Raises as `node_path_of`."""
    if not path.startswith("/"):
        path = f"{host.node.resolve(f'/proc/{pid}/cwd').rstrip('/')}/{path}"
    return node_path_of(host, pid, DaemonPath(path))
