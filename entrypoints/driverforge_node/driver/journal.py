"""Write down what observation cannot recover."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from driverforge_node.driver import paths
from driverforge_node.driver.facts import Journal
from driverforge_node.driver.observe import read_journal
from driverforge_node.host.ports import Files


def set_loading(files: Files, digest: str) -> None:
    """Modules are inserted under this configuration from now on; '' when none are."""
    _write(files, replace(read_journal(files), loading=digest))


def set_firmware_path_before(files: Files, value: str | None) -> None:
    _write(files, replace(read_journal(files), firmware_path_before=value))


def set_firmware(files: Files, written: tuple[str, ...]) -> None:
    """Firmware files of ours, by path: in /lib/firmware of a host or another image they may be a package's."""
    _write(files, replace(read_journal(files), firmware=written))


def _write(files: Files, journal: Journal) -> None:
    files.make_dirs(paths.STATE)
    files.write_atomic(paths.JOURNAL, (json.dumps(asdict(journal), indent=2) + "\n").encode())
