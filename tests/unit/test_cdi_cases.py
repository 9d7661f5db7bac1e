"""Upstream's recorded cases about CDI values: ours give the same answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import yaml

from driverforge_core.errors import InputError
from driverforge_toolkit.cdi import specfiles, transform
from driverforge_toolkit.cdi.conformance import minimum_version
from driverforge_toolkit.cdi.device_edits import additional_gid
from driverforge_toolkit.cdi.hooks import ALL, HookProgram, is_library
from driverforge_toolkit.cdi.libraries import so_name
from driverforge_toolkit.cdi.modes import channel_problem
from driverforge_toolkit.cdi.spec import ContainerEdits, Spec, SpecHook, SpecMount
from support.upstream import cdicases
from support.upstream.cdicases import Case
from support.upstream.toolkitcases import deviations

RECORDED = {"cdi": 352, "system": 149, "toolkit-config": 45}
GO_CHAR_DEVICE = 1 << 21  # io/fs.ModeCharDevice

TREES = {  # these need files: tests/tree/test_cdi_cases_trees.py
    "New",
    "GenerateSpec",
    "NewGDRCopyDiscoverer",
    "NewGDSDiscoverer",
    "NewMOFEDDiscoverer",
    "NewNvSwitchDiscoverer",
    "GetDotSoSymlinks",
    "WithWithDriverDotSoSymlinks",
    "GraphicsConfigsDiscoverer",
    "GraphicsLibrariesDiscoverer",
    "DrmDevicesByPath",
    "DeviceToSpec",
    "DeviceToEdits",
    "NvmllibGetDeviceSpecGeneratorsForIDs",
}


def create_hook(case: Case) -> None:
    maker = case["input"]["hookCreator"]
    disabled = frozenset(name for name, off in maker.get("disabledHooks", {ALL: True}).items() if off)
    hooks = HookProgram(
        path=maker.get("nvidiaCDIHookPath", "/usr/bin/nvidia-cdi-hook"),
        disabled=disabled,
        # the recorded creator without chmod in its list is one for which it was enabled
        enabled=frozenset({"chmod"} - disabled - ({"chmod"} if ALL in disabled else set())),
        ldconfig=maker.get("ldconfigPath", ""),
        debug=maker.get("debugLogging", False),
    )
    wanted = case["expected"]["expectedHook"]
    assert hooks.make(case["input"]["hookName"], *(case["input"].get("args") or ())) == cdicases.hooks(
        [wanted] if wanted else None
    )


def is_disabled(case: Case) -> None:
    given = case["input"]
    enabled = frozenset(given["enabledHooks"] or ())
    hooks = HookProgram(disabled=frozenset(given["disabledHooks"] or ()), enabled=enabled)
    assert (not hooks.make(given["hookName"], *(given["args"] or ()))) is case["expected"]["expectedResult"]


def path(case: Case) -> None:
    given = case["input"]
    assert (
        transform.moved_path(given["path"], given["root"], given["targetRoot"])
        == case["expected"]["expectedPath"]
    )


def driver_root(case: Case) -> None:
    given = case["input"]
    target = given["targetDriverRoot"]
    dev = (given["devRoot"] or given["driverRoot"], given["targetDevRoot"] or target)
    moved = transform.driver_moved(
        cdicases.spec(given["spec"]), driver=(given["driverRoot"], target), dev=dev
    )
    assert moved == cdicases.spec(case["expected"]["expectedSpec"])


def host_root(case: Case) -> None:
    given = case["input"]
    moved = transform.host_moved(cdicases.spec(given["spec"]), given["root"], given["targetRoot"])
    assert moved == cdicases.spec(case["expected"]["expectedSpec"])


def container_root(case: Case) -> None:
    given = case["input"]
    moved = transform.container_moved(cdicases.spec(given["spec"]), given["root"], given["targetRoot"])
    assert moved == cdicases.spec(case["expected"]["expectedSpec"])


def deduplicate(case: Case) -> None:
    assert transform.deduplicated(cdicases.spec(case["input"]["spec"])) == cdicases.spec(
        case["expected"]["expectedSpec"]
    )


def simplify(case: Case) -> None:
    assert transform.simplified(cdicases.spec(case["input"]["spec"])) == cdicases.spec(
        case["expected"]["expectedSpec"]
    )


def sort_nodes(case: Case) -> None:
    found = transform.nodes_in_order(cdicases.nodes(case["input"]["deviceNodes"]))
    assert found == cdicases.nodes(case["expected"]["expectedDeviceNodes"])


def sort_mounts(case: Case) -> None:
    assert transform.mounts_in_order(cdicases.mounts(case["input"]["mounts"])) == cdicases.mounts(
        case["expected"]["expectedMounts"]
    )


def sort_spec(case: Case) -> None:
    assert transform.in_order(cdicases.spec(case["input"]["spec"])) == cdicases.spec(
        case["expected"]["expected"]
    )


def merged_device(case: Case) -> None:
    before = cdicases.spec(case["input"]["spec"])
    merged = Spec(version="", kind="", devices=transform.with_merged_device(before.devices))
    assert transform.in_order(merged) == cdicases.spec(case["expected"]["expectedSpec"])


def merge_devices(case: Case) -> None:
    given, wanted = case["input"], case["expected"]["expected"]
    devices = tuple(cdicases.device(item) for item in given["deviceSpecs"] or ())
    if given["createError"]:
        with pytest.raises(InputError, match="device name"):
            transform.with_merged_device(devices, given["mergedDeviceName"])
        return
    # upstream makes an empty device of none, which its own writer then refuses
    new = [cdicases.device(wanted)] if wanted and devices else []
    assert transform.with_merged_device(devices, given["mergedDeviceName"]) == (*devices, *new)


def versions(case: Case) -> None:
    """What upstream wrote reads and writes to the same document, in a version that suffices.

    Where upstream's case asks for no version, ours is taken.
    """
    text = case["expected"]["expectedSpec"]
    spec = specfiles.read(text, "case.yaml")
    assert yaml.safe_load(specfiles.write(spec)) == yaml.safe_load(text)
    if "minimum" in case["id"] or "host-dev-path" in case["id"]:
        assert minimum_version(spec) == spec.version
    else:
        assert minimum_version(spec) <= spec.version


def groups(case: Case) -> None:
    node, off = (
        case["input"]["deviceNode"] or {"FileMode": None, "GID": None},
        case["input"]["device"]["noAdditionalGIDs"],
    )
    mode = node["FileMode"]
    if (mode is not None and not mode & GO_CHAR_DEVICE) or off:
        # ours never gets that far: only character devices are looked at
        assert not case["expected"]["expectedAdditionalGIDs"]
        return
    found = additional_gid(None if mode is None else mode & 0o777, node["GID"])
    assert ([found] if found else None) == case["expected"]["expectedAdditionalGIDs"]


def development_name(case: Case) -> None:
    assert so_name(case["input"]["input"]) == case["expected"]["expectedSoLink"]


def library_name(case: Case) -> None:
    assert is_library(case["input"]["name"]) is case["input"]["isLib"]


def ldcache(case: Case) -> None:
    hooks = HookProgram(path="/foo/bar/nvidia-cdi-hook", ldconfig=case["input"]["ldconfigPath"])
    mounts = [
        SpecMount(host_path=item["HostPath"], container_path=item["Path"])
        for item in case["input"]["mounts"] or ()
    ]
    assert hooks.update_ldcache(mounts) == cdicases.hooks(case["expected"]["expectedHooks"])


def channels(case: Case) -> None:
    problems = [channel_problem(name.removeprefix("channel"), ["0"]) for name in case["input"]["ids"]]
    assert any(problems) is bool(case["expected"].get("expectedErr"))


PURE: dict[str, Callable[[Case], None]] = {
    "CDIHookCreator_Create": create_hook,
    "CDIHookCreator_isDisabled": is_disabled,
    "TransformPath": path,
    "DriverTransformer": driver_root,
    "HostRootTransformer": host_root,
    "ContainerRootTransformer": container_root,
    "Deduplicate": deduplicate,
    "Simplify": simplify,
    "SortDeviceNodes": sort_nodes,
    "StortMounts": sort_mounts,
    "SortSpec": sort_spec,
    "MergedDevice": merged_device,
    "MergeDeviceSpecs": merge_devices,
    "Spec": versions,
    "GetAdditionalGIDs": groups,
    "GetSoLink": development_name,
    "IsLibName": library_name,
    "LDCacheUpdateHook": ldcache,
    "ImexChannelValidation": channels,
}


@pytest.mark.parametrize("case", cdicases.load("cdi", *PURE), ids=cdicases.title)
def test_our_answer_is_upstreams(case: Case) -> None:
    PURE[case["operation"]](case)


@pytest.mark.parametrize("folder", RECORDED)
def test_every_recorded_case_is_used_or_named_with_a_reason(folder: str) -> None:
    used = Counter(case["operation"] for case in cdicases.load(folder))
    assert used.total() + sum(cdicases.not_used(folder).values()) == RECORDED[folder]
    assert folder != "cdi" or set(used) == TREES | set(PURE)


def test_declared_differences_are_of_cases_that_are_played() -> None:
    declared = {case for group in deviations() for case in group.cases if case.startswith("cdi/")}
    played = {case["id"]: case["operation"] for case in cdicases.load("cdi")}
    assert {played[case] for case in declared} == {"DrmDevicesByPath", "MergeDeviceSpecs"}


def test_counts() -> None:
    found = {folder: len(cdicases.load(folder)) for folder in RECORDED}
    assert found == {"cdi": 167, "system": 34, "toolkit-config": 21}


def test_a_node_without_a_host_path_keeps_its_place_on_the_host() -> None:
    """Upstream's transform loses it: the runtime would look for the container's path on the host."""
    spec = specfiles.read(
        "cdiVersion: 0.3.0\nkind: a.b/c\ndevices:\n- name: x\n  containerEdits:\n    deviceNodes: [{path: "
        "/r/dev/n}]\n",
        "t",
    )
    (node,) = transform.container_moved(spec, "/r", "/q").devices[0].edits.device_nodes
    assert (node.path, node.host_path) == ("/q/dev/n", "/r/dev/n")


def test_an_argument_that_is_no_path_stays() -> None:
    hook = SpecHook(name="createContainer", path="/p", args=("nvidia-cdi-hook", "", "--mode=755", "a::/x"))
    spec = Spec(version="", kind="a.b/c", devices=(), edits=ContainerEdits(hooks=(hook,)))
    (moved,) = transform.container_moved(spec, "/", "/new").edits.hooks
    assert moved.args == ("nvidia-cdi-hook", "", "--mode=755", "a::/new/x")
