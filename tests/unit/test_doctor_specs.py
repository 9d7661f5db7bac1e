"""The doctor's cure for CDI specs: our generator for its own kinds, at their place.

Every other file is its writer's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from driverforge_toolkit.cdi.generate import MODES, default_kind
from driverforge_toolkit.cdi.modes import SpecMode
from driverforge_toolkit.cdi.remedy import generate_options, rewrite_command
from driverforge_toolkit.cdi.spec import ContainerEdits, DeviceNode, Spec, SpecDevice, SpecHook, SpecMount
from driverforge_toolkit.cdi.specfiles import SpecFile
from driverforge_toolkit.doctor import rules_node
from driverforge_toolkit.doctor.evidence import Diagnosis, NodeEvidence, ToolkitEvidence

MANAGEMENT = "/var/run/cdi/management.acme.com-gpu.yaml"
PLUGIN = "/var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json"
OURS = {
    "/etc/cdi/nvidia.yaml": ("nvidia.com/gpu", "driverctl cdi generate --output /etc/cdi/nvidia.yaml"),
    "/var/run/cdi/management.nvidia.com-gpu.yaml": (
        "management.nvidia.com/gpu",
        "driverctl cdi generate --mode management --output /var/run/cdi/management.nvidia.com-gpu.yaml",
    ),
    "/etc/cdi/nvidia.com-gds.yaml": (
        "nvidia.com/gds",
        "driverctl cdi generate --mode gds --output /etc/cdi/nvidia.com-gds.yaml",
    ),
    "/etc/cdi/c h.yaml": (
        "nvidia.com/imex-channel",
        "driverctl cdi generate --mode imex --output '/etc/cdi/c h.yaml'",
    ),
}
OTHERS = {
    "/etc/cdi/intel.com-gpu.yaml": "intel.com/gpu",
    PLUGIN: "k8s.device-plugin.nvidia.com/gpu",
    "/etc/cdi/tegra.yaml": "nvidia.com/pva",
}


def facts(kinds: dict[str, str]) -> NodeEvidence:
    """A node with these specs (path -> kind), all of them of an earlier driver and an earlier boot."""
    hook = SpecHook(name="createContainer", path="/h", args=("--host-driver-version=550.1.1",))
    edits = ContainerEdits(
        device_nodes=(DeviceNode(path="/dev/nvidia-uvm", major=505, minor=0),), hooks=(hook,)
    )
    specs = tuple(
        SpecFile(
            path=path,
            folder=path.rpartition("/")[0],
            spec=Spec(version="0.5.0", kind=kind, devices=(SpecDevice(name="0", edits=edits),)),
        )
        for path, kind in kinds.items()
    )
    return NodeEvidence(
        live=True,
        toolkit=ToolkitEvidence(folder="/t"),
        specs=specs,
        driver="580.1.1",
        majors={"nvidia-uvm": 511},
        gone=dict.fromkeys(kinds, ("/dev/nvidia3",)),
    )


@pytest.mark.parametrize(
    "rule", [rules_node.spec_paths_gone, rules_node.spec_of_other_driver, rules_node.spec_with_wrong_major]
)
def test_a_spec_of_another_tool_is_never_overwritten(
    rule: Callable[[NodeEvidence], Diagnosis | None],
) -> None:
    kinds = OTHERS if rule is rules_node.spec_paths_gone else {PLUGIN: OTHERS[PLUGIN]}
    found = rule(facts(kinds))
    assert found is not None
    assert "generate" not in found.command
    for path in kinds:
        assert f"let the tool that wrote it write it again: {path}" in found.command.partition("# ")[2].split(
            "; "
        )


@pytest.mark.parametrize("path", OURS)
def test_a_spec_of_ours_is_written_in_its_mode_at_its_place(path: str) -> None:
    kind, command = OURS[path]
    found = rules_node.spec_paths_gone(facts({path: kind, **OTHERS}))
    assert found is not None
    assert found.command.partition("  # ")[0] == command


@pytest.mark.parametrize("mode", MODES)
def test_every_kind_of_the_generator_is_known(mode: SpecMode) -> None:
    wanted = "" if mode.value in ("auto", "nvml", "static") else f" --mode {mode.value}"
    assert (
        rewrite_command(default_kind(mode), "/x.yaml") == f"driverctl cdi generate{wanted} --output /x.yaml"
    )


@pytest.mark.parametrize(
    ("path", "then"),
    [
        (
            "/etc/cdi/intel.com-gpu.yaml",
            "  # let the tool that wrote it write it again: /etc/cdi/intel.com-gpu.yaml",
        ),
        (
            "/etc/cdi/nvidia.com-gds.json",
            "; driverctl cdi generate --mode gds --output /etc/cdi/nvidia.com-gds.json",
        ),
    ],
)
def test_what_cannot_be_read_is_moved_away_and_written_by_who_has_that_name(path: str, then: str) -> None:
    broken = SpecFile(path=path, folder="/etc/cdi", spec=None, problems=("no kind",))
    found = rules_node.spec_unresolvable(
        NodeEvidence(live=True, toolkit=ToolkitEvidence(folder="/t"), specs=(broken,))
    )
    assert found is not None
    assert found.command == f"mv {path} /root/{then}"


def test_of_two_specs_with_one_device_one_stays() -> None:
    found = rules_node.spec_unresolvable(
        facts({"/etc/cdi/a.yaml": "nvidia.com/gpu", "/etc/cdi/b.yaml": "nvidia.com/gpu"})
    )
    assert found is not None
    assert found.command == "mv /etc/cdi/b.yaml /root/"


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("", "driverctl cdi generate --output /var/run/cdi/nvidia.com-gpu.yaml"),
        (
            "management.nvidia.com/gpu",
            "driverctl cdi generate --mode management --output /var/run/cdi/management.nvidia.com-gpu.yaml",
        ),
        (
            "acme.com/gpu",
            "driverctl cdi generate --vendor acme.com --class gpu --output /var/run/cdi/acme.com-gpu.yaml",
        ),
        (
            "management.acme.com/gpu",
            (
                "driverctl cdi generate --mode management --vendor management.acme.com --class gpu --output "
                f"{MANAGEMENT}"
            ),
        ),
        (
            "gpu",
            (
                "# write VENDOR/CLASS as nvidia-container-runtime.modes.cdi.default-kind into /c.toml, "
                "as nvidia.com/gpu"
            ),
        ),
    ],
)
def test_the_kind_that_is_asked_for_is_the_one_that_is_written(kind: str, command: str) -> None:
    toolkit = ToolkitEvidence(folder="/t", mode="cdi", config="/c.toml", default_kind=kind)
    found = rules_node.spec_missing(NodeEvidence(live=True, toolkit=toolkit))
    assert found is not None
    assert found.command == command


def test_a_spec_is_written_again_with_the_roots_and_the_hook_that_it_shows() -> None:
    library = SpecMount(
        host_path="/run/nvidia/driver/usr/lib64/libcuda.so.580.1.1",
        container_path="/usr/lib64/libcuda.so.580.1.1",
    )
    hook = SpecHook(name="createContainer", path="/usr/local/nvidia/toolkit/nvidia-cdi-hook")
    device = DeviceNode(path="/dev/nvidia0", host_path="/srv/x/dev/nvidia0")
    spec = Spec(
        version="0.5.0",
        kind="nvidia.com/gpu",
        devices=(),
        edits=ContainerEdits(device_nodes=(device,), mounts=(library,), hooks=(hook,)),
    )
    roots = " --driver-root /run/nvidia/driver --dev-root /srv/x"
    assert generate_options(spec) == f"{roots} --nvidia-cdi-hook-path {hook.path}"
    assert generate_options(spec, gone=[hook.path]) == roots, "another one has to be found"
    assert (
        generate_options(replace(spec, edits=ContainerEdits(device_nodes=(DeviceNode(path="/dev/nvidia0"),))))
        == ""
    )
