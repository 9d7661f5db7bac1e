"""Look at the node: everything a plan depends on, in one frozen value."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from driverforge_core.errors import InputError
from driverforge_core.image import ImageFacts, ModuleSet
from driverforge_core.modinfo import read_modinfo, read_signature
from driverforge_core.names import NVIDIA_MODULES
from driverforge_core.pci import PciDevice, parse_sysfs
from driverforge_node.catalogue import NVSWITCHES
from driverforge_node.driver import network, paths
from driverforge_node.driver.facts import Daemon, Facts, Journal, Network, Source, Wanted
from driverforge_node.host.ports import Files, Holder, Host, LoadedModule

DEVICES = ("/dev/nvidia", "/run/nvidia/driver/dev/nvidia")
LOCKDOWN = "/sys/kernel/security/lockdown"
FRONTEND_MAJOR = 195  # Documentation/admin-guide/devices.txt: "Nvidia Graphics"


def observe(host: Host, wanted: Wanted) -> Facts:
    """Facts as of now. Reads only; raises InputError for a damaged image description."""
    files = host.files
    release = host.modules.release()
    loaded = related(host.modules.loaded())
    majors = device_majors(read(files, "/proc/devices"))
    image = read_image(files)
    base = load_base(host, release)
    devices = tuple(pci_devices(files))
    daemons = running_daemons(host)
    return Facts(
        user=host.processes.effective_user(),
        release=release,
        image=image,
        modular=files.exists("/proc/modules"),
        image_kernels=files.list_dir(paths.MODULE_SETS),
        sources=tuple(module_sources(host, release, wanted.driver)),
        node_modules=node_modules(host, release),
        load_base=base,
        gpus=tuple(device for device in devices if device.is_gpu),
        nvswitches=tuple(device.address for device in devices if is_nvswitch(device)),
        network=network.look(host, release, devices, on_host=wanted.host_network)
        if wanted.peermem
        else Network(),
        loaded=loaded,
        loaded_type=loaded_type(read(files, "/proc/driver/nvidia/version")),
        majors=majors,
        devices_missing=tuple(missing_devices(files, majors)),
        root=root_state(host),
        stage_left=any(mount.target == paths.STAGE for mount in host.mounts.table()),
        root_shared=root_shared(host),
        daemons_status=read(files, paths.DAEMONS_STATUS).strip(),
        digest=read(files, paths.DIGEST).strip(),
        journal=read_journal(files),
        stamp=read(files, f"{tree_folder(base, release)}/{paths.STAMP}"),
        parameter_files={name: read(files, f"{paths.MODPROBE_D}/{name}") for name in parameter_file_names()},
        firmware_missing=missing_firmware(files, image, wanted.driver),
        firmware_path=read(files, paths.FIRMWARE_SEARCH).strip(" \n\0")
        if files.exists(paths.FIRMWARE_SEARCH)
        else None,
        holders=holders(host, majors, daemons),
        daemons=daemons,
        enforced=signature_rule(host),
        state_left=files.exists(paths.STATE) or files.exists(paths.DAEMONS_STATUS),
        free=files.free_bytes(tree_folder(base, release)),
    )


def read(files: Files, path: str) -> str:
    try:
        return files.read_text(path)
    except FileNotFoundError:
        return ""


def tree_folder(base: str, release: str) -> str:
    return f"{base.rstrip('/')}{paths.MODULES}/{release}"


def parameter_file_names() -> tuple[str, ...]:
    """Upstream's names: nvidia.conf, nvidia-uvm.conf, ..."""
    return tuple(f"{name.replace('_', '-')}.conf" for name in NVIDIA_MODULES)


def read_image(files: Files) -> ImageFacts | None:
    text = read(files, paths.IMAGE)
    return ImageFacts.from_json(text) if text else None


def related(loaded: Mapping[str, LoadedModule]) -> dict[str, LoadedModule]:
    """NVIDIA's modules and every module that depends on one of them, directly or not."""
    found = {name: loaded[name] for name in NVIDIA_MODULES if name in loaded}
    todo = list(found.values())
    while todo:
        for name in todo.pop().holders:
            if name in loaded and name not in found:
                found[name] = loaded[name]
                todo.append(loaded[name])
    return found


def device_majors(text: str) -> dict[str, int]:
    """The character devices of /proc/devices whose name starts with 'nvidia'; the block devices come after them."""
    characters = text.partition("Block devices:")[0]
    pairs = [line.split() for line in characters.splitlines()]
    return {
        pair[1]: int(pair[0])
        for pair in pairs
        if len(pair) == 2 and pair[0].isdecimal() and pair[1].startswith("nvidia")
    }


def loaded_type(version: str) -> str:
    """From /proc/driver/nvidia/version, whose first line says 'Open Kernel Module' for the open one."""
    if not version:
        return ""
    return "open" if "Open Kernel Module" in version.splitlines()[0] else "proprietary"


def pci_devices(files: Files) -> Iterator[PciDevice]:
    base = "/sys/bus/pci/devices"
    for address in files.list_dir(base):
        driver = files.resolve(f"{base}/{address}/driver") if files.exists(f"{base}/{address}/driver") else ""
        texts = {name: read(files, f"{base}/{address}/{name}") for name in ("vendor", "device", "class")}
        if all(texts.values()):
            yield parse_sysfs(
                address,
                vendor=texts["vendor"],
                device=texts["device"],
                class_code=texts["class"],
                driver=driver,
            )


def is_nvswitch(device: PciDevice) -> bool:
    """By id as well: NVIDIA's old chipsets have other functions of that class."""
    return device.is_nvswitch and any(first <= device.device <= last for first, last in NVSWITCHES)


def module_sources(host: Host, release: str, driver: str) -> Iterator[Source]:
    """Module sets for this release and driver: the image's, then the node cache's."""
    cache = host.node.root.rstrip("/") + paths.CACHE
    for place, folder in (
        ("image", f"{paths.MODULE_SETS}/{release}"),
        ("cache", f"{cache}/{driver}/{release}"),
    ):
        for module_type in host.files.list_dir(folder):
            path = f"{folder}/{module_type}"
            source = read_source(host.files, place, path)
            if source and source.modules.driver.text == driver and source.modules.kernel.text == release:
                yield source


def read_source(files: Files, place: str, path: str) -> Source | None:
    """A folder's module set. An incomplete or damaged cache entry is none: it can be made again; a damaged image raises InputError."""
    text = read(files, f"{path}/{paths.MODULE_SET}")
    if not text:
        return None
    try:
        modules = ModuleSet.from_json(text)
        nvidia = read_module(files, f"{path}/nvidia.ko")
        info, signature = read_modinfo(nvidia), read_signature(nvidia)
    except InputError:
        if place == "image":
            raise
        return None
    names = frozenset(parm.partition(":")[0] for parm in info.get("parm", ()))
    signer = (signature.signer or signature.key_id.hex() or "a key without a name") if signature else ""
    size = sum(files.size(f"{path}/{name}") or 0 for name in modules.modules)
    return Source(place=place, path=path, modules=modules, signer=signer, parameters=names, size=size)


def read_module(files: Files, path: str) -> bytes:
    """A module file's bytes. Raises InputError with its path where it is missing or no module."""
    try:
        data = files.read_bytes(path)
        read_modinfo(data)
    except FileNotFoundError:
        raise InputError(
            f"{path} is missing", resolution="the image is damaged: pull it again, or make it anew"
        ) from None
    except InputError as error:
        raise InputError(
            f"{path}: {error.brief}",
            details=error.details,
            resolution="the image is damaged: pull it again, or make it anew",
        ) from error
    return data


def node_modules(host: Host, release: str) -> str:
    """The node's own modules for this release: explicit mounts first, else through the node's root."""
    own = (*paths.NODE_MODULES, f"{host.node.root.rstrip('/')}{paths.MODULES}")
    return next(
        (f"{base}/{release}" for base in own if host.files.exists(f"{base}/{release}/modules.dep")), ""
    )


def load_base(host: Host, release: str) -> str:
    """'/' where /lib/modules is the container's own, a tree of ours where it is the node's (we run on the host, or it was mounted)."""
    mounted = any(paths.MODULES in (m.target, m.target.removeprefix("/usr")) for m in host.mounts.table())
    own, nodes = host.files.identity(paths.MODULES), host.node.identity(paths.MODULES)
    on_the_host = host.node.root == "/" and host.files.exists(f"{paths.MODULES}/{release}/kernel")
    shared = mounted or on_the_host or (host.node.root != "/" and own is not None and own == nodes)
    return paths.SEPARATE_TREE if shared else "/"


def missing_devices(files: Files, majors: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    """Device files that the loaded modules serve and /dev lacks; numbers as nvidia-modprobe uses them."""
    expected = []
    if FRONTEND_MAJOR in majors.values():
        expected.append(("/dev/nvidiactl", FRONTEND_MAJOR, 255))
    if "nvidia-uvm" in majors:
        expected += [
            ("/dev/nvidia-uvm", majors["nvidia-uvm"], 0),
            ("/dev/nvidia-uvm-tools", majors["nvidia-uvm"], 1),
        ]
    if "nvidia-modeset" in majors:
        expected.append(("/dev/nvidia-modeset", FRONTEND_MAJOR, 254))
    base = "/proc/driver/nvidia/gpus"
    for address in files.list_dir(base):
        for line in read(files, f"{base}/{address}/information").splitlines():
            key, _, value = line.partition(":")
            if key == "Device Minor" and value.strip().isdigit():
                expected.append((f"/dev/nvidia{value.strip()}", FRONTEND_MAJOR, int(value)))
    for path, major, minor in expected:
        if files.device_number(path) != (major, minor):
            yield path, major, minor


def root_state(host: Host) -> str:
    if not any(mount.target == paths.ROOT for mount in host.mounts.table()):
        return "absent"
    return "ours" if host.files.identity(paths.ROOT) == host.files.identity("/") else "other"


def root_shared(host: Host) -> bool:
    """Whether a mount under /run/nvidia reaches the host. On the host itself every mount does."""
    if host.node.root == "/":
        return True
    above = [m for m in host.mounts.table() if f"{paths.RUN}/".startswith(f"{m.target.rstrip('/')}/")]
    return bool(above) and "shared" in max(above, key=lambda m: len(m.target)).propagation


def read_document(files: Files, path: str) -> object:
    """A JSON file of our own state. None where there is none or it is damaged: such files are written atomically, but others may write."""
    try:
        return json.loads(read(files, path) or "null")
    except (ValueError, RecursionError):
        return None


def read_journal(files: Files) -> Journal:
    """A torn or foreign journal counts as none: it is written atomically, so only an older or newer version can differ."""
    data = read_document(files, paths.JOURNAL)
    if not isinstance(data, dict):
        return Journal()
    loading, before, firmware = data.get("loading"), data.get("firmware_path_before"), data.get("firmware")
    whole = isinstance(firmware, list) and all(isinstance(path, str) for path in firmware)
    return Journal(
        loading=loading if isinstance(loading, str) else "",
        firmware_path_before=before if isinstance(before, str) else None,
        firmware=tuple(firmware) if isinstance(firmware, list) and whole else (),
    )


def missing_firmware(files: Files, image: ImageFacts | None, driver: str) -> tuple[str, ...]:
    if image is None or not image.firmware:
        return ()
    source = f"{image.firmware}/nvidia/{driver}"
    return tuple(
        name
        for name in files.list_dir(source)
        if files.size(f"{paths.FIRMWARE}/{driver}/{name}") != files.size(f"{source}/{name}")
    )


def running_daemons(host: Host) -> tuple[Daemon, ...]:
    """Daemons that an earlier or this run started and that still live; a PID that now names another program is none of ours."""
    entries = read_document(host.files, paths.DAEMONS)
    pairs = (
        [(e.get("name"), e.get("pid")) for e in entries if isinstance(e, dict)]
        if isinstance(entries, list)
        else []
    )
    daemons = [
        Daemon(name=name, pid=pid) for name, pid in pairs if isinstance(name, str) and isinstance(pid, int)
    ]
    return tuple(d for d in daemons if host.processes.alive(d.pid, command=d.name))


def holders(host: Host, majors: Mapping[str, int], daemons: tuple[Daemon, ...]) -> tuple[Holder, ...]:
    ours = {daemon.pid for daemon in daemons}
    found = host.processes.holders(DEVICES, majors=frozenset(majors.values()))
    return tuple(holder for holder in found if holder.pid not in ours)


def signature_rule(host: Host) -> str:
    """Why unsigned modules are refused: module.sig_enforce, or a lockdown mode (kernel_lockdown(7)).

    securityfs is a mount of its own below /sys, which runtimes do not give to a container, a privileged one included: the node has it.
    """
    if read(host.files, "/sys/module/module/parameters/sig_enforce").strip() == "Y":
        return "module.sig_enforce is on"
    words = (read(host.node, LOCKDOWN) or read(host.files, LOCKDOWN)).split()
    mode = next((word.strip("[]") for word in words if word.startswith("[")), "none")
    return "" if mode == "none" else f"kernel lockdown is in mode {mode!r}"
