"""`driverforge` on a likeness: lock, plan and build as a user calls them, and runs of the images.

The matrix is the shipped one, and so are the addresses in it. A proxy answers for the vendors' hosts. One of
NVIDIA's archives is a miniature; `--mirror nvidia=` leads to it, and to what a likeness has of NVIDIA's
packages, for an engine does not ask a test's proxy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.likes.hosts import Vendors, vendors
from support.likes.likeness import Likeness
from support.machines.builderbench import BuilderBench
from support.machines.engine import Engine
from support.process import Finished
from support.samples.aptrepo import served
from support.samples.nvidiasite import publish_common

NVIDIA = "developer.download.nvidia.com"
ARCHIVE = "580.178.04"
"""The driver whose archive NVIDIA's hosts have here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LikenessBench:
    likeness: Likeness
    builder: BuilderBench
    vendors: Vendors
    nvidia: str

    def lock(self, *cells: str, more: Sequence[str | Path] = (), check: bool = True) -> str:
        """Pin what cells need; returns what was said on both outputs."""
        words = ["lock", *_selected(cells), "--keep-going", *more]
        words += [
            "--keyring",
            f"{self.likeness.os}={self.likeness.keyring}",
            "--mirror",
            f"nvidia={self.nvidia}",
        ]
        done = self.builder.driverforge(*words, check=False)
        if check:
            # drivers that were not asked for are in the target too, and not in these repositories
            assert self.builder.lock.is_file(), done.stdout + done.stderr
        return done.stdout + done.stderr

    def plan(self, *cells: str) -> dict[str, str]:
        """Verdicts by cell."""
        told = json.loads(self.builder.driverforge("plan", *_selected(cells), "--json").stdout)
        return {row["cell"]: row["verdict"] for row in told["cells"]}

    def build(self, *cells: str, check: bool = True) -> dict[str, dict[str, Any]]:
        """The build's report, by cell."""
        words = ["build", *_selected(cells), "--network", "host", "--ca", str(self.vendors.authorities)]
        words += ["--mirror", f"nvidia={self.nvidia}", "--keep-going", "--json"]
        done = self.builder.driverforge(*words, check=check)
        return {cell["cell"]: cell for cell in json.loads(done.stdout)["cells"]}

    @contextmanager
    def images(self, *cells: str, more: Sequence[str | Path] = ()) -> Iterator[dict[str, dict[str, Any]]]:
        """The build's report of cells that are locked and to be built; afterwards the engine forgets them."""
        self.lock(*cells, more=more)
        assert self.plan(*cells) == dict.fromkeys(cells, "build")
        report = self.build(*cells)
        yield report
        self.builder.forget(*(cell["reference"] for cell in report.values()))

    def run(self, reference: str, script: str, *, check: bool = True) -> Finished:
        """Run a script in an image that reaches the vendors through the proxy, as on a node of a site.

        The site's authorities are where this system's programs look for them, and in SSL_CERT_FILE.
        """
        authorities = f"{self.likeness.anchors}/site.crt"
        environment = {**self.vendors.environment, "SSL_CERT_FILE": authorities}
        given = [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
        mounted = f"{self.vendors.authorities}:{authorities}:ro"
        words = ["run", "--rm", "--network", "host", "--volume", mounted, *given, "--entrypoint", "sh"]
        return self.builder.engine.docker(*words, reference, "-ec", script, check=check)


def _selected(cells: Sequence[str]) -> list[str]:
    return [word for cell in cells for word in ("--select", cell)]


@contextmanager
def likeness_bench(likeness: Likeness, engine: Engine, folder: Path) -> Iterator[LikenessBench]:
    publish_common(folder / "nvidia", ARCHIVE)
    packages = likeness.hosts / NVIDIA
    if packages.is_dir():
        (folder / "nvidia/compute").symlink_to(packages / "compute")
    hosts = {path.name: path for path in likeness.hosts.iterdir()}
    with vendors(hosts, folder / "site") as running, served(folder / "nvidia") as nvidia:
        builder = BuilderBench(
            engine=engine,
            base=likeness.base(engine),
            os=likeness.os,
            folder=folder,
            lock=folder / "lock.json",
            environment=running.environment,
        )
        yield LikenessBench(likeness=likeness, builder=builder, vendors=running, nvidia=nvidia.url)
