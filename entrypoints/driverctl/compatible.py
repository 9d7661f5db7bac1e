"""The names `nvidia-driver` and `nvidia-toolkit`, as NVIDIA's operator and its users call them.

Source of nvidia-driver: the usage text and the getopt loops of NVIDIA/gpu-driver-container. Options that mean
nothing here are accepted, since a manifest may carry them; names that this program does not serve end in a
usage error that says so.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from driverctl.halves import HALVES, TOOLKIT
from driverforge_core.errors import UsageError

USAGE = (
    "usage: nvidia-driver init|load [-a|--accept-license] [-m|--max-threads N] [-k|--kernel RELEASE] "
    "[-t|--tag TAG] [--headers DIR] [--work-dir DIR] | reload_nvidia_peermem | probe_nvidia_peermem"
)
# options with a value -> ours; '' where upstream's has nothing to say to us
VALUES = {
    # not upstream's: a pod that has to be told where, keeps its command
    "--headers": "--headers",
    "--work-dir": "--work-dir",
    "-k": "--kernel",
    "--kernel": "--kernel",
    # the folder of packages that upstream's image was built with
    "-t": "",
    "--tag": "",
}
ELSEWHERE = {
    "update": "use `driverctl build --kernel RELEASE` to prepare modules for another kernel",
    "build": "use `driverctl build --kernel RELEASE`",
    "runtime": f"run `driverctl {{words}}` from {HALVES[TOOLKIT][1]}",
}
SIDECAR = {
    "reload_nvidia_peermem": ["peermem", "serve"],
    "probe_nvidia_peermem": ["peermem", "probe"],
}
DRIVER_COMMANDS = ("status", "probe", "unload", "--version", "--help", "-h")
TOOLKIT_COMMANDS = ("toolkit", "runtime", "cdi", "devices", "doctor", "--version", "--help", "-h")


def driver_arguments(argv: Sequence[str]) -> list[str]:
    """`nvidia-driver` arguments as `driverctl` arguments. Raises UsageError."""
    if not argv:
        raise UsageError("nvidia-driver: no command given", details=[USAGE])
    if argv[0] in DRIVER_COMMANDS:
        return list(argv)
    # The entry point of upstream's images is `nvidia-driver init`: who gives no command gives options alone.
    command, *rest = ("init", *argv) if argv[0].startswith("-") else argv
    if command in SIDECAR:
        # upstream takes no options here, and ignores what comes
        return list(SIDECAR[command])
    if command in ELSEWHERE:
        raise UsageError(
            f"nvidia-driver {command} is not available in this image",
            details=[USAGE],
            resolution=ELSEWHERE[command].format(words=shlex.join(argv)),
        )
    if command not in ("init", "load"):
        raise UsageError(f"nvidia-driver: unknown command {command!r}", details=[USAGE])
    # upstream's `load` is `init` without the compilation: it mounts the root and stays, too
    return ["init", *(["--no-build"] if command == "load" else []), *_options(rest)]


def _options(words: Sequence[str]) -> list[str]:
    out: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, joined, value = word.partition("=")
        if word in ("-a", "--accept-license"):
            continue  # the licence was accepted by whoever built the image with the driver in it
        if name in ("-m", "--max-threads") or (word[:2] == "-m" and word[2:].isdigit()):
            number = (
                value
                if joined
                else word[2:]
                if name not in ("-m", "--max-threads")
                else rest.pop(0)
                if rest
                else ""
            )
            if not number.isdigit() or int(number) == 0:
                raise UsageError(
                    f"nvidia-driver: {name} needs a number of threads, not {number!r}", details=[USAGE]
                )
            out += ["--jobs", number]
        elif name in VALUES:
            if not (given := value if joined else rest.pop(0) if rest else ""):
                raise UsageError(f"nvidia-driver: {name} needs a value", details=[USAGE])
            out += [VALUES[name], given] if VALUES[name] else []
        elif word in ("--plan", "--confirm"):
            out.append(word)
        else:
            raise UsageError(f"nvidia-driver: unknown option {word!r}", details=[USAGE])
    return out


def toolkit_arguments(argv: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """`nvidia-toolkit` arguments as `driverctl` arguments.

    A command of driverctl stays as it is; all else is upstream's flags of a `toolkit run`. The operator gives
    no arguments at all: everything comes from the environment.
    """
    if argv and argv[0] in TOOLKIT_COMMANDS:
        return list(argv)
    said = any(word.partition("=")[0] == "--revert-on" for word in argv) or environ.get("TOOLKIT_REVERT_ON")
    return ["toolkit", "run", *([] if said else ["--revert-on", "stop"]), *argv]
