"""Every command that the doctor prints is run on the state that it is for, and the problem is gone then.

Here are those that files, a fake daemon and our own commands decide; those that a real containerd decides are
in `tests/engine/test_advice_runtime.py` and `test_runtime_distributions.py`.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from driverctl import cli
from driverforge_toolkit.app.configure_runtime import RuntimeAction, apply_runtime, change_runtime
from driverforge_toolkit.doctor import gather
from driverforge_toolkit.doctor.rules import RULES, examine
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.model import NodePath
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem
from support.advised import cured, cures, pieces
from support.fakes.driverroot import DEVICES, ROOT, add_device, bare_node, write_tree
from support.fakes.fakecontainerd import CONFIG, DROP_IN, SOCKET, FakeContainerd
from support.fakes.fakecontainerd import ROOT as ROOT_FILE
from support.fakes.fakehost import NODE, FakeNode
from support.samples.toolkitsource import write_source

BASE = "/usr/local/nvidia"
CONFIG_TOML = f"{BASE}/toolkit/.config/nvidia-container-runtime/config.toml"
FIXTURE = Path(__file__).parents[1] / "cases/toolkit/golden-cdi/fixture-tree.txt"
# what only a person can do: nothing of it is run
TOLD = {"config-broken", "change-refused", "folder-read-only", "restart-doomed", "spec-folder"}
# a log keeps its lines: what is printed is run, and the rule goes on speaking
LOGGED = {"restart-loop", "sighup-death", "selinux-denials"}
# absolute paths of the node, in what a shell is given
OF_NODE = re.compile(r"(?<![\w./])/(etc|run|var|root|usr|dev)/")


@dataclass
class Patient:
    """A node with a daemon, and a person who does what the doctor says."""

    node: FakeNode
    daemon: FakeContainerd

    def problems(self) -> dict[str, str]:
        evidence = gather.of_node(self.node.host, self.daemon, install_dir=BASE)
        return {one.rule.id: one.diagnosis.command for one in examine(evidence)}

    def cured_of(self, rule: str) -> None:
        """What the rule says is done, it says nothing then, and no other does that did not before."""
        before = self.problems()
        assert rule in before
        self.follow(before[rule])
        assert self.problems().keys() <= before.keys() - {rule}

    def follow(self, command: str) -> None:
        done = [self._run(piece) for piece in pieces(command)]
        assert done, command

    def _run(self, piece: str) -> None:
        words = shlex.split(piece)
        if words[0] == "systemctl":
            assert words[1:] in (["restart", "containerd"], ["start", "containerd.service"]), piece
            self.daemon.down = False
            self.daemon.restart()
        elif words[:2] == ["driverctl", "runtime"]:
            self.runtime(*words[2:])
        elif words[0] == "driverctl":
            assert cli.run(words[1:], lambda: self.node.host) == 0, piece
        else:
            files = self.node.host.node
            files.make_dirs("/root")
            on_disk = OF_NODE.sub(lambda found: f"{files.real('/' + found[1])}/", piece)
            subprocess.run(["sh", "-ec", on_disk], check=True)

    def runtime(self, action: str, *words: str) -> None:
        """`driverctl runtime`, with the fake daemon behind its socket."""
        parsed = dict(zip(words[::2], words[1::2], strict=False))
        request = RuntimeRequest(
            wanted=wanted_handlers(),
            restart_command="restart",
            socket=NodePath(parsed.get("--socket", "")),
        )
        system = RuntimeSystem(host=self.node.host, sockets=self.daemon, request=request)
        if action == "apply":
            apply_runtime(system)
        else:
            assert action == "revert"
            change_runtime(system, RuntimeAction.STRIP if words else RuntimeAction.REVERT, lambda _: None)

    def write(self, path: str, text: str) -> None:
        files = self.node.host.node
        files.make_dirs(path.rpartition("/")[0])
        files.write_atomic(path, text.encode())

    def read(self, path: str) -> str:
        return self.node.host.node.read_text(path)


@pytest.fixture
def patient(tmp_path: Path) -> Patient:
    node = bare_node(tmp_path)
    # the driver's root is a folder of the node, as a driver container makes it
    node.host.node.make_dirs(ROOT)
    node.places[ROOT] = Path(node.host.node.real(ROOT))
    write_tree(node, FIXTURE.read_text(), base=f"{NODE}{ROOT}")
    node.environ["NVIDIA_CTK_DRIVER_ROOT"] = ROOT
    write_source(Path(node.files.real("/artifacts/deb")))
    made = Patient(node=node, daemon=FakeContainerd(node=node))
    made.write("/proc/devices", DEVICES)
    node.files.write_atomic("/proc/devices", DEVICES.encode())
    made.write("/usr/bin/runc", "")
    made.write("/usr/bin/nvidia-cdi-hook", "")
    return made


@pytest.fixture
def configured(patient: Patient) -> Patient:
    patient._run("driverctl toolkit install")
    patient.runtime("apply")
    assert patient.problems() == {}
    return patient


def test_every_command_of_a_rule_is_run_by_a_test() -> None:
    assert cured() | TOLD == {rule.id for rule in RULES}
    assert not cured() & TOLD
    assert cured() >= LOGGED


@cures("low-level-missing")
def test_a_low_level_runtime_at_a_path_of_its_own_is_named(patient: Patient) -> None:
    runc = 'plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options'
    patient.write(CONFIG, f'{ROOT_FILE.decode()}[{runc}]\nBinaryName = "/opt/runc"\n')
    patient.write("/opt/runc", "")
    patient._run("driverctl toolkit install")
    patient.node.host.node.remove("/usr/bin/runc")
    patient.cured_of("low-level-missing")
    assert '"/opt/runc"' in patient.read(CONFIG_TOML)


@cures("wrapper-calls-itself")
def test_a_wrapper_that_calls_itself_gets_runc(configured: Patient) -> None:
    text = configured.read(CONFIG_TOML)
    own = f"{BASE}/toolkit/nvidia-container-runtime"
    configured.write(CONFIG_TOML, re.sub(r"runtimes = \[.*\]", f'runtimes = ["{own}"]', text))
    configured.cured_of("wrapper-calls-itself")
    assert configured.read(CONFIG_TOML) == text


@cures("programs-missing")
def test_programs_that_are_gone_come_back(configured: Patient) -> None:
    configured.node.host.node.remove_tree(BASE)
    configured.cured_of("programs-missing")


@cures("stale-ready")
def test_a_file_that_lies_goes(patient: Patient) -> None:
    patient.write("/run/nvidia/validations/toolkit-ready", "")
    patient.cured_of("stale-ready")


@cures("changed-runtime-down")
def test_a_runtime_that_is_down_is_started(configured: Patient) -> None:
    (entry,) = journal.entries(configured.node.host)
    unit = replace(entry.supervisor, unit="containerd.service")
    journal.write_entry(configured.node.host, replace(entry, supervisor=unit))
    configured.daemon.down = True
    configured.cured_of("changed-runtime-down")


@cures("not-in-force")
def test_files_that_nobody_has_read_are_read(configured: Patient) -> None:
    with_ours = configured.read(CONFIG)
    configured.write(CONFIG, ROOT_FILE.decode())
    configured.daemon.restart()
    configured.write(CONFIG, with_ours)
    configured.cured_of("not-in-force")


@cures("drop-in-not-read", "config-overwritten")
@pytest.mark.parametrize("rule", ["drop-in-not-read", "config-overwritten"])
def test_a_file_that_another_tool_wrote_anew_gets_its_import_back(configured: Patient, rule: str) -> None:
    configured.write(CONFIG, ROOT_FILE.decode())
    before = configured.problems()
    assert set(before) == {"drop-in-not-read", "config-overwritten"}
    configured.follow(before[rule])
    assert configured.problems() == {}


@cures("handler-asked")
@pytest.mark.parametrize("stated", [True, False])
def test_a_handler_that_was_asked_for_is_there(configured: Patient, *, stated: bool) -> None:
    refused = 'no runtime for "nvidia" is configured'
    configured.write("/var/log/messages", f"{refused}\n")
    assert configured.problems() == {}, "the process has it"
    if not stated:
        configured.runtime("revert")
    configured.daemon.down = True
    command = configured.problems()["handler-asked"]
    assert command.startswith("systemctl restart" if stated else "driverctl runtime apply")
    configured.daemon.down = stated
    configured.follow(command)
    assert configured.problems() == {}


@cures("settings-hidden")
def test_settings_that_a_drop_in_hides_are_appended_to_it(patient: Patient) -> None:
    hidden = '[plugins."io.containerd.grpc.v1.cri"]\nsandbox_image = "rancher/pause"\n'
    patient.write(CONFIG, f'imports = ["{DROP_IN}"]\n{ROOT_FILE.decode()}{hidden}')
    patient.write(DROP_IN, ROOT_FILE.decode())
    patient.cured_of("settings-hidden")
    assert hidden in patient.read(DROP_IN)


@cures("other-cgroups")
def test_a_handler_gets_the_control_groups_of_runc(patient: Patient) -> None:
    runtimes = '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes'
    patient._run("driverctl toolkit install")
    patient.write(
        CONFIG,
        f"{ROOT_FILE.decode()}{runtimes}.runc.options]\nSystemdCgroup = true\n"
        f'{runtimes}.nvidia]\nruntime_type = "io.containerd.runc.v2"\n',
    )
    patient.cured_of("other-cgroups")


@cures("journal-unfinished")
def test_a_change_that_was_killed_is_finished(configured: Patient) -> None:
    (entry,) = journal.entries(configured.node.host)
    journal.write_entry(configured.node.host, replace(entry, state="prepared"))
    configured.cured_of("journal-unfinished")


def test_a_damaged_entry_is_moved_away_and_the_handlers_are_out(configured: Patient) -> None:
    files = configured.node.host.node
    (name,) = (name for name in files.list_dir(journal.FOLDER) if name.endswith(".json"))
    configured.write(f"{journal.FOLDER}/{name}", "{")
    configured.cured_of("journal-unfinished")
    assert files.exists(f"/root/{name}")
    assert not files.exists(DROP_IN)


@cures("restore-pending")
def test_a_restore_whose_owner_was_killed_is_finished(configured: Patient) -> None:
    (entry,) = journal.entries(configured.node.host)
    journal.write_entry(configured.node.host, replace(entry, state="written", restore="17-ab"))
    configured.write("/var/lib/driverforge/restore/17-ab/armed", "")
    configured.write("/var/lib/driverforge/restore/17-ab/restore.sh", "if alive 41 7 && [ x ]; then\n")
    configured.cured_of("restore-pending")


@cures("mixed-runtimes")
def test_the_kubelets_runtime_gets_the_handlers(patient: Patient) -> None:
    patient.write(
        "/etc/docker/daemon.json", '{"runtimes": {"nvidia": {"path": "/usr/bin/nvidia-container-runtime"}}}'
    )
    patient.write("/var/lib/kubelet/config.yaml", f"containerRuntimeEndpoint: unix://{SOCKET}\n")
    patient.cured_of("mixed-runtimes")


@cures("default-unknown")
def test_dockers_default_becomes_runc(patient: Patient) -> None:
    patient.write(
        "/etc/docker/daemon.json", '{"default-runtime": "gpu", "runtimes": {"kata": {"path": "/k"}}}'
    )
    command = patient.problems()["default-unknown"]
    assert command.endswith(" && systemctl restart docker")
    patient.follow(command.partition(" && ")[0])
    assert "default-unknown" not in patient.problems()
    assert '"default-runtime": "runc"' in patient.read("/etc/docker/daemon.json")


@cures("links-missing")
def test_links_of_devices_come_back(patient: Patient) -> None:
    cgroup = '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]\nSystemdCgroup = true\n'
    patient.write(CONFIG, ROOT_FILE.decode() + cgroup)
    patient.node.host.node.make_dirs("/dev/char")
    add_device(patient.node, "/proc/1/root/dev/nvidia0", 195, 0)
    patient.cured_of("links-missing")


SPEC = "/etc/cdi/nvidia.yaml"
GOOD = f"cdi generate --output {SPEC}"


def generated(patient: Patient) -> str:
    patient._run(f"driverctl {GOOD}")
    assert patient.problems() == {}
    return patient.read(SPEC)


@cures("spec-paths-gone")
def test_a_spec_with_a_device_that_went_is_written_again(patient: Patient) -> None:
    before = generated(patient)
    patient.write(SPEC, before.replace("/dev/nvidia0", "/dev/nvidia7"))
    patient.cured_of("spec-paths-gone")
    assert patient.read(SPEC) == before


@cures("spec-of-other-driver")
def test_a_spec_of_another_driver_is_written_again(patient: Patient) -> None:
    before = generated(patient)
    version = re.findall(r"libcuda\.so\.([\d.]+\d)", before)[0]
    patient.write("/sys/module/nvidia/version", f"{version}\n")
    patient.write(SPEC, before.replace(version, "1.2.3"))
    patient.cured_of("spec-of-other-driver")
    assert patient.read(SPEC) == before


@cures("device-asked")
def test_a_device_that_was_asked_for_gets_a_spec(patient: Patient) -> None:
    patient.write("/var/log/messages", "unresolvable CDI devices nvidia.com/gpu=0\n")
    patient.cured_of("device-asked")


@cures("spec-without-devices")
def test_a_spec_from_before_the_devices_gets_them(patient: Patient) -> None:
    before = generated(patient)
    document = yaml.safe_load(before)
    for edits in (document, *document["devices"]):
        edits["containerEdits"].pop("deviceNodes", None)
        edits["containerEdits"].setdefault("env", ["A=b"])
    patient.write(SPEC, yaml.safe_dump(document))
    patient.cured_of("spec-without-devices")
    assert patient.read(SPEC) == before


@cures("spec-with-wrong-major")
def test_a_spec_of_another_boot_is_written_again(patient: Patient) -> None:
    before = generated(patient)
    patient.write(SPEC, before.replace("major: 511", "major: 236"))
    patient.cured_of("spec-with-wrong-major")
    assert patient.read(SPEC) == before


@cures("spec-unresolvable")
@pytest.mark.parametrize("twice", [False, True])
def test_a_spec_that_hides_devices_goes_and_comes_again(patient: Patient, *, twice: bool) -> None:
    before = generated(patient)
    patient.write("/etc/cdi/other.yaml" if twice else SPEC, before if twice else "devices: [")
    patient.cured_of("spec-unresolvable")
    assert patient.read(SPEC) == before


@cures("spec-missing")
def test_a_spec_that_was_never_written_is_written(configured: Patient) -> None:
    text = configured.read(CONFIG_TOML)
    configured.write(CONFIG_TOML, re.sub(r'mode = "\w+"', 'mode = "cdi"', text, count=1))
    configured.cured_of("spec-missing")


@cures("restart-loop")
def test_after_the_way_out_of_a_restart_loop_nothing_is_ours(configured: Patient) -> None:
    line = "systemd[1]: k3s-agent.service: Scheduled restart job, restart counter is at 7."
    configured.write("/var/log/messages", f"{line}\n")
    command = configured.problems()["restart-loop"]
    assert "journalctl -u k3s-agent.service -n 100" in command
    configured.follow(command)
    assert not configured.node.host.node.exists(DROP_IN)


@cures("sighup-death")
def test_our_apply_does_not_end_containerd(configured: Patient) -> None:
    line = "systemd[1]: containerd.service: Main process exited, code=killed, status=1/HUP"
    configured.write("/var/log/messages", f"{line}\n")
    starts = configured.daemon.starts
    configured.follow(configured.problems()["sighup-death"])
    assert configured.daemon.starts == starts, "it has the handlers already"


@cures("selinux-denials")
def test_the_boolean_of_container_selinux_is_set(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a program that takes what setsebool(8) takes: SELinux is not here."""
    folder = Path(patient.node.host.node.real("/")) / "mock"
    folder.mkdir()
    (folder / "setsebool").write_text(
        '#!/bin/sh\n[ $# = 3 ] && [ "$1 $3" = "-P on" ] && echo "$2" >"$0.did"\n'
    )
    (folder / "setsebool").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    patient.write(
        "/var/log/messages", 'avc:  denied  { map } for path="/dev/nvidiactl" scontext=container_t\n'
    )
    patient.follow(patient.problems()["selinux-denials"])
    assert (folder / "setsebool.did").read_text() == "container_use_devices\n"
