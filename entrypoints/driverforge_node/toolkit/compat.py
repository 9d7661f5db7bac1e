"""The name `nvidia-toolkit`, as NVIDIA's operator calls it: no arguments, everything from the environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

DRIVERCTL = ("toolkit", "runtime", "cdi", "devices", "doctor", "--version", "--help", "-h")


def translate(argv: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """`nvidia-toolkit` arguments as `driverctl` arguments: a command of driverctl as it is, else upstream's flags of a `toolkit run`."""
    if argv and argv[0] in DRIVERCTL:
        return list(argv)
    said = any(word.partition("=")[0] == "--revert-on" for word in argv) or environ.get("TOOLKIT_REVERT_ON")
    return ["toolkit", "run", *([] if said else ["--revert-on", "stop"]), *argv]
