"""Commands that the doctor and refusals print for containerd, run on real daemons that they shall mend."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from driverctl import cli
from driverforge_core.errors import Unavailable, Unsupported
from driverforge_host.adapters.real import real_host
from driverforge_host.adapters.sockets import UnixSockets
from driverforge_toolkit.cdi import specfiles
from driverforge_toolkit.doctor import gather_runtime
from driverforge_toolkit.doctor.evidence import NodeEvidence, ToolkitEvidence
from driverforge_toolkit.doctor.rules import examine
from driverforge_toolkit.runtime.find.daemon import daemon_behind
from driverforge_toolkit.runtime.model import WantedHandlers
from driverforge_toolkit.runtime.request import RuntimeRequest
from support.advised import cures
from support.machines import advice, containerd, cripods
from support.machines.runtimenode import PROGRAMS, RuntimeNode, open_node
from support.process import missing, run, until
from support.skipping import provided

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="containerd needs root"),
    pytest.mark.skipif(
        bool(missing("apt-get", "dpkg-deb", "unshare", "setsid")),
        reason="containerd is unpacked from Debian's package",
    ),
]

SELDOM = pytest.mark.full(reason="more of the same")
CRI = 'plugins."io.containerd.grpc.v1.cri"'
SPIN = f"""[{CRI}.containerd.runtimes.spin]
runtime_type = "io.containerd.spin.v2"
[{CRI}.containerd.runtimes.spin.options]
BinaryName = "/bin/containerd-spin-shim-v2"
"""


def root(node: RuntimeNode) -> str:
    """As in containerd#9968."""
    return f"""version = 2
imports = ["{node.etc}/config.d/*.toml"]

[{CRI}]
sandbox_image = "registry.test/pause:3.10"
[{CRI}.containerd]
discard_unpacked_layers = true
[{CRI}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{CRI}.containerd.runtimes.runc.options]
SystemdCgroup = true
[{CRI}.cni]
bin_dir = "/opt/site/bin"
"""


KATA = """version = 3
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.kata]
runtime_type = "io.containerd.kata.v2"
"""
VERSION_1 = """# of 2019
disabled_plugins = ["restart"]
[plugins.cri]
  sandbox_image = "registry.test/pause:3.10"
  [plugins."cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
"""


def told(
    node: RuntimeNode, *, kubelet: bool = False, specs: tuple[specfiles.SpecFile, ...] = ()
) -> dict[str, str]:
    """What the doctor says of the node's daemon: rule → command."""
    host = real_host()
    request = RuntimeRequest(wanted=WantedHandlers(handlers=()))
    daemon = daemon_behind(host, UnixSockets(), node.socket, request)
    seen, _ = gather_runtime.from_files(host, daemon)
    evidence = NodeEvidence(
        live=True, toolkit=ToolkitEvidence(folder="/t"), runtimes=(seen,), kubelet=kubelet, specs=specs
    )
    return {found.rule.id: found.diagnosis.command for found in examine(evidence)}


def follow(node: RuntimeNode, command: str) -> None:
    followed = advice.follow(command, node)
    assert followed.status == 0, followed.stderr


@cures("runc-missing")
@pytest.mark.parametrize("suite", [pytest.param("bookworm", marks=SELDOM), "trixie"])
def test_runc_that_an_import_hides_comes_back_with_all_that_is_hidden(suite: str) -> None:
    with provided(lambda: open_node("containerd", suite)) as node:
        node.start(root(node))
        before = node.effective()["plugins"]["io.containerd.grpc.v1.cri"]
        node.write(None, {"config.d/spin.toml": SPIN})
        with pytest.raises(Unsupported, match="could not serve pods") as caught:
            cli.run(node.words("plan"), real_host)
        run(node.home / "restart")
        until(node.cannot_serve, "containerd without its CRI plugin", timeout=60, log=node.log)
        command = told(node)["runc-missing"]
        assert command.partition(" && ")[0] == caught.value.resolution.partition(", or name")[0]
        follow(node, command)
        assert node.handlers() == {"runc": "", "spin": "/bin/containerd-spin-shim-v2"}
        assert told(node) == {}
        after = node.effective()["plugins"]["io.containerd.grpc.v1.cri"]
        del after["containerd"]["runtimes"]["spin"]
        assert after == before


def test_a_runc_that_nobody_states_gets_the_cgroup_driver_of_the_others() -> None:
    with provided(lambda: open_node("containerd", "trixie")) as node:
        node.start("version = 2\n")
        nvidia = SPIN.replace("spin", "nvidia").replace(".nvidia.v2", ".runc.v2")
        node.write(f"version = 2\n{nvidia}SystemdCgroup = true\n")
        run(node.home / "restart")
        until(node.cannot_serve, "containerd without its CRI plugin", timeout=60, log=node.log)
        follow(node, told(node)["runc-missing"])
        tables = node.effective()["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]["runtimes"]
        assert tables["runc"]["options"]["SystemdCgroup"] is True
        assert Path(node.config).read_text().startswith(f"version = 2\n{nvidia}")


@cures("drop-in-version")
@pytest.mark.parametrize("suite", [pytest.param("bookworm", marks=SELDOM), "trixie", "sid"])
def test_a_drop_in_of_a_higher_version_keeps_what_it_sets_for_others(suite: str) -> None:
    """kata's, beside a root file of version 2."""
    with provided(lambda: open_node("containerd", suite)) as node:
        node.start(root(node))
        before = node.effective()
        node.write(None, {"config.d/kata.toml": KATA})
        follow(node, told(node)["drop-in-version"])
        assert node.handlers() == {"runc": "", "kata": ""}
        assert told(node) == {}
        after = node.effective()
        section = after["plugins"].get("io.containerd.grpc.v1.cri") or {}
        section = after["plugins"].get("io.containerd.cri.v1.runtime") or section
        del section["containerd"]["runtimes"]["kata"]
        assert after["plugins"] == before["plugins"]


@pytest.mark.parametrize("name", [pytest.param("*.toml", marks=SELDOM), "nvidia.toml"])
def test_a_drop_in_of_nvidias_alone_is_written_anew(name: str) -> None:
    """Also where the root file imports it by its name: containerd does not start without it."""
    with provided(lambda: open_node("containerd", "sid")) as node:
        node.write(None, {"config.d/nvidia.toml": ""})
        node.start(root(node).replace("*.toml", name))
        text = KATA.replace("kata", "nvidia").replace("nvidia.v2", "runc.v2").replace("= 3", "= 4")
        node.write(None, {"config.d/nvidia.toml": text})
        follow(node, told(node)["drop-in-version"])
        assert node.handlers() == {"runc": "", **PROGRAMS}
        assert told(node) == {}


@cures("config-version-1")
@pytest.mark.parametrize("suite", [pytest.param("bookworm", marks=SELDOM), "trixie"])
def test_a_file_of_version_1_becomes_one_of_version_2(suite: str) -> None:
    with provided(lambda: open_node("containerd", suite)) as node:
        node.start(VERSION_1)
        before = node.effective()["plugins"]
        follow(node, told(node, kubelet=True)["config-version-1"])
        assert node.handlers() == {"runc": "", **PROGRAMS}
        assert told(node, kubelet=True) == {}
        node.driverctl("revert")
        after = node.effective()
        assert after["disabled_plugins"] == ["io.containerd.internal.v1.restart"]
        assert after["plugins"] == before


@cures("cri-disabled")
@pytest.mark.parametrize(
    ("suite", "disabled"),
    [
        pytest.param("bookworm", '["io.containerd.grpc.v1.cri"]', marks=SELDOM),
        ("trixie", "[\n  'io.containerd.grpc.v1.cri',\n  'io.containerd.snapshotter.v1.zfs',\n]"),
    ],
)
def test_a_disabled_plugin_comes_back_and_its_sections_stay(suite: str, disabled: str) -> None:
    with provided(lambda: open_node("containerd", suite)) as node:
        node.start(root(node))
        before = node.effective()["plugins"]["io.containerd.grpc.v1.cri"]
        node.write(f"disabled_plugins = {disabled}\n{root(node)}")
        run(node.home / "restart")
        until(node.cannot_serve, "containerd without its CRI plugin", timeout=60, log=node.log)
        follow(node, told(node, kubelet=True)["cri-disabled"])
        assert node.handlers() == {"runc": "", **PROGRAMS}
        assert told(node, kubelet=True) == {}
        node.driverctl("revert")
        assert node.effective()["plugins"]["io.containerd.grpc.v1.cri"] == before


@cures("default-unknown")
@pytest.mark.parametrize("name", ["'kata'", pytest.param('"kata"', marks=SELDOM)])
def test_a_default_that_nobody_has_becomes_runc(name: str) -> None:
    with provided(lambda: open_node("containerd", "trixie")) as node:
        node.start(root(node))
        before = node.effective()["plugins"]
        default = f"[{CRI}.containerd]\n"
        node.write(root(node).replace(default, f"{default}default_runtime_name = {name}\n"))
        run(node.home / "restart")
        until(node.cannot_serve, "containerd without its CRI plugin", timeout=60, log=node.log)
        follow(node, told(node)["default-unknown"])
        assert node.handlers() == {"runc": ""}
        assert told(node) == {}
        assert node.effective()["plugins"] == before


@cures("handler-without-type")
def test_a_handler_without_a_type_gets_one() -> None:
    section = 'plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia'
    with provided(lambda: open_node("containerd", "sid")) as node:
        node.start(f"version = 3\n[{section}.options]\nBinaryName = '/usr/bin/nvidia-container-runtime'\n")
        follow(node, told(node)["handler-without-type"])
        assert node.handlers() == {"runc": "", **PROGRAMS}
        assert told(node) == {}


SPEC = """{
  "cdiVersion": "1.0.0", "kind": "nvidia.com/gpu",
  "devices": [{"name": "a", "containerEdits": {"env": ["CDI=reached"]}}]
}
"""


@cures("spec-version")
def test_a_spec_with_a_version_that_is_not_read_is_read_then() -> None:
    """1.7.24 reads versions up to 0.7.0, Debian's up to 0.8.0."""
    with provided(lambda: open_node("containerd", "trixie")) as node:
        programs = tuple(Path(program).name for program in PROGRAMS.values())
        cripods.fake_toolkit(
            node.home / "toolkit", containerd.programs() / "usr/sbin/runc", node.home / "calls", programs
        )
        node.options += ["--toolkit-dir", str(node.home / "toolkit")]
        image = "registry.test/pause:3.10"
        node.write(None, {"cdi/nvidia.json": SPEC})
        switch = f'[{CRI}]\nenable_cdi = true\ncdi_spec_dirs = ["{node.etc}/cdi"]\n'
        node.start(root(node).replace(f"[{CRI}]\n", switch).replace("SystemdCgroup = true\n", ""))
        node.driverctl("apply")
        ctr = [node.prefix / "usr/bin/ctr", "--address", node.socket, "--namespace", "k8s.io"]
        run(*ctr, "images", "import", "--index-name", image, cripods.image_archive(node.home / "image.tar"))
        pods, command = cripods.Pods(node.socket, image), ["/bin/busybox", "sh", "-c", "exit ${#CDI}"]
        with pytest.raises(Unavailable) as caught:
            pods.run("nvidia", command, device="nvidia.com/gpu=a")
        assert "unresolvable CDI devices nvidia.com/gpu=a" in caught.value.render()
        specs = specfiles.load(real_host().node, [f"{node.etc}/cdi"])
        follow(node, told(node, specs=specs)["spec-version"])
        assert pods.run("nvidia", command, device="nvidia.com/gpu=a") == len("reached")
        assert told(node, specs=specfiles.load(real_host().node, [f"{node.etc}/cdi"])) == {}


@pytest.mark.parametrize("suite", ["bookworm", pytest.param("sid", marks=SELDOM)])
def test_the_file_of_dockers_package_serves_a_kubelet_then(suite: str) -> None:
    text = '#   Copyright\n\ndisabled_plugins = ["cri"]\n\n#root = "/var/lib/containerd"\n'
    with provided(lambda: open_node("containerd", suite)) as node:
        node.start(text.replace('"cri"', ""))
        node.write(text)
        run(node.home / "restart")
        until(node.cannot_serve, "containerd without its CRI plugin", timeout=60, log=node.log)
        follow(node, told(node, kubelet=True)["cri-disabled"])
        assert node.handlers() == {"runc": "", **PROGRAMS}
        assert told(node, kubelet=True) == {}
