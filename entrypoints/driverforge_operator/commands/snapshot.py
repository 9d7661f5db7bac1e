"""`driverforge-operator snapshot`."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import click

from driverforge_core.errors import InputError
from driverforge_operator.commands.options import from_option, namespace_option
from driverforge_operator.commands.output import say

_ARCHIVES = (".tar", ".tar.gz", ".tgz")


@click.command("snapshot")
@click.argument("target", type=click.Path(path_type=Path), metavar="TARGET")
@namespace_option
@from_option
def snapshot_command(*, target: Path, namespace: str, folder: Path | None) -> int:
    """Write what a person far away needs to help: objects, events, logs; without secrets.

    TARGET is a new folder, or a file that ends in .tar, .tar.gz or .tgz. The other reading commands take
    either with --from. With --from here, a folder of `kubectl get -o yaml` loses its secrets.
    """
    from driverforge_operator.app.snapshot import snapshot
    from driverforge_operator.commands.reader import inspector

    if target.exists():
        raise InputError(f"{target} is there already", resolution="name another file or folder")
    found = snapshot(inspector(folder, namespace), namespace)
    if target.name.endswith(_ARCHIVES):
        _pack(target, found.files)
    else:
        for name, text in found.files.items():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_text(text, encoding="utf-8")
    logs = sum(name.startswith("logs/") for name in found.files)
    say(f"{target}: {len(found.files) - logs} files of objects, {logs} logs")
    for one in found.unread:
        say(f"not read: {one}")
    return 0


def _pack(target: Path, files: Mapping[str, str]) -> None:
    with tarfile.open(target, "w" if target.suffix == ".tar" else "w:gz") as archive:
        for name, text in files.items():
            data = text.encode()
            member = tarfile.TarInfo(f"snapshot/{name}")
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
