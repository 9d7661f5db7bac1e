"""An image as `driverforge build` makes it on a real engine: Debian's compiler, a driver in miniature.

What is in it besides the driver is what a user's image has. Its build takes a minute; the cache keeps the
image by its own `inputs` digest, so a change of our code makes it anew. A JIT image unless asked for one with
the modules of a kernel.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from driverforge_build.lock.file import dump_lock
from support import cache
from support.machines.builderbench import BuilderBench, real_lock
from support.machines.engine import Engine, debian_base
from support.samples.tinydriver import DRIVER, PLAIN_MIRROR, PLAIN_SUITE, SUITE, site, tiny_lock

CELL = f"debian12-amd64-{DRIVER}-jit"
NAME = f"driverforge.test/driver:{DRIVER}-debian12"


def build(engine: Engine, cell: str = CELL, *, libraries: bool = False) -> Path:
    """An OCI archive of the image; `libraries`: with the real ones of the driver."""
    with tempfile.TemporaryDirectory(prefix="driverforge-jit-", dir="/var/tmp") as name:
        folder = Path(name)
        (folder / "mirror").mkdir()
        with site(folder / "mirror", folder / "site") as serving:
            bench = BuilderBench(
                engine=engine,
                base=debian_base(engine),
                folder=folder,
                lock=folder / "lock.json",
                environment={"HTTP_PROXY": serving.proxy},
            )
            lock = tiny_lock(real_lock(), folder / "mirror", salt="jit", libraries=libraries)
            bench.lock.write_text(dump_lock(lock))
            asked = ["--plan", "--json", "--output", "nowhere", "--select", cell]
            [image] = json.loads(bench.driverforge("generate", *asked).stdout)["images"]

            def make(target: Path) -> None:
                mirrors = [f"debian12/{SUITE}={serving.mirror}", f"debian12/{PLAIN_SUITE}={PLAIN_MIRROR}"]
                given = [word for mirror in mirrors for word in ("--mirror", mirror)]
                given += ["--ca", str(serving.authorities), "--network", "host", "--json"]
                [built] = json.loads(bench.driverforge("build", "--select", cell, *given).stdout)["cells"]
                engine.docker("save", "--output", target / "image.tar", built["reference"])
                bench.forget(built["reference"])

            return cache.cached("jitimage", {"inputs": image["inputs"]}, make) / "image.tar"
