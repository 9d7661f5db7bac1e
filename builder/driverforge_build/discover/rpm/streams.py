"""modules.yaml: packages of module streams, which dnf does not see unless a stream is enabled.

Format: modulemd of Fedora's libmodulemd. RHEL 8 and 9 have several versions of a program as streams; the
default ones are enabled without asking.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from driverforge_build.packed import DAMAGED, unpacked
from driverforge_core.errors import InputError

LIMIT = 256 << 20
"""Bytes, unpacked. AppStream's of RHEL 8 has less than 20 MB."""

_UNREADABLE: tuple[type[Exception], ...] = (
    yaml.YAMLError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
    *DAMAGED,
)
# the safe loader in C, where PyYAML was built with it
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def hidden_packages(path: Path, suffix: str) -> frozenset[str]:
    """The packages of streams that are no default, 'name-[epoch:]version-release.arch'. Raises InputError."""
    try:
        with path.open("rb") as file:
            text = unpacked(file, suffix).read(LIMIT + 1)
        if len(text) > LIMIT:
            raise EOFError(f"it unpacks to more than {LIMIT} bytes")
        documents = [one for one in yaml.load_all(text, _LOADER) if isinstance(one, dict)]
        return _hidden(documents)
    except _UNREADABLE as error:
        raise InputError(
            f"cannot read the module streams {path}: {error}",
            resolution="use another mirror: this one's modules.yaml is not what dnf would read",
        ) from error


def _hidden(documents: list[dict[str, Any]]) -> frozenset[str]:
    defaults = {
        (data["module"], str(data["stream"]))
        for document in documents
        if document.get("document") == "modulemd-defaults" and "stream" in (data := document["data"])
    }
    found: set[str] = set()
    shown: set[str] = set()
    for document in documents:
        if document.get("document") != "modulemd":
            continue
        data = document["data"]
        enabled = (data["name"], str(data["stream"])) in defaults
        packages = (data.get("artifacts") or {}).get("rpms") or ()
        (shown if enabled else found).update(map(_without_zero_epoch, packages))
    return frozenset(found - shown)


def _without_zero_epoch(nevra: str) -> str:
    """'perl-4:5.32-1.el8.x86_64' stays, of 'make-0:4.3-1.el8.x86_64' the 0: goes."""
    return nevra.replace("-0:", "-", 1)
