"""Kernel modules of the bench, compiled on this machine against a guest's headers (compiling inside a TCG guest takes minutes).

`fakegpu` is a PCI function that exists in software only; `mock` are stand-ins for NVIDIA's modules. Both are test doubles and
say so. Module folders hold `.ko` files, stripped, and nothing else.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from driverforge_core.errors import CommandFailed
from support import cache
from support.kernels import Kernel
from support.process import require, run

_SOURCES = Path(__file__).resolve().parents[1] / "vm" / "modules"
MOCK_VERSION = "535.261.03"
GPU_MEMORY = "memmap=256M$0x30000000"  # on the kernel command line of a guest with at least 1024 MiB
GPU_PARAMETERS = "base=0x30000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """A key pair for module signatures."""

    private: Path
    certificate: Path  # PEM


def build(source: Path, kernel: Kernel, *, variables: Mapping[str, str] | None = None) -> Path:
    """Compile the modules of a folder; returns a cached folder of stripped .ko files."""
    require("make", "strip", kernel.compiler)
    chosen = dict(variables or {})
    compiler = run(kernel.compiler, "--version").stdout.splitlines()[0]
    inputs = {"source": cache.digest(source), "kernel": kernel.release, "headers": kernel.version, "cc": compiler, "variables": chosen}
    return cache.cached(f"kmods-{source.name}", inputs, lambda folder: _compile(source, kernel, chosen, folder))


def _compile(source: Path, kernel: Kernel, variables: Mapping[str, str], target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="driverforge-kmod-") as name:
        work = Path(name) / source.name
        shutil.copytree(source, work)
        # 6.12's headers hold a vmlinux for BTF: without pahole every module build ends in "pahole: not found"
        words = [f"M={work}", "CONFIG_DEBUG_INFO_BTF_MODULES=", *(f"{name}={value}" for name, value in variables.items())]
        run("make", "-s", "-C", kernel.build, *words, "modules")
        for module in sorted(work.glob("*.ko")):
            run("strip", "--strip-debug", module)
            shutil.copy(module, target)


def fakegpu(kernel: Kernel) -> Path:
    """The folder with fakegpu.ko. Guests need GPU_MEMORY on their command line and pass GPU_PARAMETERS to modprobe."""
    return build(_SOURCES / "fakegpu", kernel)


def mock(kernel: Kernel, version: str = MOCK_VERSION) -> Path:
    """The folder with nvidia.ko, nvidia-uvm.ko, nvidia-modeset.ko and nvidia-peermem.ko that call themselves `version`."""
    return build(_SOURCES / "mock", kernel, variables={"MOCK_VERSION": version})


def signing_key(folder: Path, *, name: str = "driverforge test") -> SigningKey:
    """Make a key pair in a folder. Throw-away: it never leaves the test that made it."""
    require("openssl")
    key = SigningKey(private=folder / "signing.key", certificate=folder / "signing.pem")
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", f"/CN={name}"]
    run(*request, "-addext", "keyUsage=digitalSignature", "-keyout", key.private, "-out", key.certificate)
    return key


def sign(module: Path, kernel: Kernel, key: SigningKey, *, algorithm: str = "sha256") -> None:
    """Append a signature to a module, with the sign-file program of the kernel's own linux-kbuild package."""
    tool = kernel.build / "scripts/sign-file"
    if not tool.exists():
        raise CommandFailed(f"{kernel.release}: linux-kbuild has no scripts/sign-file", details=[str(tool)])
    run(tool, algorithm, key.private, key.certificate, module)
