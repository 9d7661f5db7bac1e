"""The legacy OCI hook, which CRI-O and podman run before a container's process.

It is one JSON file in a folder of hooks. Format: oci-hooks(5), version 1.0.0. The runtime watches the folder,
so that no restart is needed.
"""

from __future__ import annotations

import json
import posixpath

from driverforge_core import log
from driverforge_core.errors import InputError
from driverforge_host.ports import Host, bytes_of
from driverforge_toolkit.runtime.formats import jsonedit
from driverforge_toolkit.runtime.formats.values import lookup

VERSION = "1.0.0"
STAGE = "prestart"
PROGRAMS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")
STANDARD_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def rendered(program: str) -> bytes:
    """The file that runs `program` for every container.

    `program` is the absolute path of nvidia-container-runtime-hook on the node.
    """
    folder = posixpath.dirname(program)
    search = STANDARD_PATH if folder in STANDARD_PATH else (*STANDARD_PATH, folder)
    hook = {
        "path": program,
        "args": [posixpath.basename(program), STAGE],
        "env": ["PATH=" + ":".join(search)],
    }
    document = {
        "version": VERSION,
        "hook": hook,
        "when": {"always": True, "commands": [".*"]},
        "stages": [STAGE],
    }
    return (json.dumps(document, indent=4) + "\n").encode()


def undone(*, original: bytes | None, written: bytes | None, current: bytes | None) -> bytes | None:
    """What is to be at our path without our file: what was there before.

    A file that somebody else wrote since stays.
    """
    return original if current == written else current


def stripped(data: bytes | None, name: str) -> bytes | None:
    """A file of the folder, None where it is NVIDIA's hook. Raises InputError for a broken file."""
    if data is None:
        return None
    program = lookup(jsonedit.parse(data, name), ("hook", "path"))
    return None if isinstance(program, str) and posixpath.basename(program) in PROGRAMS else data


def put_hook(host: Host, path: str, program: str) -> None:
    """Write the hook for `program` to the node's `path`.

    Raises InputError where a hook of somebody else has that name.
    """
    meant, current = rendered(program), bytes_of(host.node, path)
    if current == meant:
        return
    if stripped(current, path) is not None:
        raise InputError(
            f"{path} is a hook of somebody else",
            resolution="move it, or give another --hook-filename; nothing was changed",
        )
    host.node.make_dirs(path.rpartition("/")[0])
    host.node.write_atomic(path, meant)
    log.warning(
        "wrote the OCI hook; CRI-O's handlers (CRIO_CONFIG_MODE=config) are what upstream recommends",
        file=path,
    )


def remove_hook(host: Host, path: str, program: str) -> None:
    """Take our hook away. One that somebody else wrote since stays."""
    current = bytes_of(host.node, path)
    left = undone(original=None, written=rendered(program), current=current)
    if current is not None and left is None:
        host.node.remove(path)
        log.info("removed the OCI hook", file=path)
