"""Every object of NVIDIA's open modules is the plain build's, byte by byte: one whole build beside another.

The oracle is NVIDIA's own Makefile and conftest with every object from its source, as PLAIN_COMPILE has it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import tempfile
from pathlib import Path

import pytest

from driverforge_core.errors import Unavailable
from driverforge_driver.compile.compiler import Ways, compile_modules, make_arguments
from driverforge_driver.compile.headers import KernelHeaders
from driverforge_driver.family.protocol import Compiler, HeaderTree
from driverforge_host.adapters.real import real_host
from support import cache
from support.machines import kernels
from support.machines.kernels import Kernel
from support.process import missing, run
from support.upstream import nvidia_modules

pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the kernels here are x86-64 ones"),
    pytest.mark.skipif(
        bool(missing("apt-get", "dpkg-deb", "make", "gcc")), reason="needs Debian's packages, make and gcc"
    ),
]

BRANCH = "535"
# UVM has more than a hundred; fewer objects would be another build than the one that is meant
FEWEST = 180


def headers_of(kernel: Kernel) -> KernelHeaders:
    tree = HeaderTree(root=str(kernel.headers), source=str(kernel.source), output=str(kernel.build))
    compiler = Compiler(program=kernel.compiler, package=kernel.compiler, built_with="")
    return KernelHeaders(tree=tree, compiler=compiler, packages=())


def made(kernel: Kernel, folder: Path, *, plain: bool) -> dict[str, str]:
    """{object or module: digest} of a build in `folder`."""
    work = folder / "work"
    compile_modules(
        real_host(),
        headers_of(kernel),
        source=str(nvidia_modules.source(BRANCH)),
        work=str(work),
        jobs=os.cpu_count() or 1,
        log_path=str(folder / "log"),
        epoch=1,
        ways=Ways(plain=plain),
    )
    objects = [path for path in work.glob("*/*.o") if path.with_suffix(".c").exists()]
    return {
        str(path.relative_to(work)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(objects)
    }


def plainly_made(kernel: Kernel) -> dict[str, str]:
    """The same of the plain build, which is kept."""
    inputs = {
        "driver": str(nvidia_modules.package(BRANCH)),
        "kernel": kernel.version,
        "cc": run(kernel.compiler, "--version").stdout.splitlines()[0],
        "make": " ".join(make_arguments(headers_of(kernel), work="WORK", jobs=1)),
    }

    def make(target: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="driverforge-plain-", dir="/var/tmp") as name:
            (target / "digests.json").write_text(json.dumps(made(kernel, Path(name), plain=True)))

    kept: dict[str, str] = json.loads((cache.cached("objects", inputs, make) / "digests.json").read_text())
    return kept


def nm_runs(folder: Path, environment: pytest.MonkeyPatch) -> Path:
    """A file that gets a line for each start of nm."""
    folder.mkdir()
    (folder / "nm").write_text(f'#!/bin/sh\necho "$@" >>{folder}/runs\nexec {shutil.which("nm")} "$@"\n')
    (folder / "nm").chmod(0o755)
    environment.setenv("PATH", str(folder), prepend=os.pathsep)
    return folder / "runs"


@pytest.mark.full(reason="compiles NVIDIA's own open modules twice: three to six minutes")
def test_every_object_and_module_is_the_plain_builds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        found = [kernels.headers(package) for package in kernels.candidates("6.1")]
    except Unavailable as error:
        pytest.skip(f"no kernel to build for: {error.brief}")
    fitting = (each for each in found if each.resize_arguments == 3 and shutil.which(each.compiler))
    kernel = next(fitting, None)
    if kernel is None:
        pytest.skip(f"no kernel whose compiler is here and that {BRANCH} compiles for")
    caplog.set_level("INFO")
    with monkeypatch.context() as watched:
        listed = nm_runs(tmp_path / "watched", watched)
        ours = made(kernel, tmp_path, plain=False)
    assert "plain way" not in caplog.text
    # precompiled headers were used, not merely offered
    assert list((tmp_path / "work").rglob("*.h.gch"))
    assert len(ours) > FEWEST
    # nvidia.ko exports symbols; most objects have none
    assert 0 < len(listed.read_text().splitlines()) < len(ours) / 4
    assert ours == plainly_made(kernel)
