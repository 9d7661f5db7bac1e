"""What is found below driver roots of other shapes than upstream's fixture.

MIG, DRM, links, groups, and several versions of the driver.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from driverforge_core.errors import Unavailable, Unsupported
from driverforge_host.adapters.files import RootedFiles
from driverforge_host.gpu.inventory import parse_mig_minors, static_gpus
from driverforge_host.gpu.roots import DriverRoots, view_of
from driverforge_host.ports import Gpu, Mig
from driverforge_toolkit.cdi.driverfiles import EditOptions, FeatureFlag
from driverforge_toolkit.cdi.generate import SpecRequest, make_spec
from driverforge_toolkit.cdi.gpu_devices import DeviceSelection, NameStrategy, device_names
from driverforge_toolkit.cdi.hooks import HookProgram
from driverforge_toolkit.cdi.libraries import locate
from driverforge_toolkit.cdi.modes import SpecMode
from driverforge_toolkit.cdi.spec import Spec
from support.fakes.driverroot import ROOT, FakeNvml, add_device, bare_node, write_tree
from support.fakes.fakehost import FakeNode
from support.upstream import cdicases
from support.upstream.cdicases import Case

DRIVER = """
usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06 file
usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.65.06 file
dev/nvidia0 c c3:0 666
dev/nvidia1 c c3:1 666
dev/nvidiactl c c3:ff 666
"""
INFORMATION = (
    "Model: \t\t {model}\nGPU UUID: \t {uuid}\nBus Type: \t PCIe\nDevice Minor: "
    "\t {minor}\nGPU Excluded:\t No\n"
)
UUIDS = ("GPU-aaaaaaaa-0000-0000-0000-000000000000", "GPU-bbbbbbbb-0000-0000-0000-000000000000")


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    made = bare_node(tmp_path)
    write_tree(made, DRIVER)
    return made


def static_spec(node: FakeNode, *, options: EditOptions | None = None, **changes: object) -> Spec:
    request = SpecRequest(
        mode=SpecMode.STATIC,
        roots=DriverRoots(driver=ROOT),
        options=options or EditOptions(hooks=HookProgram()),
        **changes,
    )  # type: ignore[arg-type]
    return make_spec(node.host, request, FakeNvml())


def add_information(
    node: FakeNode, address: str, minor: int, uuid: str, *, model: str = "NVIDIA H100"
) -> None:
    folder = f"/proc/driver/nvidia/gpus/{address}"
    node.files.make_dirs(folder)
    text = INFORMATION.format(model=model, uuid=uuid, minor=minor)
    node.files.write_atomic(f"{folder}/information", text.encode())


def add_mig(node: FakeNode, minor: int, *instances: tuple[int, int]) -> None:
    """Instances with capabilities numbered from 10 on."""
    lines = ["config 1", "monitor 2"]
    for gi, ci in instances:
        node.files.make_dirs(f"/proc/driver/nvidia/capabilities/gpu{minor}/mig/gi{gi}/ci{ci}")
        for name in (f"gpu{minor}/gi{gi}/access", f"gpu{minor}/gi{gi}/ci{ci}/access"):
            add_device(
                node, f"{ROOT}/dev/nvidia-caps/nvidia-cap{len(lines) + 8}", 510, len(lines) + 8, mode=0o444
            )
            lines.append(f"{name} {len(lines) + 8}")
    node.files.make_dirs("/proc/driver/nvidia-caps")
    node.files.write_atomic("/proc/driver/nvidia-caps/mig-minors", "\n".join(lines).encode())


def paths(spec: Spec, name: str) -> list[str]:
    return [item.path for device in spec.devices if device.name == name for item in device.edits.device_nodes]


def container_paths(spec: Spec) -> list[str]:
    return [mount.container_path for mount in spec.edits.mounts]


def test_static_gpus_are_in_the_order_of_their_addresses(node: FakeNode) -> None:
    """As NVML counts them; minors follow the order in which the driver found them."""
    add_information(node, "0000:17:00.0", 1, UUIDS[1])
    add_information(node, "0000:65:00.0", 0, UUIDS[0])
    spec = static_spec(node)
    assert [device.name for device in spec.devices] == ["0", "1", *UUIDS, "all"]
    assert paths(spec, "0") == paths(spec, UUIDS[1]) == ["/dev/nvidia1"]
    assert paths(spec, "all") == ["/dev/nvidia0", "/dev/nvidia1"]


def test_static_gpus_without_proc_have_no_uuid(node: FakeNode) -> None:
    assert [device.name for device in static_spec(node).devices] == ["0", "1", "all"]


@pytest.mark.parametrize("mode", [SpecMode.STATIC, SpecMode.NVML])
def test_a_gpu_that_only_serves_a_display_is_left_out(node: FakeNode, mode: SpecMode) -> None:
    """A DGX Station has one. The others keep the index that NVML gives them."""
    add_information(node, "0000:17:00.0", 1, UUIDS[1], model="NVIDIA DGX Display")
    add_information(node, "0000:65:00.0", 0, UUIDS[0])
    gpus = static_gpus(view_of(node.host, DriverRoots(driver=ROOT)))
    request = SpecRequest(mode=mode, roots=DriverRoots(driver=ROOT))
    spec = make_spec(node.host, request, FakeNvml(gpus))
    assert [device.name for device in spec.devices] == ["1", UUIDS[0], "all"]
    assert paths(spec, "all") == ["/dev/nvidia0"]


def test_a_uuid_that_the_driver_does_not_know_yet_is_no_name(node: FakeNode) -> None:
    add_information(node, "0000:17:00.0", 0, "GPU-????????-????-????-????-????????????")
    assert [device.name for device in static_spec(node).devices] == ["0", "all"]


@pytest.mark.parametrize("uuid", ["GPU\n1", "GPU-1 ", "../GPU-1", "GPU-1=2", "\u00e9"])
def test_a_uuid_that_is_no_name_in_cdi_is_left_out(uuid: str) -> None:
    assert device_names(tuple(NameStrategy), Gpu(index=2, minor=0, uuid=uuid)) == ("2", "gpu2")


def test_mig_devices_without_nvml_are_named_by_their_instances(node: FakeNode) -> None:
    add_information(node, "0000:17:00.0", 0, UUIDS[0])
    add_mig(node, 0, (2, 0), (1, 0))
    spec = static_spec(node)
    assert [device.name for device in spec.devices] == ["0:gi1:ci0", "0:gi2:ci0", "all"]
    assert paths(spec, "0:gi2:ci0") == [
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap10",
        "/dev/nvidia-caps/nvidia-cap11",
    ]
    assert paths(spec, "0:gi1:ci0") == [
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap12",
        "/dev/nvidia-caps/nvidia-cap13",
    ]


def test_mig_devices_of_nvml_have_an_index_and_a_uuid(node: FakeNode) -> None:
    add_mig(node, 0, (7, 0))
    mig = Mig(index=3, uuid="MIG-1", gpu_instance=7, compute_instance=0)
    gpus = (
        Gpu(index=0, minor=0, uuid=UUIDS[0], mig_enabled=True, migs=(mig,)),
        Gpu(index=1, minor=1, uuid=UUIDS[1]),
    )
    selection = DeviceSelection(strategies=tuple(NameStrategy))
    spec = make_spec(
        node.host,
        SpecRequest(mode=SpecMode.NVML, roots=DriverRoots(driver=ROOT), selection=selection),
        FakeNvml(gpus),
    )
    assert {device.name for device in spec.devices} == {
        "0:3",
        "MIG-1",
        "mig0:3",
        "1",
        UUIDS[1],
        "gpu1",
        "all",
    }
    assert paths(spec, "MIG-1") == [
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap10",
        "/dev/nvidia-caps/nvidia-cap11",
    ]


def test_mig_on_without_devices_is_said(node: FakeNode) -> None:
    gpus = FakeNvml((Gpu(index=0, minor=0, mig_enabled=True),))
    with pytest.raises(Unavailable, match="no device that a container could get"):
        make_spec(node.host, SpecRequest(mode=SpecMode.NVML, roots=DriverRoots(driver=ROOT)), gpus)


def test_auto_falls_back_to_proc_where_nvml_gives_no_answer(node: FakeNode) -> None:
    add_information(node, "0000:17:00.0", 0, UUIDS[0])
    spec = make_spec(node.host, SpecRequest(roots=DriverRoots(driver=ROOT)), FakeNvml())
    assert [device.name for device in spec.devices] == ["0", UUIDS[0], "all"]
    with pytest.raises(Unavailable, match="NVML does not start"):
        make_spec(node.host, SpecRequest(mode=SpecMode.NVML, roots=DriverRoots(driver=ROOT)), FakeNvml())


def add_drm(node: FakeNode, address: str) -> None:
    """A card and a render node of the GPU at this address, and a link to the card."""
    for number, name in enumerate(("card1", "renderD129")):
        node.files.make_dirs(f"/sys/bus/pci/devices/{address}/drm/{name}")
        add_device(node, f"{ROOT}/dev/dri/{name}", 226, number, mode=0o660, group=44)
    node.files.make_dirs(f"{ROOT}/dev/dri/by-path")
    node.files.symlink("../card1", f"{ROOT}/dev/dri/by-path/pci-{address}-card")


def test_a_gpu_brings_its_drm_nodes_and_their_links(node: FakeNode) -> None:
    add_information(node, "0000:17:00.0", 0, UUIDS[0])
    add_drm(node, "0000:17:00.0")
    (device,) = (device for device in static_spec(node).devices if device.name == "0")
    assert [item.path for item in device.edits.device_nodes] == [
        "/dev/nvidia0",
        "/dev/dri/card1",
        "/dev/dri/renderD129",
    ]
    assert device.edits.hooks[0].args[2:] == ("--link", "../card1::/dev/dri/by-path/pci-0000:17:00.0-card")
    assert device.edits.additional_gids == (44,)
    assert static_spec(node).version == ""
    off = static_spec(node, options=EditOptions(hooks=HookProgram(), flags=frozenset({FeatureFlag.NO_GIDS})))
    assert all(not device.edits.additional_gids for device in off.devices)


def test_a_mig_device_has_drm_nodes_only_with_a_profile_for_graphics(node: FakeNode) -> None:
    """Both are on one GPU, whose DRM nodes these are."""
    add_drm(node, "0000:17:00.0")
    add_mig(node, 0, (1, 0), (2, 0))
    migs = (
        Mig(index=0, gpu_instance=1, compute_instance=0),
        Mig(index=1, gpu_instance=2, compute_instance=0, graphics=True),
    )
    gpus = FakeNvml((Gpu(index=0, minor=0, bus_id="0000:17:00.0", mig_enabled=True, migs=migs),))
    request = SpecRequest(mode=SpecMode.NVML, roots=DriverRoots(driver=ROOT), merged=False)
    compute, graphics = make_spec(node.host, request, gpus).devices
    capabilities = [f"/dev/nvidia-caps/nvidia-cap{number}" for number in range(10, 14)]
    assert [item.path for item in compute.edits.device_nodes] == ["/dev/nvidia0", *capabilities[:2]]
    assert (compute.edits.hooks, compute.edits.additional_gids) == ((), ())
    drm = ["/dev/dri/card1", "/dev/dri/renderD129"]
    assert [item.path for item in graphics.edits.device_nodes] == ["/dev/nvidia0", *drm, *capabilities[2:]]
    assert graphics.edits.hooks[0].args[2:] == ("--link", "../card1::/dev/dri/by-path/pci-0000:17:00.0-card")
    assert graphics.edits.additional_gids == (44,)


def test_without_nvml_no_mig_device_has_drm_nodes(node: FakeNode) -> None:
    """/proc does not say which profile an instance was made with."""
    add_information(node, "0000:17:00.0", 0, UUIDS[0])
    add_drm(node, "0000:17:00.0")
    add_mig(node, 0, (1, 0))
    assert not [path for path in paths(static_spec(node), "all") if path.startswith("/dev/dri")]


def test_links_inside_a_driver_root_stay_inside_it(node: FakeNode) -> None:
    """Debian's alternatives: an absolute link would lead to a file of the host, or to none."""
    write_tree(
        node, "usr/lib/nvidia/current/nvidia-smi file\netc/alternatives dir\nusr/bin dir\nlib -> usr/lib"
    )
    node.files.symlink("/usr/lib/nvidia/current/nvidia-smi", f"{ROOT}/etc/alternatives/smi")
    node.files.symlink("/etc/alternatives/smi", f"{ROOT}/usr/bin/nvidia-smi")
    spec = static_spec(node)
    (smi,) = (mount for mount in spec.edits.mounts if mount.container_path == "/usr/bin/nvidia-smi")
    assert smi.host_path == f"{ROOT}/usr/lib/nvidia/current/nvidia-smi"
    assert container_paths(spec).count("/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06") == 1
    assert not [path for path in container_paths(spec) if path.startswith("/lib/")]


def test_nvidia_xconfig_comes_with_graphics(node: FakeNode) -> None:
    """An X server in a container is configured with it; a management container has no X server."""
    write_tree(node, "usr/bin/nvidia-xconfig file\nusr/bin/nvidia-smi file")
    assert {"/usr/bin/nvidia-xconfig", "/usr/bin/nvidia-smi"} <= {*container_paths(static_spec(node))}
    request = SpecRequest(mode=SpecMode.MANAGEMENT, roots=DriverRoots(driver=ROOT))
    found = container_paths(make_spec(node.host, request, FakeNvml()))
    assert "/usr/bin/nvidia-smi" in found
    assert "/usr/bin/nvidia-xconfig" not in found


def test_the_loaded_version_counts_where_several_are_installed(node: FakeNode) -> None:
    write_tree(node, "usr/lib/x86_64-linux-gnu/libcuda.so.570.10.01 file")
    files = view_of(node.host, DriverRoots(driver=ROOT)).driver
    assert locate(files).version == "570.10.01"
    assert locate(files, loaded="580.65.06").version == "580.65.06"
    node.files.write_atomic("/sys/module/nvidia/version", b"580.65.06\n")
    assert "/usr/lib/x86_64-linux-gnu/libcuda.so.570.10.01" not in container_paths(static_spec(node))


def test_libraries_are_taken_from_every_folder_that_has_some_of_this_version(tmp_path: Path) -> None:
    """Debian's packages: libcuda is in a folder of its own, what it loads is beside that."""
    node = bare_node(tmp_path)
    folder = "usr/lib/x86_64-linux-gnu"
    names = (
        "nvidia/current/libcuda.so.580.65.06",
        "libnvidia-ptxjitcompiler.so.580.65.06",
        "libnvidia-glcore.so.570.10.01",
        "vdpau/libvdpau_nvidia.so.580.65.06",
        "libnvidia-egl-wayland.so.1.1.19",
    )
    write_tree(node, "dev/nvidia0 c c3:0 666\n" + "\n".join(f"{folder}/{name} file" for name in names))
    spec = static_spec(node)
    found = {name for name in names if f"/{folder}/{name}" in container_paths(spec)}
    assert found == {*names} - {"libnvidia-glcore.so.570.10.01"}
    assert f"NVIDIA_CTK_LIBCUDA_DIR=/{folder}:/{folder}/nvidia/current" in spec.edits.env
    (ldcache,) = (hook for hook in spec.edits.hooks if "update-ldcache" in hook.args)
    assert [word for word in ldcache.args if word.startswith("/")] == [
        f"/{folder}{part}" for part in ("", "/nvidia/current", "/vdpau")
    ]


def test_libraries_of_32_bits_are_left_out(node: FakeNode) -> None:
    """Where both are installed, /usr/lib has those of 32 bits on many systems."""
    names = ("libcuda.so.580.65.06", "libnvidia-ml.so.580.65.06", "libnvidia-egl-gbm.so.1.1.2")
    write_tree(
        node,
        "\n".join(f"usr/lib/{name} file" for name in names),
        contents=dict.fromkeys(names, b"\x7fELF\x01\x01\x01" + bytes(45)),
    )
    spec = static_spec(node)
    assert not [path for path in container_paths(spec) if path.count("/") == 3 and "/usr/lib/" in path]
    assert "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib/x86_64-linux-gnu" in spec.edits.env


def test_what_only_has_the_name_of_a_library_is_left_out(node: FakeNode) -> None:
    folder = "usr/lib/x86_64-linux-gnu"
    write_tree(
        node,
        f"{folder}/libcuda.so.570.10.01/notes file\n"
        f"{folder}/libnvidia-ml.so.570.10.02 -> gone.so\n"
        f"{folder}/libcuda.so.570.10.03.bak file",
    )
    assert locate(view_of(node.host, DriverRoots(driver=ROOT)).driver).version == "580.65.06"
    assert not [path for path in container_paths(static_spec(node)) if "570.10.0" in path]


def test_the_library_without_the_drivers_version_comes_too(node: FakeNode) -> None:
    write_tree(node, "usr/lib/x86_64-linux-gnu/libnvidia-nvvm70.so.4 file")
    assert "/usr/lib/x86_64-linux-gnu/libnvidia-nvvm70.so.4" in container_paths(static_spec(node))


def test_of_a_module_of_xorg_that_is_there_twice_the_first_counts(node: FakeNode) -> None:
    first = "usr/lib/x86_64-linux-gnu/nvidia/xorg/nvidia_drv.so"
    second = "usr/lib/xorg/modules/drivers/nvidia_drv.so"
    write_tree(node, f"{first} file\n{second} file")
    found = [path for path in container_paths(static_spec(node)) if path.endswith("nvidia_drv.so")]
    assert found == [f"/{first}"]


def test_modules_of_xorg_stay_where_the_x_server_looks(node: FakeNode) -> None:
    """Debian's alternatives: both are links, into a folder that the X server does not know."""
    modules, home = "usr/lib/xorg/modules", "/usr/lib/nvidia/current"
    names = ("drivers/nvidia_drv.so", "extensions/libglxserver_nvidia.so.580.65.06")
    write_tree(
        node,
        "\n".join(f"{home}/{Path(name).name} file" for name in names)
        + "\n"
        + "\n".join(f"{modules}/{name} -> {home}/{Path(name).name}" for name in names),
    )
    spec = static_spec(node)
    found = {mount.container_path: mount.host_path for mount in spec.edits.mounts}
    for name in names:
        assert found[f"/{modules}/{name}"] == f"{ROOT}{home}/{Path(name).name}"
    link = f"libglxserver_nvidia.so.580.65.06::/{modules}/extensions/libglxserver_nvidia.so"
    assert link in spec.edits.hooks[0].args


def test_a_platform_of_egl_may_be_apart_from_the_driver(node: FakeNode) -> None:
    """It has packages of its own, of the distribution's making."""
    write_tree(node, "usr/lib64/libnvidia-egl-gbm.so.1.1.2 file")
    assert "/usr/lib64/libnvidia-egl-gbm.so.1.1.2" in container_paths(static_spec(node))


def test_sockets_firmware_and_explicit_libraries(node: FakeNode) -> None:
    write_tree(
        node,
        "run/nvidia-persistenced/socket file\nfw/nvidia/580.65.06/gsp_ga10x.bin "
        "file\nfw/nvidia/580.65.06/other.bin file",
    )
    write_tree(node, "usr/lib64/libEGL.so file")
    node.files.write_atomic("/sys/module/firmware_class/parameters/path", b"/fw\n")
    spec = static_spec(
        node, options=EditOptions(hooks=HookProgram(), flags=frozenset({FeatureFlag.EXPLICIT_LIBRARIES}))
    )
    options = {mount.container_path: mount.options for mount in spec.edits.mounts}
    assert options["/run/nvidia-persistenced/socket"] == ("nosuid", "nodev", "rbind", "rprivate", "noexec")
    assert "/usr/lib64/libEGL.so" in options
    assert [path for path in options if path.startswith("/fw")] == ["/fw/nvidia/580.65.06/gsp_ga10x.bin"]
    without = static_spec(
        node, options=EditOptions(hooks=HookProgram(), flags=frozenset({FeatureFlag.NO_SOCKETS}))
    )
    assert "/run/nvidia-persistenced/socket" not in container_paths(without)


def test_an_empty_root_says_what_was_looked_for(tmp_path: Path) -> None:
    node = bare_node(tmp_path)
    with pytest.raises(Unavailable, match="no NVIDIA driver libraries found") as caught:
        static_spec(node)
    assert ROOT in caught.value.details[0]
    with pytest.raises(Unsupported, match="the mode csv is for Tegra systems"):
        make_spec(node.host, SpecRequest(mode=SpecMode.CSV), FakeNvml())


@pytest.mark.parametrize("ids", [("none",), ("0", "none")])
def test_a_device_without_a_gpu_for_the_name_none(node: FakeNode, ids: tuple[str, ...]) -> None:
    """It is no part of the device `all`: with nothing else, there is none, and no container misses a GPU."""
    spec = static_spec(node, selection=DeviceSelection(ids=ids))
    edits = {device.name: device.edits for device in spec.devices}
    assert edits.pop("none").env == ("NVCT_EMPTY_DEVICE=",)
    assert [*edits] == (["0", "all"] if "0" in ids else [])
    assert not any(other.env for other in edits.values())


@pytest.mark.parametrize("case", cdicases.load("system", "Locate"), ids=cdicases.title)
def test_library_folders_are_upstreams(case: Case, tmp_path: Path) -> None:
    node = bare_node(tmp_path)
    write_tree(node, "\n".join(f"{path.lstrip('/')} file" for path in case["input"]["libPaths"] or ()))
    files = view_of(node.host, DriverRoots(driver=ROOT)).driver
    if case["expected"]["expectedError"]:
        with pytest.raises(Unavailable):
            locate(files)
    else:
        assert list(locate(files).folders) == case["expected"]["expected"]


@pytest.mark.parametrize(
    "case", cdicases.load("system", "ProcessMinorsFile", "ProcessMigMinorsLine"), ids=cdicases.title
)
def test_mig_minors_are_read_as_upstream_does(case: Case) -> None:
    if case["operation"] == "ProcessMinorsFile":
        assert parse_mig_minors("\n".join(case["input"]["lines"] or ())) == (
            case["expected"]["expected"] or {}
        )
    else:
        given = case["input"]
        assert parse_mig_minors(given["line"]) == ({} if given["err"] else {given["cap"]: given["minor"]})


def test_a_root_below_a_root_keeps_absolute_links_inside(tmp_path: Path) -> None:
    """With real files, as on a node."""
    (tmp_path / "run/driver/usr").mkdir(parents=True)
    (tmp_path / "run/driver/usr/lib.so").write_bytes(b"0123456789")
    (tmp_path / "run/driver/lib.so").symlink_to("/usr/lib.so")
    (tmp_path / "current").symlink_to("/run/driver")
    files = RootedFiles(str(tmp_path)).under("/current")
    assert files.root == f"{tmp_path}/run/driver"
    assert files.resolve("/lib.so") == "/usr/lib.so"
    assert files.read_part("/lib.so", 3, 4) == b"3456"
    assert files.read_part("/lib.so", 8, 400) == b"89"


def test_names_are_given_once() -> None:
    assert device_names(
        (NameStrategy.INDEX, NameStrategy.INDEX, NameStrategy.UUID), Gpu(index=2, minor=0)
    ) == ("2",)


def test_no_gpu_at_all(tmp_path: Path) -> None:
    node = bare_node(tmp_path)
    assert static_gpus(view_of(node.host, DriverRoots(driver=ROOT))) == ()
    write_tree(node, "usr/lib64/libcuda.so.1.2.3 file")
    with pytest.raises(Unavailable, match="no GPU found"):
        static_spec(node)
