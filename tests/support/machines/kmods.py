"""Kernel modules of the bench, compiled on this machine against a guest's headers.

Compiling inside a TCG guest would take minutes. `fakegpu` is a PCI function that exists in software only;
`mock` are stand-ins for NVIDIA's modules. Both are test doubles and say so. Module folders hold `.ko` files,
stripped, and nothing else.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from driverforge_core.errors import CommandFailed, Unavailable
from support import cache
from support.machines.engine import Engine, debian_base
from support.machines.kernels import Kernel
from support.process import require, run

SOURCES = Path(__file__).resolve().parents[2] / "vm" / "modules"
MOCK_VERSION = "535.261.03"
GPU_MEMORY = "memmap=256M$0x30000000"  # on the kernel command line of a guest with at least 1024 MiB
GPU_PARAMETERS = "base=0x30000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSigningKey:
    """A key pair for module signatures."""

    private: Path
    certificate: Path  # PEM


def build(
    source: Path, kernel: Kernel, *, variables: Mapping[str, str] | None = None, engine: Engine | None = None
) -> Path:
    """Compile the modules of a folder; returns a cached folder of stripped .ko files.

    A kernel of a newer Debian needs its own compiler and C library: its modules are compiled in a container
    of `engine`.
    """
    native = shutil.which(kernel.compiler) is not None
    if not native and engine is None:
        raise Unavailable(
            f"{kernel.compiler}, which made kernel {kernel.release}, is not here, "
            "and there is no engine to compile in"
        )
    chosen = dict(variables or {})
    compiler = (
        run(kernel.compiler, "--version").stdout.splitlines()[0]
        if native
        else f"{kernel.compiler} of {kernel.suite}"
    )
    inputs = {
        "source": cache.digest(source),
        "kernel": kernel.release,
        "headers": kernel.version,
        "cc": compiler,
        "variables": chosen,
    }
    return cache.cached(
        f"kmods-{source.name}",
        inputs,
        lambda folder: _compile(source, kernel, chosen, folder, None if native else engine),
    )


def _compile(
    source: Path, kernel: Kernel, variables: Mapping[str, str], target: Path, engine: Engine | None
) -> None:
    with tempfile.TemporaryDirectory(prefix="driverforge-kmod-", dir="/var/tmp") as name:
        work = Path(name) / source.name
        shutil.copytree(source, work)
        # 6.12's headers hold a vmlinux for BTF: without pahole every module build ends in "pahole: not found"
        words = [
            f"M={work}",
            "CONFIG_DEBUG_INFO_BTF_MODULES=",
            *(f"{key}={value}" for key, value in variables.items()),
        ]
        make = ["make", "-s", "-C", str(kernel.build), *words, "modules"]
        script = f"{shlex.join(make)} && strip --strip-debug {shlex.quote(str(work))}/*.ko"
        if engine is None:
            require("make", "strip")
            run("sh", "-c", script)
        else:
            volumes = ["--volume", f"{kernel.headers}:{kernel.headers}:ro", "--volume", f"{name}:{name}"]
            engine.docker(
                "run", "--rm", "--network", "none", *volumes, _toolchain(engine, kernel), "sh", "-c", script
            )
        for module in sorted(work.glob("*.ko")):
            shutil.copy(module, target)


def _toolchain(engine: Engine, kernel: Kernel) -> str:
    """An image with the compiler of a kernel, from the kernel's own suite."""
    name = f"driverforge-bench/{kernel.suite}-{kernel.compiler}"
    base = debian_base(engine, kernel.suite.partition("-")[0])
    # objtool needs libelf, whose package has another name in each suite; its -dev package has not
    install = (
        f"apt-get update && apt-get install -y --no-install-recommends {kernel.compiler} make libelf-dev"
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "Dockerfile").write_text(f"FROM {base}\nRUN {install}\n")
        engine.docker("buildx", "build", "--network", engine.network, "--load", "--tag", name, folder)
    return name


def fakegpu(kernel: Kernel, engine: Engine | None = None) -> Path:
    """The folder with fakegpu.ko.

    Guests need GPU_MEMORY on their command line and pass GPU_PARAMETERS to modprobe.
    """
    return build(SOURCES / "fakegpu", kernel, engine=engine)


def mock(kernel: Kernel, version: str = MOCK_VERSION) -> Path:
    """The folder with the mock modules, which call themselves `version`.

    They are nvidia.ko, nvidia-uvm.ko, nvidia-modeset.ko and nvidia-peermem.ko.
    """
    return build(SOURCES / "mock", kernel, variables={"MOCK_VERSION": version})


def nogpu(kernel: Kernel) -> Path:
    """The folder with modules that end as NVIDIA's do where no GPU is, and some that no kernel takes.

    unknown.ko and nvidia-peermem.ko need symbols that nothing here exports.
    """
    return build(SOURCES / "nogpu", kernel, variables={"KBUILD_MODPOST_WARN": "1"})


def signing_key(folder: Path, *, name: str = "driverforge test") -> ModuleSigningKey:
    """Make a key pair in a folder. Throw-away: it never leaves the test that made it."""
    require("openssl")
    key = ModuleSigningKey(private=folder / "signing.key", certificate=folder / "signing.pem")
    request = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "30",
        "-subj",
        f"/CN={name}",
    ]
    run(*request, "-addext", "keyUsage=digitalSignature", "-keyout", key.private, "-out", key.certificate)
    return key


def sign(module: Path, kernel: Kernel, key: ModuleSigningKey, *, algorithm: str = "sha256") -> None:
    """Append a signature to a module, with the sign-file program of the kernel's own linux-kbuild package."""
    tool = kernel.build / "scripts/sign-file"
    if not tool.exists():
        raise CommandFailed(f"{kernel.release}: linux-kbuild has no scripts/sign-file", details=[str(tool)])
    run(tool, algorithm, key.private, key.certificate, module)
