"""The legacy OCI hook that CRI-O and podman run before a container's process: one JSON file in a folder of hooks.

Format: oci-hooks(5), version 1.0.0. The runtime watches the folder, so that no restart is needed.
"""

from __future__ import annotations

import json
import posixpath

from driverforge_node.runtime import jsonedit
from driverforge_node.runtime.document import lookup
from driverforge_node.runtime.model import Undone

VERSION = "1.0.0"
STAGE = "prestart"
PROGRAMS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")
STANDARD_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def rendered(program: str) -> bytes:
    """The file that runs `program` (the absolute path of nvidia-container-runtime-hook on the node) for every container."""
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


def undone(*, original: bytes | None, written: bytes | None, current: bytes | None) -> Undone:
    """What is at our path without our file: what was there before; a file that somebody else wrote since stays."""
    return Undone(data=original if current == written else current)


def stripped(data: bytes | None, name: str) -> bytes | None:
    """The folder's file without NVIDIA's hook: None where it is that one. Raises InputError for a broken file."""
    if data is None:
        return None
    program = lookup(jsonedit.parse(data, name), ("hook", "path"))
    return None if isinstance(program, str) and posixpath.basename(program) in PROGRAMS else data
