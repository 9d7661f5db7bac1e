"""What the toolkit's pod is on a systemd node, with this checkout's driverctl.

It is a privileged container in the node's PID namespace.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from driverforge_build.render.library import TOOLKIT_IMAGE, library_files
from support.machines.engine import Engine
from support.machines.systemdnode import SystemdNode
from support.process import Finished

_LAUNCHER = """#!/bin/sh
exec python3 -I -S -c 'import sys; sys.path.insert(0, "/opt/driverforge/lib"); sys.argv[0] = "driverctl"
from driverctl.cli import main; main()' "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePod:
    """Runs commands beside a node."""

    node: SystemdNode
    image: str

    def run(self, *words: str, check: bool = True, options: tuple[str, ...] = ()) -> Finished:
        """A new container that runs `words` to their end. It sees the node by /proc/1/root."""
        joined = (
            "--rm",
            "--privileged",
            "--network",
            "host",
            "--pid",
            f"container:{self.node.container}",
            *options,
        )
        return self.node.engine.docker("run", *joined, self.image, *words, check=check)

    def driverctl(self, *words: str, check: bool = True) -> Finished:
        return self.run("driverctl", *words, check=check)


def image(engine: Engine, base: str) -> str:
    """An image with Python and our packages; the engine's cache keeps what did not change."""
    files = library_files(TOOLKIT_IMAGE)
    tag = f"driverforge-bench/pod:{base.rpartition(':')[2]}"
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        for name, data in files.items():
            file = context / "lib" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        (context / "driverctl").write_text(_LAUNCHER)
        (context / "driverctl").chmod(0o755)
        (context / "Dockerfile").write_text(
            f"FROM {base}\n"
            "RUN apt-get update && apt-get install -y --no-install-recommends python3 && apt-get clean\n"
            "COPY lib /opt/driverforge/lib\nCOPY driverctl /usr/local/bin/driverctl\n"
        )
        engine.docker("buildx", "build", "--network", engine.network, "--load", "--tag", tag, context)
    return tag
