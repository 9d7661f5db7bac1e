"""`driverctl doctor` on whole nodes: one that runs, and copies of files of ones that did."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from driverctl import cli
from driverforge_core.errors import CommandFailed, NotPermitted, UsageError
from driverforge_host.ports import Host
from driverforge_toolkit.app.configure_runtime import apply_runtime
from driverforge_toolkit.doctor import gather, gather_runtime
from driverforge_toolkit.doctor.rules import examine, looked_at
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.find import cri
from driverforge_toolkit.runtime.model import NodePath
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem
from support.fakes.driverroot import add_device
from support.fakes.fakecontainerd import CONFIG, DROP_IN, ROOT, SOCKET, FakeContainerd
from support.fakes.fakehost import FakeNode, fake_node
from support.samples.templates import CALL, TOOLKITS

PROGRAM = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
HANDLER = f"""[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
BinaryName = "{PROGRAM}"
"""
SPEC = """cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: '0'
  containerEdits:
    deviceNodes:
    - {{path: /dev/nvidia-uvm, major: {major}, minor: 0}}
    mounts:
    - {{hostPath: /usr/lib/libcuda.so.{driver}, containerPath: /usr/lib/libcuda.so.{driver}}}
"""
RKE2 = "var/lib/rancher/rke2/agent/etc/containerd"
PLUGINS_SPEC = {
    "cdiVersion": "0.5.0",
    "kind": "k8s.device-plugin.nvidia.com/gpu",
    "devices": [{"name": "GPU-1", "containerEdits": {"env": ["A=b"]}}],
    "containerEdits": {"hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-ctk"}]},
}
DEVICES = "Character devices:\n195 nvidia\n511 nvidia-uvm\n\nBlock devices:\n"
TOOLKIT = "usr/local/nvidia/toolkit"
TOOLKIT_CONFIG = f"{TOOLKIT}/.config/nvidia-container-runtime/config.toml"


def dump(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / "dump" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "dump"


def ids(folder: Path, tmp_path: Path) -> list[str]:
    """What the rules say of a dump; the node that the doctor runs on is a fake one without anything."""
    node = fake_node(tmp_path / "here", gpu=False)
    node.places["/dump"] = folder
    found = examine(gather.of_dump(node.host, "/dump", install_dir="/usr/local/nvidia"))
    assert node.commands.calls == [], "no program is started"
    return [one.rule.id for one in found]


# what is in a dump -> what the doctor says of it
DUMPS: dict[str, tuple[dict[str, str], list[str]]] = {
    "nothing": ({}, []),
    "healthy": (
        {
            "etc/containerd/config.toml": ROOT.decode() + HANDLER,
            f"{TOOLKIT}/nvidia-container-runtime": "",
            "etc/cdi/nvidia.yaml": SPEC.format(major=511, driver="580.65.06"),
            "usr/lib/libcuda.so.580.65.06": "",
            "proc/devices": DEVICES,
            "sys/module/nvidia/version": "580.65.06\n",
        },
        [],
    ),
    "nvidia's toolkit on AKS": (
        {
            "etc/containerd/config.toml": 'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n',
            "etc/containerd/conf.d/99-nvidia.toml": "version = 4\n",
        },
        ["drop-in-version"],
    ),
    "docker-ce with a kubelet": (
        {
            "etc/containerd/config.toml": 'disabled_plugins = ["cri"]\n',
            "var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: "
            '"unix:///run/containerd/containerd.sock"\n',
        },
        ["cri-disabled"],
    ),
    "docker-ce without one": (
        {"etc/containerd/config.toml": 'disabled_plugins = ["cri"]\n', "etc/docker/daemon.json": "{}"},
        [],
    ),
    "nvidia-ctk on a bare 1.7": (
        {
            "etc/containerd/config.toml": "version = 2\n" + HANDLER,
            "var/log/syslog": 'x containerd[1]: time="t" level=info msg="starting containerd" revision=abc '
            "version=1.7.24\n",
        },
        ["runc-missing"],
    ),
    "the same on 2.1": (
        {
            "etc/containerd/config.toml": "version = 2\n" + HANDLER,
            "var/log/syslog": 'x containerd[1]: time="t" level=info msg="starting containerd" revision=abc '
            "version=2.1.4\n",
        },
        [],
    ),
    "toolkit 1.18.0": (
        {
            "etc/containerd/config.toml": ROOT.decode(),
            "etc/containerd/config.d/99-nvidia.toml": ROOT.decode() + HANDLER,
        },
        ["drop-in-not-read"],
    ),
    "k3s with a template": (
        {"var/lib/rancher/k3s/agent/etc/containerd/config.toml.tmpl": ROOT.decode() + HANDLER},
        ["template-without-base"],
    ),
    "rke2 with what NVIDIA's toolkit made its template": (
        {f"{RKE2}/config.toml{end}": TOOLKITS for end in ("", ".tmpl")},
        ["template-without-base"],
    ),
    "k3s that cannot execute its own template": (
        {
            "var/log/k3s.log": 'level=fatal msg="template: compiled_template:119:21: executing"\n',
            "var/lib/rancher/k3s/agent/etc/containerd/config.toml.tmpl": f"{CALL}\n",
        },
        ["template-error"],
    ),
    "a hook of the device plugin's that is elsewhere": (
        {
            "usr/local/bin/nvidia-cdi-hook": "",
            "var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json": json.dumps(PLUGINS_SPEC),
        },
        ["spec-paths-gone"],
    ),
    "a spec that is too new": (
        {
            "etc/containerd/config.toml": "version = 3\n",
            "etc/cdi/nvidia.yaml": SPEC.format(major=511, driver="1.2").replace("0.5.0", "1.1.0"),
            "var/log/containerd.log": 'msg="starting containerd" revision=x version=v2.1.4\n',
        },
        ["spec-version"],
    ),
    "imports and a spec that are gone": (
        {
            "etc/containerd/config.toml": 'version = 2\nimports = ["site.toml", "/elsewhere/site.toml"]\n'
            + ROOT.decode().removeprefix("version = 2\n")
            + 'base_runtime_spec = "/etc/containerd/spec.json"\n',
        },
        ["restart-doomed"],
    ),
    "a broken file": ({"etc/containerd/config.toml": "version = \n"}, ["config-broken"]),
    "a broken daemon.json": ({"etc/docker/daemon.json": "{,}"}, ["config-broken"]),
    "after a driver update and a reboot": (
        {
            "etc/cdi/nvidia.yaml": SPEC.format(major=505, driver="550.90.07"),
            "usr/lib/libcuda.so.580.65.06": "",
            "proc/devices": DEVICES,
            "sys/module/nvidia/version": "580.65.06\n",
        },
        ["spec-of-other-driver", "spec-with-wrong-major", "spec-paths-gone"],
    ),
    "toolkit removed": (
        {
            "etc/containerd/config.toml": ROOT.decode() + HANDLER,
            f"{TOOLKIT}/other": "",
            "run/nvidia/validations/toolkit-ready": "",
        },
        ["programs-missing", "stale-ready"],
    ),
    "a toolkit that took its wrapper for runc": (
        {
            f"{TOOLKIT}/nvidia-container-runtime": "",
            TOOLKIT_CONFIG: f'[nvidia-container-runtime]\nruntimes = ["{PROGRAM}", "runc"]\n',
        },
        ["wrapper-calls-itself"],
    ),
    "mode cdi, and the spec's folder is empty": (
        {TOOLKIT_CONFIG: '[nvidia-container-runtime]\nmode = "cdi"\n'},
        ["spec-missing"],
    ),
    "no runc": (
        {
            TOOLKIT_CONFIG: '[nvidia-container-runtime]\nruntimes = ["runc", "/opt/x/crun"]\n',
            "usr/bin/containerd": "",
            "opt/x/README": "",
        },
        ["low-level-missing"],
    ),
    "two runtimes": (
        {
            "etc/containerd/config.toml": ROOT.decode() + HANDLER,
            "etc/crio/crio.conf": "",
            "var/lib/kubelet/kubeadm-flags.env": (
                'KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/crio/crio.sock"\n'
            ),
        },
        ["mixed-runtimes"],
    ),
    "a rke2 node in a loop": (
        {
            "var/log/messages": "rke2[9]: containerd exited: signal: hangup\n"
            "systemd[1]: rke2-agent.service: Scheduled restart job, restart counter is at 12.\n",
            "var/log/audit/audit.log": "type=AVC msg=audit(1): avc:  denied  { map } for "
            'path="/dev/nvidiactl" scontext=container_t\n',
        },
        ["restart-loop", "sighup-death", "selinux-denials"],
    ),
    "killed with a restore armed": (
        {
            "var/lib/driverforge/restore/17-ab/armed": "",
            "var/lib/driverforge/restore/17-ab/restore.sh": "\tif alive 41 7 && [ x ]; then\n",
        },
        ["restore-pending"],
    ),
    "the restore's owner runs": (
        {
            "var/lib/driverforge/restore/17-ab/armed": "",
            "var/lib/driverforge/restore/17-ab/restore.sh": '\tif alive 41 7 && [ "$(uptime)" -lt 1 ]; '
            "then\n",
            "proc/41/stat": f"41 (driverctl) S {' '.join(['0'] * 18)} 7 0\n",
        },
        [],
    ),
    "the restore's owner ran before a reboot, and another process has its numbers": (
        {
            "var/lib/driverforge/restore/17-ab/armed": "",
            "var/lib/driverforge/restore/17-ab/restore.sh": '\tif alive 41 7 && [ "$(uptime)" -lt 1 ]; '
            "then\n",
            "proc/41/stat": f"41 (sshd) S {' '.join(['0'] * 18)} 7 0\n",
            "proc/sys/kernel/random/boot_id": "of today\n",
        },
        ["restore-pending"],
    ),
    "a damaged journal": ({"var/lib/driverforge/journal/x.json": "{"}, ["journal-unfinished"]),
}


@pytest.mark.parametrize("name", DUMPS)
def test_a_dump(name: str, tmp_path: Path) -> None:
    files, wanted = DUMPS[name]
    folder = dump(tmp_path, {"README": "", **files})
    assert ids(folder, tmp_path) == wanted


def test_links_of_a_dump_stay_in_it(tmp_path: Path) -> None:
    folder = dump(
        tmp_path, {"run/cdi/nvidia.yaml": SPEC.format(major=505, driver="1.2"), "proc/devices": DEVICES}
    )
    (folder / "var").mkdir()
    (folder / "var/run").symlink_to("/run")
    assert ids(folder, tmp_path) == ["spec-with-wrong-major"]


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    made = fake_node(tmp_path, gpu=False)
    made.files.write_atomic("/proc/devices", DEVICES.encode())
    return made


def examined(node: FakeNode, daemon: FakeContainerd) -> list[str]:
    return [
        one.rule.id for one in examine(gather.of_node(node.host, daemon, install_dir="/usr/local/nvidia"))
    ]


def applied(node: FakeNode, drop_in: str = "") -> FakeContainerd:
    daemon = FakeContainerd(node=node)
    request = RuntimeRequest(wanted=wanted_handlers(), restart_command="restart", drop_in=NodePath(drop_in))
    for handler in request.wanted.handlers:
        node.host.node.make_dirs("/usr/local/nvidia/toolkit")
        node.host.node.write_atomic(handler.binary, b"")
    apply_runtime(RuntimeSystem(host=node.host, sockets=daemon, request=request))
    return daemon


def test_a_node_that_we_configured_is_healthy(node: FakeNode) -> None:
    assert examined(node, applied(node)) == []


def test_an_import_that_is_no_file_is_left_out(node: FakeNode) -> None:
    daemon = applied(node)
    node.host.node.make_dirs("/etc/containerd/conf.d/folder.toml")
    node.host.node.symlink("/nowhere", "/etc/containerd/conf.d/link.toml")
    assert examined(node, daemon) == []


def test_a_node_whose_file_was_rewritten(node: FakeNode) -> None:
    daemon = applied(node)
    node.host.node.write_atomic(CONFIG, ROOT)
    assert examined(node, daemon) == ["drop-in-not-read", "config-overwritten"]


@pytest.mark.parametrize("place", ["/etc/containerd/conf.d/99-nvidia.last", "/etc/site/nvidia.toml"])
def test_a_drop_in_with_another_name_is_known_by_the_journal(node: FakeNode, place: str) -> None:
    daemon = applied(node, drop_in=place)
    node.host.node.write_atomic(CONFIG, ROOT)
    assert examined(node, daemon) == ["drop-in-not-read", "config-overwritten"]
    daemon.down = True
    assert examined(node, daemon) == ["changed-runtime-down", "drop-in-not-read", "config-overwritten"]


def test_a_changed_runtime_at_a_socket_of_its_own_is_found_running(node: FakeNode) -> None:
    daemon = applied(node)
    (entry,) = journal.entries(node.host)
    journal.write_entry(node.host, replace(entry, socket=NodePath("/run/own.sock")))
    node.host.node.rename(SOCKET, "/run/own.sock")
    assert examined(node, daemon) == []
    daemon.down = True
    assert examined(node, daemon) == ["changed-runtime-down"]


def test_a_broken_file_is_not_taken_for_one_without_handlers(node: FakeNode) -> None:
    daemon = applied(node)
    node.host.node.write_atomic(CONFIG, b"version = [\n")
    assert examined(node, daemon) == ["config-broken"]


def test_a_runtime_is_listed_once_with_its_own_drop_in(node: FakeNode) -> None:
    daemon = applied(node)
    (entry,) = journal.entries(node.host)
    others = [replace(entry, config=NodePath("/etc/a.toml"), drop_in=NodePath("/x/y.toml"))]
    node.host.node.make_dirs("/x")
    node.host.node.write_atomic("/x/y.toml", b"[")
    seen = gather_runtime.of_node(node.host, daemon, [*others, entry])
    assert [runtime.config for runtime in seen] == [CONFIG, "/etc/a.toml"]
    assert (seen[0].broken, seen[0].loose) == ((), {})


def test_what_is_no_toml_in_a_folder_for_drop_ins_is_not_read(node: FakeNode) -> None:
    daemon = applied(node)
    node.host.node.write_atomic("/etc/containerd/conf.d/README", b"[no TOML")
    assert examined(node, daemon) == []


def test_a_runtime_that_lists_no_handlers_is_believed(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As CRI-O before 1.30 may."""
    daemon = applied(node)
    silent = cri.RuntimeStatus(pid=7, name="x", version="1", handlers={}, lists=False)
    monkeypatch.setattr(gather_runtime.selection, "status_of", lambda *_: silent)
    assert examined(node, daemon) == []


class Picky(FakeContainerd):
    """It does not come up with a drop-in of ours."""

    def restart(self) -> None:
        super().restart()
        self.down = self.node.host.node.exists(DROP_IN)


def test_a_change_that_the_runtime_refused_is_told_with_its_words_and_the_way_on(node: FakeNode) -> None:
    daemon = Picky(node=node)
    request = RuntimeRequest(wanted=wanted_handlers(), restart_command="restart", patience=1.0)
    with pytest.raises(CommandFailed):
        apply_runtime(RuntimeSystem(host=node.host, sockets=daemon, request=request))
    (problem,) = examine(gather.of_node(node.host, daemon, install_dir="/usr/local/nvidia"))
    assert problem.rule.id == "change-refused"
    assert any("nothing answers at" in line for line in problem.diagnosis.evidence)
    assert "driverctl runtime apply --force" in problem.diagnosis.command


def test_a_node_whose_daemon_was_not_restarted(node: FakeNode) -> None:
    daemon = applied(node)
    node.host.node.write_atomic(CONFIG, ROOT)
    daemon.restart()
    node.host.node.write_atomic(CONFIG, f'imports = ["{DROP_IN}"]\n'.encode() + ROOT)
    assert examined(node, daemon) == ["not-in-force"]


def test_a_node_whose_daemon_is_down_is_judged_by_its_files(node: FakeNode) -> None:
    daemon = FakeContainerd(node=node)
    daemon.down = True
    node.host.node.make_dirs("/etc/containerd/conf.d")
    node.host.node.write_atomic(CONFIG, b'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n')
    node.host.node.write_atomic(DROP_IN, b"version = 4\n")
    assert examined(node, daemon) == ["drop-in-version"]


def test_links_of_devices_that_systemd_needs(node: FakeNode) -> None:
    daemon = FakeContainerd(node=node)
    cgroup = b'[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]\nSystemdCgroup = true\n'
    node.host.node.write_atomic(CONFIG, ROOT + cgroup)
    for path in ("/dev/nvidia0", "/run/nvidia/driver/dev/nvidiactl"):
        add_device(node, f"/proc/1/root{path}", 195, 0 if path.endswith("0") else 255)
    assert examined(node, daemon) == ["links-missing"]
    node.host.node.make_dirs("/dev/char")
    for minor, target in ((0, "../nvidia0"), (255, "/run/nvidia/driver/dev/nvidiactl")):
        node.host.node.symlink(target, f"/dev/char/195:{minor}")
    assert examined(node, daemon) == []


def test_a_change_that_was_killed_and_one_under_way(node: FakeNode) -> None:
    daemon = applied(node)
    host = node.host
    (entry,) = journal.entries(host)
    journal.write_entry(host, replace(entry, state="prepared"))
    assert examined(node, daemon) == ["journal-unfinished"]
    lock = f"{journal.FOLDER}/lock"
    with host.node.lock(lock, text="1\n"):
        stamp = host.node.stamp(lock)
        assert stamp is not None
        host.node.write_atomic(
            "/proc/locks", f"1: FLOCK  ADVISORY  WRITE 41 08:01:{stamp[1]} 0 EOF\n".encode()
        )
        assert examined(node, daemon) == []


def test_nothing_is_changed_by_a_look(node: FakeNode) -> None:
    daemon = applied(node)
    top = Path(node.host.node.real("/"))
    before = {path: path.lstat().st_mtime_ns for path in top.rglob("*") if path.is_file()}
    examined(node, daemon)
    assert {path: path.lstat().st_mtime_ns for path in top.rglob("*") if path.is_file()} == before


def command(node: FakeNode, *words: str) -> int:
    def host() -> Host:
        return node.host

    return cli.run(["doctor", *words], host)


def test_the_command(node: FakeNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node.places["/dump"] = dump(tmp_path, {"etc/containerd/config.toml": "version = \n"})
    assert command(node, "--root", "/dump", "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert [one["id"] for one in document["found"]] == ["config-broken"]
    assert any(CONFIG in line for line in document["found"][0]["evidence"])
    (tmp_path / "dump/etc/containerd/config.toml").write_text(ROOT.decode())
    assert command(node, "--root", "/dump") == 0
    assert capsys.readouterr().out.startswith("nothing found: none of ")


def test_without_root_nothing_is_judged(node: FakeNode, tmp_path: Path) -> None:
    """An unreadable journal is not a damaged one.

    A socket that may not be opened is no runtime that is down.
    """
    node.places["/dump"] = dump(tmp_path, {"README": ""})
    node.processes.user = 1000
    with pytest.raises(NotPermitted, match="looking at a node needs root"):
        command(node)
    assert command(node, "--root", "/dump") == 0


def test_the_toolkit_is_looked_for_where_the_operator_installed_it(
    node: FakeNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = "home/kubernetes/bin/nvidia"
    config = f'[nvidia-container-runtime]\nruntimes = ["/{folder}/toolkit/nvidia-container-runtime"]\n'
    node.places["/dump"] = dump(
        tmp_path, {f"{folder}/toolkit/.config/nvidia-container-runtime/config.toml": config}
    )
    assert command(node, "--root", "/dump") == 0
    node.environ["ROOT"] = f"/{folder}"
    assert command(node, "--root", "/dump") == 1
    assert "wrapper-calls-itself" in capsys.readouterr().out


def test_a_log_from_elsewhere(node: FakeNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node.places["/dump"] = dump(tmp_path, {"README": ""})
    node.files.write_atomic(
        "/journal.txt", b"containerd.service: Main process exited, code=killed, status=1/HUP\n"
    )
    assert command(node, "--root", "/dump", "--log", "/journal.txt") == 1
    assert "sighup-death" in capsys.readouterr().out


def test_files_that_are_not_there_are_told_at_once(node: FakeNode) -> None:
    with pytest.raises(UsageError) as caught:
        command(node, "--root", "/nowhere", "--log", "/nothing")
    assert caught.value.details == ("/nowhere", "/nothing")


def told(folder: Path, tmp_path: Path) -> tuple[dict[str, str], tuple[str, ...]]:
    """The commands for a dump, by rule, and what there was to look at."""
    node = fake_node(tmp_path / "here", gpu=False)
    node.places["/dump"] = folder
    evidence = gather.of_dump(node.host, "/dump", install_dir="/usr/local/nvidia")
    return {one.rule.id: one.diagnosis.command for one in examine(evidence)}, looked_at(evidence)


@pytest.mark.parametrize(("server", "unit"), [(True, "rke2-server"), (False, "rke2-agent")])
def test_the_unit_of_rke2_is_that_of_a_server_or_of_an_agent(
    tmp_path: Path, *, server: bool, unit: str
) -> None:
    files = {f"{RKE2}/config.toml.tmpl": TOOLKITS} | (
        {"var/lib/rancher/rke2/server/token": ""} if server else {}
    )
    commands, _ = told(dump(tmp_path, files), tmp_path)
    assert f" && systemctl restart {unit} && " in commands["template-without-base"]


def test_microk8s_is_looked_at(tmp_path: Path) -> None:
    path = "var/snap/microk8s/current/args/containerd.toml"
    assert told(dump(tmp_path, {path: ROOT.decode()}), tmp_path)[1][0] == f"containerd (/{path})"


def test_a_hook_that_is_elsewhere_is_the_device_plugins_to_be_told(tmp_path: Path) -> None:
    commands, _ = told(dump(tmp_path, DUMPS["a hook of the device plugin's that is elsewhere"][0]), tmp_path)
    assert "NVIDIA_CDI_HOOK_PATH=/usr/local/bin/nvidia-cdi-hook" in commands["spec-paths-gone"]
    assert "generate" not in commands["spec-paths-gone"]
