"""Variables of NVIDIA's toolkit container that several commands read. The first one that is set counts.

It imports nothing of ours: the table of the toolkit's options is read on any interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

INSTALL_DIRS = ("TOOLKIT_INSTALL_DIR", "ROOT")
INSTALL_DIR = "/usr/local/nvidia"  # where none of these says another


def first(environ: Mapping[str, str], names: Sequence[str]) -> tuple[str, str]:
    """(variable, value) of the first one that is set and not empty; ('', '') for none."""
    return next(((name, environ[name]) for name in names if environ.get(name)), ("", ""))


def install_dir(environ: Mapping[str, str]) -> str:
    """The node's folder of the toolkit, without a slash at its end."""
    return (first(environ, INSTALL_DIRS)[1] or INSTALL_DIR).rstrip("/")
