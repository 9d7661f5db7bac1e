"""NVIDIA's handlers that are there already, the default that is given up, and a default that nobody has."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tomllib

from driverforge_core.errors import Unsupported
from driverforge_toolkit.runtime.backends import containerd, docker
from driverforge_toolkit.runtime.backends.containerd_config import CRI_V2, CRI_V3
from driverforge_toolkit.runtime.formats.values import lookup
from driverforge_toolkit.runtime.model import RUNC, RuntimeDaemon, WantedHandlers
from driverforge_toolkit.runtime.nvidia_handlers import nvidia_handlers
from driverforge_toolkit.runtime.transaction.consequences import check_effective, check_servable
from support.fakes.runtimemodel import CONTAINERD, DOCKER, Files, daemon, effective

HANDLERS = nvidia_handlers("/t")
WANTED = WantedHandlers(handlers=HANDLERS)
RELEASE = replace(WANTED, release_default=True)
OLD, NEW = daemon(version=(1, 7, 24)), daemon(version=(2, 1, 9))
ROOT, DROP_IN = OLD.config, OLD.drop_in
CRI2 = 'plugins."io.containerd.grpc.v1.cri"'
EKS = f"""version = 2
[{CRI2}.containerd]
default_runtime_name = "nvidia"
[{CRI2}.containerd.runtimes.nvidia]
base_runtime_spec = "/etc/containerd/base-runtime-spec.json"
runtime_type = "{RUNC}"
[{CRI2}.containerd.runtimes.nvidia.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
SystemdCgroup = true
"""
RUNC_TABLE = f"""[{CRI2}.containerd.runtimes.runc]
runtime_type = "{RUNC}"
[{CRI2}.containerd.runtimes.runc.options]
SystemdCgroup = true
"""


def views(
    where: RuntimeDaemon, root: str, wanted: WantedHandlers = WANTED
) -> tuple[dict[str, object], dict[str, object]]:
    """What the daemon sees before and after a change."""
    files: Files = {DROP_IN: None, ROOT: root.encode()}
    before = effective(where, files)
    return before, effective(where, {**files, **CONTAINERD.patched(where, files, before, wanted)})


def section(view: dict[str, object]) -> dict[str, object]:
    found = [lookup(view, (*name, "containerd")) for name in (CRI_V2, CRI_V3)]
    return next(each for each in found if isinstance(each, dict))


def table(view: dict[str, object], runtime: str) -> dict[str, object]:
    found = lookup(section(view), ("runtimes", runtime))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("where", [OLD, NEW], ids=["1.7", "2.1"])
def test_a_handler_that_is_there_keeps_its_settings_and_gets_our_program(where: RuntimeDaemon) -> None:
    _, after = views(where, EKS)
    for name, end in (("nvidia", ""), ("nvidia-cdi", ".cdi"), ("nvidia-legacy", ".legacy")):
        found = table(after, name)
        assert found["base_runtime_spec"] == "/etc/containerd/base-runtime-spec.json"
        assert found["options"] == {
            **(table(after, "runc")["options"] if where is NEW else {}),  # type: ignore[dict-item]
            "BinaryName": f"/t/nvidia-container-runtime{end}",
            "SystemdCgroup": True,
        }


@pytest.mark.parametrize("where", [OLD, NEW], ids=["1.7", "2.1"])
def test_what_the_handler_does_not_say_is_as_with_the_runtime_that_runs_containers(
    where: RuntimeDaemon,
) -> None:
    """k3s writes no cgroup driver into the handlers that it finds."""
    root = f'version = 2\n{RUNC_TABLE}[{CRI2}.containerd.runtimes.nvidia]\nruntime_type = "{RUNC}"\n'
    root += f"privileged_without_host_devices = true\n[{CRI2}.containerd.runtimes.nvidia.options]\n"
    _, after = views(
        where, root + 'BinaryName = "/usr/bin/nvidia-container-runtime"\nSystemdCgroup = false\n'
    )
    assert table(after, "nvidia")["privileged_without_host_devices"] is True
    assert lookup(table(after, "nvidia"), ("options", "SystemdCgroup")) is True


@pytest.mark.parametrize(
    ("where", "shim", "expected"),
    [
        (OLD, "io.containerd.runc.v1", "io.containerd.runc.v1"),
        (OLD, "io.containerd.runtime.v1.linux", RUNC),  # it takes no BinaryName
        (NEW, "io.containerd.runc.v1", RUNC),
        (NEW, "io.containerd.runc.v2", RUNC),
    ],
)
def test_a_shim_that_is_gone_is_not_taken_over(where: RuntimeDaemon, shim: str, expected: str) -> None:
    _, after = views(where, EKS.replace(RUNC, shim))
    assert {table(after, handler.name)["runtime_type"] for handler in HANDLERS} == {expected}


def test_without_any_runtime_but_nvidias_it_takes_after_those() -> None:
    """AKS: default `nvidia-container-runtime`, and no runc."""
    root = EKS.replace("runtimes.nvidia", "runtimes.nvidia-container-runtime")
    root = root.replace('= "nvidia"', '= "nvidia-container-runtime"')
    _, after = views(OLD, root)
    assert lookup(table(after, "nvidia"), ("options", "SystemdCgroup")) is True
    assert section(after)["default_runtime_name"] == "nvidia-container-runtime"


@pytest.mark.parametrize("where", [OLD, NEW], ids=["1.7", "2.1"])
@pytest.mark.parametrize("runc", ["", f'[{CRI2}.containerd.runtimes.runc]\nruntime_type = "{RUNC}"\n'])
def test_who_takes_over_as_the_default_gets_what_our_handler_had(where: RuntimeDaemon, runc: str) -> None:
    """Amazon's nodes have no runc: containerd's CRI plugin did not load after this."""
    before, after = views(where, EKS + runc, RELEASE)
    assert section(after)["default_runtime_name"] == "runc"
    heir = table(after, "runc")
    assert (heir["runtime_type"], heir["base_runtime_spec"]) == (
        RUNC,
        table(before, "nvidia")["base_runtime_spec"],
    )
    assert lookup(heir, ("options", "SystemdCgroup")) is True
    assert lookup(heir, ("options", "BinaryName")) in ("", containerd.REMOVED)
    check_effective(containerd, where, (before, after), RELEASE)
    check_servable(containerd, where, before, after)


def test_a_default_that_another_file_names_beside_ours_takes_over() -> None:
    """NVIDIA's drop-in of before made its handler the default; the root file has crun."""
    crun = f'[{CRI2}.containerd.runtimes.crun]\nruntime_type = "{RUNC}"\n'
    files: Files = {
        ROOT: f'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n[{CRI2}.containerd]\n'
        f'default_runtime_name = "crun"\n{crun}'.encode(),
        DROP_IN: EKS.encode(),
    }
    before = effective(NEW, files)
    written = CONTAINERD.patched(NEW, files, before, RELEASE)
    assert section(effective(NEW, {**files, **written}))["default_runtime_name"] == "crun"


def test_what_the_heir_says_of_itself_is_not_ours() -> None:
    before, after = views(OLD, EKS + RUNC_TABLE, RELEASE)
    assert containerd.foreign(before, after, RELEASE) == {}
    options = table(after, "runc")["options"]
    assert isinstance(options, dict)
    options["SystemdCgroup"] = False
    assert [path[-1] for path in containerd.foreign(before, after, RELEASE)] == ["SystemdCgroup"]


def test_options_are_known_in_any_case_of_their_letters() -> None:
    """kubespray writes systemdCgroup and binaryName."""
    lower = f'version = 2\n[{CRI2}.containerd.runtimes.runc]\nruntime_type = "{RUNC}"\n'
    lower += f'[{CRI2}.containerd.runtimes.runc.options]\nsystemdCgroup = true\nbinaryName = "/opt/runc"\n'
    for where in (OLD, NEW):
        options = table(views(where, lower)[1], "nvidia")["options"]
        assert options == {"BinaryName": "/t/nvidia-container-runtime", "SystemdCgroup": True}
    assert containerd.low_level_runtimes(tomllib.loads(lower)) == ("/opt/runc",)


def test_a_default_runtime_table_goes_where_our_handler_is_to_be_the_default() -> None:
    """Before 2.0 such a table counts instead of the name (minikube has one)."""
    root = f'version = 2\n{RUNC_TABLE}[{CRI2}.containerd.default_runtime]\nruntime_type = "{RUNC}"\n'
    wanted = replace(WANTED, default="nvidia")
    before, after = views(OLD, root, wanted)
    assert "default_runtime" not in section(after)
    assert containerd.foreign(before, after, wanted) == {}
    before, after = views(OLD, root)
    assert section(after)["default_runtime"] == {"runtime_type": RUNC}
    assert containerd.unservable(after) == ""


def test_a_default_that_no_runtime_has_is_refused_before_anything_is_written() -> None:
    many = "".join(f'[{CRI2}.containerd.runtimes.r{number}]\nruntime_type = "x"\n' for number in range(400))
    before, after = views(OLD, f"version = 2\n{many}")
    with pytest.raises(Unsupported, match="could not serve pods") as caught:
        check_servable(containerd, OLD, before, after)
    assert caught.value.details[0].startswith("its default runtime is runc, and its runtimes are: nvidia, ")
    assert "without this change too" in caught.value.details[1]
    before, after = views(OLD, f"version = 2\n{many}", replace(WANTED, default="nvidia"))
    check_servable(containerd, OLD, before, after)  # that one mends it


def test_dockers_default_runtime_is_one_that_it_knows() -> None:
    assert docker.unservable({}) == ""
    assert docker.unservable({"default-runtime": "io.containerd.kata.v2"}) == ""
    assert docker.unservable({"default-runtime": "crun", "runtimes": {"crun": {"path": "crun"}}}) == ""
    assert docker.unservable({"default-runtime": "crun"}) == (
        "its default runtime is crun, and its runtimes are: runc"
    )


def test_dockers_handler_that_is_there_keeps_its_arguments() -> None:
    root = b'{"runtimes": {"nvidia": {"path": "/usr/bin/x", "runtimeArgs": ["--debug"]}}}'
    where = daemon("docker")
    written = DOCKER.patched(where, {where.config: root}, {}, WANTED)[where.config]
    runtimes = effective(where, {where.config: written})["runtimes"]
    assert isinstance(runtimes, dict)
    assert runtimes["nvidia"] == {"path": "/t/nvidia-container-runtime", "runtimeArgs": ["--debug"]}
    assert runtimes["nvidia-cdi"] == {"path": "/t/nvidia-container-runtime.cdi", "args": []}
