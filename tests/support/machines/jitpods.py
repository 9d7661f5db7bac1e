"""Pods of a JIT image in a kernel guest without a container runtime: runc runs them, as a kubelet would.

The pod is that of docs/kubernetes/driver.yaml. Each one has a file system of its own, and all share the
node's /run/nvidia, its PID namespace and its cache of modules. The image is the guest's own Debian with a
compiler, this checkout's `driverctl`, and the sources of the bench's mock modules. apt, dpkg, make and gcc
are Debian's; what apt fetches are Debian's header packages, from a repository that is signed here.

gcc takes minutes in a guest without KVM. Where a test has nothing to say about it, a stand-in for make puts
modules in place that were compiled here.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path

import yaml

from driverforge_core.driverversion import DriverVersion
from driverforge_core.image import FACTS_PATH, ImageFacts
from driverforge_core.osid import OsId
from support.machines import drivernode, kernels, kmods, pod
from support.machines.guest import Content, Guest
from support.machines.kernels import Kernel
from support.machines.podspec import translate
from support.machines.store import StoredImage
from support.samples import tinydriver
from support.samples.aptrepo import Archive, Deb, SigningKey

MANIFEST = Path(__file__).resolve().parents[3] / "docs/kubernetes/driver.yaml"
SUITE = "bookworm"
SOURCES = f"/usr/src/nvidia-{tinydriver.DRIVER}/kernel-open"
_REPOSITORY = "/srv/debian"  # on the node, and below its root in each pod
_PODS = "/pods"
_IMAGE = StoredImage(
    name="bench.test/driver:jit",
    digest="",
    chain="",
    entrypoint=("nvidia-driver",),
    command=("init",),
    environment=("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",),
    directory="/",
)
MADE = "/usr/src/made"
# What stands for make copies the modules of MADE. As a compiler does, it takes its time, and leaves halves on
# the way.
MAKE = f"""#!/bin/sh
# NOT make: a stand-in of driverforge's test bench. It copies modules that were compiled elsewhere.
set -e
for module in {MADE}/nvidia.ko {MADE}/nvidia-uvm.ko {MADE}/nvidia-modeset.ko; do
    echo "stand-in for make: ${{module##*/}}"
    head -c 4096 $module >${{module##*/}}
    sleep 0.7
    cp $module .
done
"""
_SETUP = f"""
set -e
modprobe overlay
mkdir -p {_PODS} /image
mount -t tmpfs pods {_PODS}
mount --make-private {_PODS}
mount -t tmpfs image /image
cp -a /payload/. /image/
python3 -I -m compileall -q --invalidation-mode unchecked-hash /image/opt/driverforge/lib
chmod +x /image/usr/local/bin/*
insmod /gpu/fakegpu.ko {kmods.GPU_PARAMETERS}
sh -e {_PODS}.host-paths
"""

# For scripts in the guest. `new_pod` makes the next pod, whose file system ($ROOT) nobody has written to; the
# one before it goes. `run_pod` runs it in the foreground; $PID_FILE has the PID of its first process. Where
# that dies, runc kills the others before it ends, as a runtime does in the node's PID namespace.
SHELL = f"""
export LC_ALL=C
ROOT={_PODS}/pod/rootfs
PID_FILE={_PODS}/pid
new_pod() {{
    if [ -d $ROOT ]; then umount $ROOT && rm -rf {_PODS}/pod || return; fi
    mkdir -p $ROOT {_PODS}/pod/upper {_PODS}/pod/work
    mount -t overlay overlay -o lowerdir=/image:/,upperdir={_PODS}/pod/upper,workdir={_PODS}/pod/work $ROOT
    cp {_PODS}.json {_PODS}/pod/config.json
    rm -f $PID_FILE
}}
run_pod() {{ runc run --bundle {_PODS}/pod --pid-file $PID_FILE driver; }}
"""


def repository(folder: Path, key: SigningKey, kernel: Kernel, *, small: bool = False) -> Archive:
    """A signed repository with a kernel's header packages; the key lies in it as archive.gpg.

    They are Debian's. `small` ones have only what `driverctl` reads, for the stand-in for make.
    """
    made = Archive(folder, key)
    yesterday = datetime.now(timezone.utc) - timedelta(days=1)  # a guest's clock may be behind
    packages = _small_headers(kernel) if small else kernels.header_debs(kernel)
    made.publish(SUITE, {"main": packages}, date=yesterday)
    shutil.copy(key.keyring, folder / "archive.gpg")
    return made


def _small_headers(kernel: Kernel) -> tuple[Deb, ...]:
    own, common = kernel.build.name, kernel.source.name
    parts = {
        own: (".config", ".kernelvariables", "scripts/Makefile.build"),
        common: ("Makefile", "include/linux/pci.h"),
    }
    files = {
        name: {
            f"usr/src/{name}/{path}": (kernel.headers / "usr/src" / name / path).read_text() for path in paths
        }
        for name, paths in parts.items()
    }
    files[own][f"usr/src/{own}/Makefile"] = f"include /usr/src/{common}/Makefile\n"
    return (
        Deb(name=own, version=kernel.version, depends=f"{common} (= {kernel.version})", files=files[own]),
        Deb(name=common, version=kernel.version, arch="all", files=files[common]),
    )


def image_files(made: Path | None = None) -> dict[str, Content]:
    """What the image has and Debian has not. `made` are modules for the stand-in for make."""
    facts = ImageFacts(
        os=OsId.parse("debian12"),
        arch="amd64",
        driver=DriverVersion(tinydriver.DRIVER),
        payload="packages",
        module_types=("open",),
        variant="jit",
        kernels=(),
        sources={"open": SOURCES},
        firmware="",
        source_digests={"open": f"sha256:{'0' * 64}"},
    )
    source = f"deb [signed-by={_REPOSITORY}/archive.gpg] file:{_REPOSITORY} {SUITE} main\n"
    files: dict[str, Content] = {
        FACTS_PATH: facts.to_json(),
        "/etc/apt/sources.list": source,
        "/usr/local/bin/nvidia-driver": drivernode.LAUNCHER,
        "/usr/local/bin/driverctl": drivernode.LAUNCHER,
        **tinydriver.sources(SOURCES),
        **drivernode.library_files(),
    }
    return {**files, **({"/usr/local/bin/make": MAKE, MADE: made} if made else {})}


def prepare(guest: Guest, archive: Archive, fakegpu: Path, *arguments: str, made: Path | None = None) -> None:
    """Put the image into the guest, and a GPU on its bus. Pods run `nvidia-driver ARGUMENTS`.

    With `made`, the image has the stand-in for make, and these modules.
    """
    documents = list(yaml.safe_load_all(MANIFEST.read_text()))
    found = translate(documents, image=_IMAGE, node=pod.node_facts(guest), arguments=arguments)
    payload = {f"/payload{path}": content for path, content in image_files(made).items()}
    files: Mapping[str, Content] = {
        **payload,
        _REPOSITORY: archive.folder,
        "/gpu/fakegpu.ko": fakegpu / "fakegpu.ko",
        f"{_PODS}.json": json.dumps({**found.spec, "root": {**found.spec["root"], "path": "rootfs"}}),
        f"{_PODS}.host-paths": "\n".join(map(pod.host_path, found.host_paths)) + "\n",
    }
    guest.put(files)
    guest.run(_SETUP, timeout=120).ok()
