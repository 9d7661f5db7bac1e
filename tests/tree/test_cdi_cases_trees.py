"""Upstream's recorded cases about CDI discovery, on trees like those of its tests: ours find the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from driverforge_core.errors import InputError, Unavailable
from driverforge_host.gpu.roots import DriverRoots, DriverView, view_of
from driverforge_host.ports import Gpu, Mig
from driverforge_toolkit.cdi import specfiles, transform
from driverforge_toolkit.cdi.device_edits import unnumbered_node
from driverforge_toolkit.cdi.driverfiles import EditOptions, configs, graphics_edits
from driverforge_toolkit.cdi.generate import SpecRequest, make_spec
from driverforge_toolkit.cdi.gpu_devices import DeviceSelection, NameStrategy, drm_links
from driverforge_toolkit.cdi.hooks import CREATE_SYMLINKS, HookProgram
from driverforge_toolkit.cdi.libraries import locate, symlinks
from driverforge_toolkit.cdi.modes import SIMPLE, SpecMode
from driverforge_toolkit.cdi.spec import ContainerEdits, DeviceNode, Spec
from support.fakes.driverroot import ROOT, FakeNvml, add_device, bare_node, write_tree
from support.fakes.fakehost import FakeNode
from support.samples.tinyso import tiny_so
from support.upstream import cdicases, recordedcdi
from support.upstream.cdicases import Case

DRIVER = """\
lib/x86_64-linux-gnu/libcuda.so.999.88.77 file
lib/x86_64-linux-gnu/vdpau/libvdpau_nvidia.so.999.88.77 file
etc/cufile.json file
run/udev dir
"""
DEVICES = """\
dev/nvidia0 c c3:0 666
dev/nvidiactl c c3:ff 666
dev/nvidia-caps/nvidia-cap1 c 1fe:1 666
dev/nvidia-caps-imex-channels/channel0 c 1fd:0 666
dev/nvidia-caps-imex-channels/channel1 c 1fd:1 666
dev/nvidia-caps-imex-channels/channel2047 c 1fd:7ff 666
dev/nvidia-fs0 c 1fb:0 666
dev/nvidia-nvswitch0 c 1fc:0 666
dev/nvidia-nvswitchctl c 1fc:ff 666
dev/gdrdrv c 1fa:0 666
dev/infiniband/uverbs0 c e7:c0 666
dev/infiniband/rdma_cm c a:7b 666
"""
SECOND_SWITCH = "dev/nvidia-nvswitch1 c 1fc:1 666\n"
SPLIT = f"{ROOT}/driver", f"{ROOT}/device"


def roots(node: FakeNode, name: str, dev_name: str = "") -> DriverRoots:
    """One of upstream's trees; ours of them are written on demand."""
    if "split" in name:
        write_tree(node, DRIVER, base=SPLIT[0])
        write_tree(node, DEVICES, base=SPLIT[1])
        return DriverRoots(driver=SPLIT[0], dev=SPLIT[1])
    if "empty" not in name:
        write_tree(node, (DRIVER + DEVICES + (SECOND_SWITCH if "nvswitch" in name else "")))
    return DriverRoots(driver=ROOT)


def without_numbers(edits: ContainerEdits) -> ContainerEdits:
    """Upstream's trees have plain files for devices."""
    nodes = tuple(DeviceNode(path=node.path, host_path=node.host_path) for node in edits.device_nodes)
    return replace(edits, device_nodes=nodes)


def plain(spec: Spec, root: str) -> Spec:
    """As upstream's tests look at it: seen from inside the root, without versions."""
    return transform.with_edits_changed(
        transform.host_moved(replace(spec, version=""), root, "/"), without_numbers
    )


def modes(case: Case, node: FakeNode) -> None:
    given = case["input"]
    request = SpecRequest(
        mode=SpecMode(given["mode"]), roots=roots(node, given["driverRootfs"]), merged=False
    )
    found = make_spec(node.host, request, FakeNvml())
    for root in SPLIT if "split" in given["driverRootfs"] else (ROOT,):
        found = plain(found, root)
    # the release of the cases had no such mount yet
    mounts = tuple(mount for mount in found.edits.mounts if mount.container_path != recordedcdi.VOID)
    assert len(mounts) == len(found.edits.mounts) - 1
    found = replace(found, edits=replace(found.edits, mounts=mounts))
    assert found == replace(cdicases.spec(case["expected"]["expectedSpec"]), version="")


def generated(case: Case, node: FakeNode) -> None:
    given = case["input"]["options"]
    hooks = HookProgram(
        disabled=frozenset(given["disabledHooks"] or ()), enabled=frozenset(given["enabledHooks"] or ())
    )
    request = SpecRequest(
        mode=SpecMode(given["mode"]),
        kind=f"{given['vendor']}/{given['class']}",
        roots=roots(node, "rootfs-1"),
        options=EditOptions(hooks=hooks),
        selection=DeviceSelection(strategies=(NameStrategy.INDEX,), ids=tuple(given["deviceIDs"])),
    )
    one_gpu = FakeNvml((Gpu(index=0, minor=0),))
    if case["expected"]["expectedError"]:
        with pytest.raises(InputError, match="no GPU or MIG device 99"):
            make_spec(node.host, request, one_gpu)
        return
    found = transform.with_edits_changed(make_spec(node.host, request, one_gpu), without_numbers)
    text = case["expected"]["expectedSpec"].replace("{{ .driverRoot }}", ROOT)
    assert yaml.safe_load(specfiles.write(found)) == recordedcdi.with_void_mount(yaml.safe_load(text))


def simple_mode(name: str) -> Callable[[Case, FakeNode], None]:
    def check(case: Case, node: FakeNode) -> None:
        given, wanted = case["input"], case["expected"]
        seen = view_of(node.host, roots(node, given.get("rootfs") or given["driverRootfs"]))
        if wanted["expectedDevices"] is None:
            with pytest.raises(Unavailable, match="device nodes found"):
                SIMPLE[SpecMode(name)](seen, EditOptions(hooks=HookProgram()))
            return
        (device,) = SIMPLE[SpecMode(name)](seen, EditOptions(hooks=HookProgram())).devices
        assert [item.path for item in device.edits.device_nodes] == [
            item["Path"] for item in wanted["expectedDevices"]
        ]
        found = [(item.container_path, list(item.options)) for item in device.edits.mounts]
        assert found == [(item["Path"], item["Options"]) for item in wanted.get("expectedMounts") or ()]

    return check


def soname_links(case: Case, node: FakeNode) -> None:
    """The SONAME and the links that upstream's test gives by functions, as a file and links."""
    kind = case["id"].rpartition("getdotsosymlinks-getdotsosymlinks-")[2]
    soname, links = {
        "equal-soname-uses-library-path": ("libcuda.so.999.88.77", ["libcuda.so"]),
        "libcuda-soname-links": ("libcuda.so.1", ["libcuda.so.1", "libcuda.so"]),
        "libcuda-soname-links-uses-container-path": ("libcuda.so.1", ["libcuda.so.1", "libcuda.so"]),
        "nonexistent-symlink-is-ignored": ("libcuda.so.1", ["libcuda.so.1"]),
        "soname-is-skipped": ("", ["libcuda.so"]),
    }[kind]
    path = case["input"]["containerLibraryPath"]
    folder, name = path.rsplit("/", 1)
    write_tree(node, f"{path.lstrip('/')} file", contents={name: tiny_so(soname)})
    for link in links:
        node.files.symlink(name, f"{ROOT}{folder}/{link}")
    found = symlinks(view_of(node.host, DriverRoots(driver=ROOT)).driver, [path])
    expected = f"libcuda.so.1::{folder}/libcuda.so"  # of every libcuda, whatever its links say
    assert set(found) == {*case["expected"]["expectedSymlinks"], expected}


def expected_links(case: Case, node: FakeNode) -> None:
    paths = [item["Path"] for item in case["expected"]["expectedMounts"] or ()]
    write_tree(node, "\n".join(f"{path.lstrip('/')} file" for path in paths) or "usr dir")
    made = HookProgram().make(
        CREATE_SYMLINKS, *symlinks(view_of(node.host, DriverRoots(driver=ROOT)).driver, paths)
    )
    wanted = [item for item in case["expected"]["expectedHooks"] or () if "create-symlinks" in item["Args"]]
    assert made == cdicases.hooks(wanted)


def graphics_configs(case: Case, node: FakeNode) -> None:
    write_tree(node, "\n".join(f"{path.lstrip('/')} file" for path in case["input"]["files"]))
    found = configs(view_of(node.host, DriverRoots(driver=ROOT)), EditOptions(hooks=HookProgram()))
    assert {item.host_path.removeprefix(ROOT): item.container_path for item in found} == case["expected"][
        "expected"
    ]


def graphics_libraries(case: Case, node: FakeNode) -> None:
    """The libraries that the case's name and its expected links speak of."""
    links = [arg for item in case["expected"]["expectedHooks"] or () for arg in item["Args"]]
    names = [
        "libcuda.so.123.45.67",
        *(Path(item["Path"]).name for item in case["expected"]["expectedMounts"] or ()),
    ]
    names += ["libnvidia-allocator.so.123.45.67"] if any("allocator" in link for link in links) else []
    write_tree(node, "\n".join(f"usr/lib64/{name} file" for name in names))
    seen = view_of(node.host, DriverRoots(driver=ROOT))
    found = graphics_edits(seen, locate(seen.driver), EditOptions(hooks=HookProgram()))
    assert found.hooks == cdicases.hooks(case["expected"]["expectedHooks"])


def drm(case: Case, node: FakeNode) -> None:
    """Declared difference: upstream's links have the dev root in their names."""
    there = case["expected"]["expectedHooks"]
    if there:
        for name in ("card0", "renderD128"):
            add_device(node, f"{ROOT}/dev/dri/{name}", 226, 0)
            kind = "card" if name == "card0" else "render"
            node.files.make_dirs(f"{ROOT}/dev/dri/by-path")
            node.files.symlink(f"../{name}", f"{ROOT}/dev/dri/by-path/pci-0000:07:00.0-{kind}")
    gpu = Gpu(index=0, minor=0, bus_id="0000:07:00.0")
    links = drm_links(
        view_of(node.host, DriverRoots(driver=ROOT)), gpu, ("/dev/dri/card0", "/dev/dri/renderD128")
    )
    wanted = [
        replace(hook, args=tuple(without_root(arg) for arg in hook.args)) for hook in cdicases.hooks(there)
    ]
    assert list(HookProgram().make(CREATE_SYMLINKS, *links)) == wanted


def without_root(argument: str) -> str:
    return argument.replace("{{ .moduleRoot }}/testdata/lookup/rootfs-drm", "")


def bare_device(case: Case, node: FakeNode) -> None:
    """A device that cannot be looked at has its paths only."""
    given = case["input"]["device"]
    root = given["HostPath"].removesuffix(given["Path"]) or "/"
    seen: DriverView = view_of(node.host, DriverRoots(driver=root))
    wanted = case["expected"]["expected"]
    values = wanted["ContainerEdits"]["DeviceNodes"] if "ContainerEdits" in wanted else [wanted]
    assert (unnumbered_node(seen, given["Path"]),) == cdicases.nodes(values)


def chosen(case: Case, node: FakeNode) -> None:
    """Eight GPUs; for the id of a MIG device the first has one."""
    first = case["input"]["ids"][0]
    migs = (Mig(index=0, uuid="MIG-x", gpu_instance=1, compute_instance=0),) if ":" in first else ()
    gpus = tuple(
        Gpu(
            index=n,
            minor=n,
            uuid=first if first.startswith("GPU-") and n == 3 else f"GPU-{n}",
            migs=migs if n == 0 else (),
        )
        for n in range(8)
    )
    tree = DRIVER + "".join(f"dev/nvidia{n} c c3:{n:x} 666\n" for n in range(8))
    write_tree(node, tree)
    selection = DeviceSelection(strategies=(NameStrategy.INDEX,), ids=tuple(case["input"]["ids"]))
    spec = make_spec(
        node.host,
        SpecRequest(mode=SpecMode.NVML, roots=DriverRoots(driver=ROOT), selection=selection, merged=False),
        FakeNvml(gpus),
    )
    assert len(spec.devices) == case["expected"]["expectedLength"]


CHECKS: dict[str, Callable[[Case, FakeNode], None]] = {
    "New": modes,
    "GenerateSpec": generated,
    "NewGDRCopyDiscoverer": simple_mode("gdrcopy"),
    "NewGDSDiscoverer": simple_mode("gds"),
    "NewMOFEDDiscoverer": simple_mode("mofed"),
    "NewNvSwitchDiscoverer": simple_mode("nvswitch"),
    "GetDotSoSymlinks": soname_links,
    "WithWithDriverDotSoSymlinks": expected_links,
    "GraphicsConfigsDiscoverer": graphics_configs,
    "GraphicsLibrariesDiscoverer": graphics_libraries,
    "DrmDevicesByPath": drm,
    "DeviceToSpec": bare_device,
    "DeviceToEdits": bare_device,
    "NvmllibGetDeviceSpecGeneratorsForIDs": chosen,
}


@pytest.mark.parametrize("case", cdicases.load("cdi", *CHECKS), ids=cdicases.title)
def test_what_is_found_is_upstreams(case: Case, tmp_path: Path) -> None:
    CHECKS[case["operation"]](case, bare_node(tmp_path))
