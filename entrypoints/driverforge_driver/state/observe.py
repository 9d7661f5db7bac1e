"""Look at the node: everything that a plan depends on, in one frozen value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from driverforge_core.image import ImageFacts
from driverforge_core.names import NVIDIA_MODULES
from driverforge_driver.state import loadtree, paths
from driverforge_driver.state.daemons import programs_down
from driverforge_driver.state.facts import DriverFacts, Goal, RootState, WantedDriver
from driverforge_driver.state.loadtree import tree_folder
from driverforge_driver.state.module_sets import ModuleSource, module_sets, read_image
from driverforge_driver.state.network import INFINIBAND, Network, observe_network
from driverforge_driver.state.records import RunningDaemon, read_journal, running_daemons
from driverforge_host.gpu import device_files
from driverforge_host.gpu.detect import is_nvswitch, loaded_type, pci_devices
from driverforge_host.gpu.device_files import FRONTEND_MAJOR, device_majors
from driverforge_host.ports import Files, Holder, Host, LoadedModule, bytes_of, text_of

# a folder for each GPU of the loaded driver
DRIVEN = "/proc/driver/nvidia/gpus"
# In the product data of a network device that manages the switches of NVLink 5. NVIDIA's image looks for it.
SWITCH_MANAGER = b"SW_MNG"
# there where the kernel enforces or only logs what an SELinux policy says
SELINUX = "/sys/fs/selinux/enforce"
# the type of files that every container may use
DEVICE_LABEL = "container_file_t"
# '[none] integrity confidentiality', the current mode in brackets (kernel_lockdown(7))
LOCKDOWN = "/sys/kernel/security/lockdown"


def observe(host: Host, wanted: WantedDriver) -> DriverFacts:
    """Facts as of now. Reads only. Raises InputError for a damaged image description or module."""
    files = host.files
    release = host.modules.release()
    loaded = related_modules(host.modules.loaded())
    majors = device_majors(text_of(files, device_files.PROC_DEVICES))
    image = read_image(files)
    base = load_base(host, release)
    devices = tuple(pci_devices(files))
    daemons = running_daemons(host)
    in_tree = node_modules(host, release)
    stamp = text_of(files, f"{tree_folder(base, release)}/{paths.STAMP}")

    def filled(source: ModuleSource) -> bool:
        return stamp == loadtree.stamp(source, in_tree)

    sets = module_sets(host, release, image, wanted.driver, filled=filled)
    return DriverFacts(
        user=host.processes.effective_user(),
        release=release,
        image=image,
        modular=files.exists("/proc/modules"),
        image_kernels=files.list_dir(paths.MODULE_SETS),
        sources=sets.sources,
        unusable_sets=sets.unusable,
        node_modules=in_tree,
        load_base=base,
        gpus=tuple(device for device in devices if device.is_gpu),
        nvswitches=tuple(device.address for device in devices if is_nvswitch(device)),
        network=observe_network(host, release, devices, on_host=wanted.mofed_on_host)
        if wanted.peermem
        else Network(),
        loaded=loaded,
        loaded_type=loaded_type(text_of(files, "/proc/driver/nvidia/version")),
        majors=majors,
        devices_missing=tuple(missing_devices(files, majors)),
        root=root_state(host),
        stage_left=any(mount.target == paths.STAGE for mount in host.mounts.table()),
        root_shared=root_shared(host),
        lacks_label=lacks_label(host),
        daemons_status=text_of(files, paths.DAEMONS_STATUS).strip(),
        digest=text_of(files, paths.DIGEST).strip(),
        journal=read_journal(files),
        stamp=stamp,
        parameter_files={
            name: text_of(files, f"{paths.MODPROBE_D}/{name}") for name in parameter_file_names()
        },
        firmware_missing=missing_firmware(files, image, wanted.driver),
        firmware_path=text_of(files, paths.FIRMWARE_SEARCH).strip(" \n\0")
        if files.exists(paths.FIRMWARE_SEARCH)
        else None,
        holders=device_holders(host, majors, daemons),
        daemons=daemons,
        daemon_references=daemon_references(host, majors, daemons),
        daemons_down=programs_down(host, daemons) if wanted.goal is Goal.SERVE else (),
        driven=files.list_dir(DRIVEN),
        enforced=signature_enforcement(host),
        kernel_keys=kernel_keys(files),
        state_left=files.exists(paths.STATE) or files.exists(paths.DAEMONS_STATUS),
        free=files.free_bytes(tree_folder(base, release)),
    )


_CERTIFICATE = re.compile(r" asymmetri .*: ([0-9a-f]+): X509\.")


def parameter_file_names() -> tuple[str, ...]:
    """Names in /etc/modprobe.d, as upstream has them: nvidia.conf, nvidia-uvm.conf, …"""
    return tuple(f"{name.replace('_', '-')}.conf" for name in NVIDIA_MODULES)


def related_modules(loaded: Mapping[str, LoadedModule]) -> dict[str, LoadedModule]:
    """NVIDIA's modules, and every module that depends on one of them, directly or not."""
    found = {name: loaded[name] for name in NVIDIA_MODULES if name in loaded}
    todo = list(found.values())
    while todo:
        for name in todo.pop().holders:
            if name in loaded and name not in found:
                found[name] = loaded[name]
                todo.append(loaded[name])
    return found


def node_modules(host: Host, release: str) -> str:
    """Folder of the node's own modules for this release, '' for none.

    An explicit mount counts before the node's root.
    """
    own = (*paths.NODE_MODULES, f"{host.node.root.rstrip('/')}{paths.MODULES}")
    return next(
        (f"{base}/{release}" for base in own if host.files.exists(f"{base}/{release}/modules.dep")), ""
    )


def load_base(host: Host, release: str) -> str:
    """The root of the load tree: '/' where /lib/modules is the container's own, else a tree of ours.

    /lib/modules is the node's where we run on the host, or where a pod mounts it. depmod and our modules
    would change it for the host then, beyond the life of this container.
    """
    mounted = any(paths.MODULES in (m.target, m.target.removeprefix("/usr")) for m in host.mounts.table())
    own, nodes = host.files.identity(paths.MODULES), host.node.identity(paths.MODULES)
    on_the_host = host.node.root == "/" and host.files.exists(f"{paths.MODULES}/{release}/kernel")
    shared = mounted or on_the_host or (host.node.root != "/" and own is not None and own == nodes)
    return paths.SEPARATE_TREE if shared else "/"


def missing_devices(files: Files, majors: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    """Device files that the loaded modules serve and /dev lacks, as (path, major, minor).

    Numbers are as nvidia-modprobe makes them.
    """
    expected = []
    if FRONTEND_MAJOR in majors.values():
        expected.append((device_files.CONTROL_FILE, FRONTEND_MAJOR, device_files.CONTROL_MINOR))
    if (uvm := majors.get("nvidia-uvm")) is not None:
        expected += [
            (device_files.UVM_FILE, uvm, device_files.UVM_MINOR),
            (device_files.UVM_TOOLS_FILE, uvm, device_files.UVM_TOOLS_MINOR),
        ]
    if "nvidia-modeset" in majors:
        expected.append((device_files.MODESET_FILE, FRONTEND_MAJOR, device_files.MODESET_MINOR))
    for address in files.list_dir(DRIVEN):
        for line in text_of(files, f"{DRIVEN}/{address}/information").splitlines():
            key, _, value = line.partition(":")
            if key == "Device Minor" and value.strip().isdigit():
                expected.append((device_files.gpu_file(int(value)), FRONTEND_MAJOR, int(value)))
    for path, major, minor in expected:
        if files.device_number(path) != (major, minor):
            yield path, major, minor


def manages_nvlink5(files: Files) -> bool:
    """Whether a network device of this node manages the NVLink switches of Blackwell GPUs.

    No part of `observe`: a device may take long to tell its product data.
    """
    return any(
        SWITCH_MANAGER in (bytes_of(files, f"{INFINIBAND}/{name}/device/vpd") or b"")
        for name in files.list_dir(INFINIBAND)
    )


def root_state(host: Host) -> RootState:
    """What is mounted at /run/nvidia/driver. Ours is the container's own root: the same device and inode."""
    if not any(mount.target == paths.ROOT for mount in host.mounts.table()):
        return RootState.ABSENT
    ours = host.files.identity(paths.ROOT) == host.files.identity("/")
    return RootState.OURS if ours else RootState.OTHER


def lacks_label(host: Host) -> bool:
    """Whether SELinux keeps containers from the device files of our root.

    Whether the kernel has SELinux is looked for in the node's files too: selinuxfs is a mount of its own
    below /sys, which runtimes give to few containers.
    """
    selinux = host.node.exists(SELINUX) or host.files.exists(SELINUX)
    if not selinux or root_state(host) is not RootState.OURS:
        return False
    found = host.files.metadata(f"{paths.ROOT}/dev")
    return found is not None and DEVICE_LABEL not in found.label.split(":")


def root_shared(host: Host) -> bool:
    """Whether a mount that we make under /run/nvidia reaches the host. On the host itself every mount does.

    In a pod it does where the closest mount above is shared: the pod mounts /run/nvidia with Bidirectional
    propagation.
    """
    if host.node.root == "/":
        return True
    above = [m for m in host.mounts.table() if f"{paths.RUN}/".startswith(f"{m.target.rstrip('/')}/")]
    return bool(above) and "shared" in max(above, key=lambda m: len(m.target)).propagation


def missing_firmware(files: Files, image: ImageFacts | None, driver: str) -> tuple[str, ...]:
    """Firmware files of the image that are not where the driver looks for them, compared by size."""
    if image is None or not image.firmware:
        return ()
    source = f"{image.firmware}/nvidia/{driver}"
    return tuple(
        name
        for name in files.list_dir(source)
        if files.size(f"{paths.FIRMWARE}/{driver}/{name}") != files.size(f"{source}/{name}")
    )


def device_holders(
    host: Host, majors: Mapping[str, int], daemons: tuple[RunningDaemon, ...]
) -> tuple[Holder, ...]:
    """Processes with an NVIDIA device open or mapped, our own daemons left out.

    Without a major the modules are gone, and nobody holds them.
    """
    ours = {daemon.pid for daemon in daemons}
    found = host.processes.holders(frozenset(majors.values()))
    return tuple(holder for holder in found if holder.pid not in ours)


def daemon_references(
    host: Host, majors: Mapping[str, int], daemons: tuple[RunningDaemon, ...]
) -> dict[str, int]:
    """Module -> references that our daemons have on it, one for each open device that it serves."""
    module_of = {major: "nvidia_uvm" if name == "nvidia-uvm" else "nvidia" for name, major in majors.items()}
    opened = [
        module_of[major]
        for daemon in daemons
        for major in host.processes.opened_majors(daemon.pid, frozenset(module_of))
    ]
    return {name: opened.count(name) for name in set(opened)}


def signature_enforcement(host: Host) -> str:
    """Why this kernel refuses unsigned modules; '' where it takes them.

    Either module.sig_enforce is on, or a lockdown mode (kernel_lockdown(7)).

    The lockdown mode is read from the node's files: securityfs is a mount of its own below /sys, and runtimes
    give it to no container, not even to a privileged one.
    """
    if text_of(host.files, "/sys/module/module/parameters/sig_enforce").strip() == "Y":
        return "module.sig_enforce is on"
    words = (text_of(host.node, LOCKDOWN) or text_of(host.files, LOCKDOWN)).split()
    mode = next((word.strip("[]") for word in words if word.startswith("[")), "none")
    return "" if mode == "none" else f"kernel lockdown is in mode {mode!r}"


def kernel_keys(files: Files) -> frozenset[str]:
    """Identifiers of the certificates in the kernel's keyrings, in hexadecimal (keyrings(7), /proc/keys).

    Root sees them all: built-in ones, the firmware's, and those of the MOK list.
    """
    return frozenset(_CERTIFICATE.findall(text_of(files, "/proc/keys")))
