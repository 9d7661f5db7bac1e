"""An archive laid out as Ubuntu's, its indexes made by Canonical's own tool for them, apt-ftparchive.

Three pockets in one archive, the modules in `restricted`, arm64 in an archive of its own beside it. Names,
dependencies and files are those that packages.ubuntu.com shows for noble in 2026; the packages hold next to
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from driverforge_build.matrix.load import Matrix, parse_matrix
from support.process import require, run
from support.samples.aptrepo import Deb, SigningKey, build_deb

GENERIC, OLD, AWS, HWE, BOUND = (
    "6.8.0-136-generic",
    "6.8.0-31-generic",
    "6.8.0-1060-aws",
    "6.17.0-40-generic",
    "6.8.0-138-generic",
)
"""`OLD` is in the release pocket alone, `HWE` of another source, `BOUND` has modules of another driver."""
PAGES_64K = "6.8.0-1044-nvidia-64k"
DRIVER, NEXT_DRIVER = "580.173.02", "580.178.04"

MATRIX = """\
branches:
  - {id: "580", designation: LTSB, newest: 580.178.04, archs: [amd64, arm64], \
module_types: [open, proprietary],
     payloads: [packages, runfile], gpus: [ampere], systems: [{id: ubuntu}, {id: derived}], cuda: "13"}
gpus:
  - {id: ampere, module_types: [open], devices: ["2080-20ff"]}
systems:
  - id: ubuntu24.04
    name: Ubuntu 24.04
    family: debian
    package_manager: apt
    codename: noble
    archs: [amd64, arm64]
    base: ubuntu:24.04
    python: {package: python3, executable: /usr/bin/python3, version: "3.12"}
    repositories:
      - {id: noble, archive: ubuntu, components: [main, restricted, universe]}
      - {id: noble-updates, archive: ubuntu, components: [main, restricted, universe], role: updates}
      - {id: noble-security, archive: ubuntu, components: [main, restricted, universe], role: security}
    kernels:
      - id: all
        releases: "6.*"
        flavours: {amd64: [generic, aws], arm64: [nvidia-64k]}
        repositories: [noble, noble-updates, noble-security]
        compilers: [gcc-13]
        headers: ["linux-headers-{release}"]
        image: ["linux-image-{release}", "linux-image-unsigned-{release}"]
        modules: ["linux-modules-{release}", "linux-modules-extra-{release}"]
    tools: {runtime: [kmod], jit: [make]}
    drivers:
      - id: 580-server
        branch: "580"
        version: 580.173.02
        payload: packages
        variants: [precompiled]
        module_types: [open, proprietary]
        vendor_modules: true
        repositories: [noble-updates, noble-security, noble]
        modules:
          - id: open
            packages: ["linux-objects-nvidia-{branch}-server-open-{release}", \
"linux-signatures-nvidia-{release} [amd64]"]
          - id: proprietary
            packages: ["linux-objects-nvidia-{branch}-server-{release}", \
"linux-signatures-nvidia-{release} [amd64]"]
        firmware:
          package: "nvidia-firmware-{branch}-server-{version}"
          tree: "lib/firmware/nvidia/{version}"
        userspace: ["nvidia-utils-{branch}-server", "libnvidia-compute-{branch}-server"]
"""

_BASE = (
    Deb(name="libc6", version="2.39-0ubuntu8"),
    Deb(name="libelf1t64", version="0.190-1.1", depends="libc6"),
    Deb(name="libssl3t64", version="3.0.13-0ubuntu3", depends="libc6"),
    Deb(name="zlib1g", version="1:1.3.dfsg-3.1ubuntu2", depends="libc6"),
    Deb(name="python3", version="3.12.3-0ubuntu2", depends="libc6"),
    Deb(name="kmod", version="31+20240202-2ubuntu7", depends="libc6"),
    Deb(name="make", version="4.3-4.1build2", depends="libc6"),
    Deb(name="gcc-13", version="13.3.0-6ubuntu2", depends="libc6"),
)
_LINKED = "libc6 (>= 2.38), libelf1t64 (>= 0.144), libssl3t64 (>= 3.0.0), zlib1g (>= 1:1.2.3.3)"


def _kernel(
    release: str, common: str, version: str, arch: str = "amd64", image: str = "linux-image-"
) -> list[Deb]:
    """Image, headers, and the common headers under the name that the kernel's source gives them."""
    pci = "int __must_check pci_resize_resource(struct pci_dev *dev, int i, int size);\n"
    return [
        Deb(name=f"{image}{release}", version=version, arch=arch, depends=f"kmod, linux-modules-{release}"),
        Deb(name=f"linux-modules-{release}", version=version, arch=arch),
        Deb(name=f"linux-headers-{release}", version=version, arch=arch, depends=f"{common}, {_LINKED}"),
        Deb(name=common, version=version, arch="all", files={f"usr/src/{common}/include/linux/pci.h": pci}),
    ]


KINDS = ("580-server", "580-server-open")


def _modules(
    release: str, version: str, *, driver: str = DRIVER, arch: str = "amd64", kinds: Sequence[str] = KINDS
) -> list[Deb]:
    """The packages of linux-restricted-modules for one kernel."""
    bound = f"nvidia-kernel-common-580-server (>= {driver}), nvidia-kernel-common-580-server (<= {driver}-1)"
    found = []
    for kind in kinds:
        objects = f"linux-objects-nvidia-{kind}-{release}"
        empty = f"linux-modules-nvidia-{kind}-{release}"
        needs = f"linux-image-{release} | linux-image-unsigned-{release}, {objects} (= {version}), {bound}"
        found += [
            Deb(name=objects, version=version, arch=arch, depends="binutils"),
            Deb(name=empty, version=version, arch=arch, depends=needs),
        ]
    if arch == "amd64":
        found.append(Deb(name=f"linux-signatures-nvidia-{release}", version=version))
    return found


def _driver(driver: str, arch: str = "amd64") -> list[Deb]:
    version, server = f"{driver}-0ubuntu0.24.04.1", "580-server"
    return [
        Deb(name=f"nvidia-utils-{server}", version=version, arch=arch, depends=f"libnvidia-compute-{server}"),
        Deb(name=f"libnvidia-compute-{server}", version=version, arch=arch, depends="libc6"),
        Deb(name=f"nvidia-firmware-{server}-{driver}", version=version, arch=arch),
    ]


Pockets = Mapping[str, Mapping[str, Sequence[Deb]]]

AMD64: Pockets = {
    "noble": {
        "main": [*_BASE, *_kernel(OLD, "linux-headers-6.8.0-31", "6.8.0-31.31")],
        "restricted": _modules(OLD, "6.8.0-31.31"),
        "universe": [],
    },
    "noble-updates": {
        "main": [
            *_kernel(GENERIC, "linux-headers-6.8.0-136", "6.8.0-136.136"),
            Deb(name=f"linux-modules-extra-{GENERIC}", version="6.8.0-136.136"),
            *_kernel(BOUND, "linux-headers-6.8.0-138", "6.8.0-138.138"),
            *_kernel(HWE, "linux-hwe-6.17-headers-6.17.0-40", "6.17.0-40.40~24.04.1"),
        ],
        "restricted": [
            *_driver(DRIVER),
            *_modules(GENERIC, "6.8.0-136.136+1"),
            *_modules(GENERIC, "6.8.0-136.136+2", driver=NEXT_DRIVER),
            *_modules(BOUND, "6.8.0-138.138", driver=NEXT_DRIVER),
            # as of 615, which has no proprietary ones
            *_modules(HWE, "6.17.0-40.40~24.04.1", kinds=KINDS[1:]),
        ],
        "universe": [],
    },
    "noble-security": {
        "main": [
            *_kernel(GENERIC, "linux-headers-6.8.0-136", "6.8.0-136.136"),
            # no signed image is made for some flavours
            *_kernel(AWS, "linux-aws-headers-6.8.0-1060", "6.8.0-1060.62", image="linux-image-unsigned-"),
        ],
        # published without its signatures, as 550-server for 6.8.0-1031-azure once was
        "restricted": _modules(AWS, "6.8.0-1060.62")[:-1],
        "universe": [],
    },
}

_ARM_BASE = [Deb(name=one.name, version=one.version, arch="arm64", depends=one.depends) for one in _BASE]
ARM64: Pockets = {
    "noble": {"main": _ARM_BASE, "restricted": [], "universe": []},
    "noble-updates": {
        "main": _kernel(PAGES_64K, "linux-nvidia-headers-6.8.0-1044", "6.8.0-1044.47", "arm64"),
        "restricted": [*_driver(DRIVER, "arm64"), *_modules(PAGES_64K, "6.8.0-1044.47", arch="arm64")],
        "universe": [],
    },
    "noble-security": {"main": [], "restricted": [], "universe": []},
}


def ubuntu_matrix(text: str = MATRIX) -> Matrix:
    return parse_matrix(text.encode(), name="site.yaml")


def publish(folder: Path, key: SigningKey, pockets: Pockets, arch: str) -> None:
    """Write an archive: pool and dists, each pocket's Release signed."""
    require("apt-ftparchive", "gpg")
    for pocket, components in pockets.items():
        for component, debs in components.items():
            listed = folder.parent / f"{folder.name}-{pocket}-{component}.list"
            paths = [_built(folder, component, deb) for deb in debs]
            listed.write_text("".join(f"{path}\n" for path in dict.fromkeys(paths)))
            (folder / f"dists/{pocket}/{component}/binary-{arch}").mkdir(parents=True, exist_ok=True)
    _generate(folder, pockets, arch)
    for pocket, components in pockets.items():
        _release(folder / f"dists/{pocket}", key, pocket, components, arch)


def _built(folder: Path, component: str, deb: Deb) -> str:
    file = f"{deb.name}_{deb.version.replace(':', '%3a')}_{deb.arch}.deb"
    path = f"pool/{component}/{deb.name[0]}/{deb.name}/{file}"
    if not (folder / path).exists():
        build_deb(deb, folder / path)
    return path


def _generate(folder: Path, pockets: Pockets, arch: str) -> None:
    trees = [
        f'Tree "dists/{pocket}" {{ Sections "{" ".join(components)}"; Architectures "{arch}";\n'
        f'  FileList "{folder.parent}/{folder.name}-{pocket}-$(SECTION).list"; }};\n'
        for pocket, components in pockets.items()
    ]
    config = folder.parent / f"{folder.name}.conf"
    config.write_text(
        f'Dir {{ ArchiveDir "{folder}"; CacheDir "{folder.parent}"; }};\n'
        'Default { Packages::Compress ". gzip xz"; Contents::Compress "gzip"; };\n'
        'TreeDefault { Contents " "; };\n' + "".join(trees)
    )
    run("apt-ftparchive", "-q=2", "generate", config)


def _release(dist: Path, key: SigningKey, pocket: str, components: Mapping[str, object], arch: str) -> None:
    fields = {
        "Origin": "Ubuntu",
        "Label": "Ubuntu",
        "Suite": pocket,
        "Codename": pocket.partition("-")[0],
        "Architectures": arch,
        "Components": " ".join(components),
        "Acquire-By-Hash": "yes",
    }
    options = [f"--option=APT::FTPArchive::Release::{name}={value}" for name, value in fields.items()]
    by_hash = "--option=APT::FTPArchive::DoByHash=true"
    told = run("apt-ftparchive", *options, by_hash, "release", dist).stdout
    (dist / "InRelease").write_text(key.clearsign(told))
