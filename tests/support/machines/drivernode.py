"""A node in a kernel guest with the driver container on it, but without a container runtime.

The container is a chroot on an overlay with the mounts of NVIDIA's driver pod: /run/nvidia shared with the
node, the host's PID namespace, its own empty /lib/modules. `driverctl` in it is this checkout's. The modules
are the bench's test doubles unless a test gives real ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from driverforge_build.render.library import DRIVER_IMAGE
from driverforge_core.driverversion import DriverVersion
from driverforge_core.image import FACTS_PATH, MODULE_SET_NAME, MODULES_ROOT, ImageFacts, ModuleSet
from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsId
from support.machines import kmods
from support.machines.guest import Content, Guest

CONTAINER = "/ctr"
_PACKAGES = Path(__file__).resolve().parents[3] / "entrypoints"

# in the guest: `driverctl ARGUMENTS` runs in the container; `hold DEVICE` keeps a device open until `release`
SETUP = f"""
modprobe overlay
mkdir -p /ov {CONTAINER} /run/nvidia
mount -t tmpfs ov /ov
mkdir /ov/u /ov/w
mount -t overlay overlay -o lowerdir=/,upperdir=/ov/u,workdir=/ov/w {CONTAINER}
mount --bind /run/nvidia /run/nvidia
mount --make-shared /run/nvidia
for name in proc sys dev; do mount --rbind /$name {CONTAINER}/$name; done
mkdir -p {CONTAINER}/run/nvidia
mount --rbind /run/nvidia {CONTAINER}/run/nvidia
cp -a /payload/. {CONTAINER}/
cat >/usr/local/bin/driverctl <<'X'
#!/bin/sh
exec chroot {CONTAINER} /usr/local/bin/driverctl "$@"
X
chmod +x /usr/local/bin/driverctl
"""
LAUNCHER = """#!/bin/sh
exec python3 -I -S -c 'import sys; sys.path.insert(0, "/opt/driverforge/lib"); sys.argv[0] = "driverctl"
from driverctl.cli import main; main()' "$@"
"""


def gpu_script(*, load: bool = True) -> str:
    """Put the software PCI function on the bus."""
    return f"insmod /gpu/fakegpu.ko {kmods.GPU_PARAMETERS}\n" if load else ""


def module_set(
    folder: Path, release: str, *, driver: str, module_type: str = "open", signer: str = ""
) -> bytes:
    """The description of a folder of modules, as a build writes it beside them."""
    digests = {
        file.name: f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"
        for file in sorted(folder.glob("*.ko"))
    }
    described = ModuleSet(
        driver=DriverVersion(driver),
        module_type=module_type,
        kernel=KernelRelease.parse(release),
        arch="amd64",
        compiler="test",
        modules=digests,
        signer=signer,
    )
    return described.to_json().encode()


def image_facts(
    driver: str, release: str, *, sources: Mapping[str, str] | None = None, firmware: str = ""
) -> bytes:
    """What the container's image says of itself."""
    facts = ImageFacts(
        os=OsId.parse("debian12"),
        arch="amd64",
        driver=DriverVersion(driver),
        payload="packages",
        module_types=("open",),
        variant="precompiled",
        kernels=(KernelRelease.parse(release),),
        sources=dict(sources or {}),
        firmware=firmware,
    )
    return facts.to_json().encode()


def container_files(
    modules: Path, release: str, *, driver: str = kmods.MOCK_VERSION, module_type: str = "open"
) -> dict[str, Content]:
    """Files for the guest: what the image would hold, under /payload."""
    place = f"/payload{MODULES_ROOT}/{release}/{module_type}"
    files: dict[str, Content] = {f"{place}/{file.name}": file for file in sorted(modules.glob("*.ko"))}
    files[f"{place}/{MODULE_SET_NAME}"] = module_set(modules, release, driver=driver, module_type=module_type)
    files[f"/payload{FACTS_PATH}"] = image_facts(driver, release)
    return {**files, **{f"/payload{path}": file for path, file in library_files().items()}}


def library_files() -> dict[str, Path]:
    """This checkout's driver half, and what it stands on, by its path in an image."""
    return {
        f"/opt/driverforge/lib/{file.relative_to(_PACKAGES)}": file
        for package in DRIVER_IMAGE
        for file in sorted((_PACKAGES / package).rglob("*.py"))
    }


def prepare(guest: Guest, files: Mapping[str, Content], fakegpu: Path, *, gpu: bool = True) -> None:
    """Put the container into the guest, and a GPU on its bus."""
    guest.put(
        {**files, "/gpu/fakegpu.ko": fakegpu / "fakegpu.ko", "/payload/usr/local/bin/driverctl": LAUNCHER}
    )
    guest.run(
        f"set -e\n{SETUP}chmod +x {CONTAINER}/usr/local/bin/driverctl\n{gpu_script(load=gpu)}", timeout=40
    ).ok()
