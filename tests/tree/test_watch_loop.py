"""A node's files rewritten under a running watch: what is told, and what is done.

Nothing is restarted that nobody allowed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from driverforge_core.errors import CommandFailed, TemporaryFailure, UsageError
from driverforge_host.gpu.roots import DriverRoots
from driverforge_toolkit.app.configure_runtime import apply_runtime
from driverforge_toolkit.app.toolkit_run import parts_of
from driverforge_toolkit.cdi import stale
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime import request as asked
from driverforge_toolkit.runtime.backends import template
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem
from driverforge_toolkit.toolkit import settings
from driverforge_toolkit.toolkit.releases import Layout
from driverforge_toolkit.watch.decide import WatchPolicy
from driverforge_toolkit.watch.look import Observer, WatchTargets
from driverforge_toolkit.watch.rounds import FOLDER, WatchActions, watch
from driverforge_toolkit.watch.window import parse
from support.fakes.driverroot import DEVICES, add_device, bare_node, write_tree
from support.fakes.driverroot import ROOT as DRIVER_ROOT
from support.fakes.fakecontainerd import CONFIG, DROP_IN, ROOT, FakeContainerd
from support.fakes.fakehost import FakeNode

SPEC = "/var/run/cdi/management.nvidia.com-gpu.yaml"
STATUS, METRICS = f"{FOLDER}/status.json", f"{FOLDER}/metrics.prom"
IN_FORCE = f'driverforge_toolkit_handler_in_force{{runtime="containerd",config="{CONFIG}",handler="nvidia"}}'
KUBESPRAY = ROOT + b"\n[metrics]\naddress = '127.0.0.1:1338'\n"
TREE = """usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06 file
usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.65.06 file
"""


class Bench:
    """A node with our change applied, and a watch of it.

    `at` maps seconds after the start to what somebody else does then.
    """

    def __init__(self, folder: Path) -> None:
        self.node = bare_node(folder)
        self.daemon = FakeContainerd(node=self.node)
        request = asked.RuntimeRequest(wanted=asked.wanted_handlers(), restart_command="restart")
        self.system = RuntimeSystem(host=self.node.host, sockets=self.daemon, request=request)
        for handler in request.wanted.handlers:
            self.write(handler.binary, b"")
        apply_runtime(self.system)
        self.regenerated: list[float] = []
        self.spec = ""
        self.seen: dict[int, tuple[dict[str, Any], str]] = {}

    def write(self, path: str, data: bytes) -> None:
        self.node.host.node.make_dirs(path.rpartition("/")[0])
        self.node.host.node.write_atomic(path, data)

    @property
    def targets(self) -> WatchTargets:
        return WatchTargets(
            system=self.system,
            layout=Layout(install_dir="/usr/local/nvidia"),
            roots=DriverRoots(driver=DRIVER_ROOT),
            spec=self.spec,
            folders=("/etc/cdi",),
        )

    def regenerate(self) -> None:
        """Writes what `cdi generate` writes, as far as the watch looks at it."""
        self.regenerated.append(self.node.clock.time)
        facts = stale.observe(self.node.host, self.targets.roots)
        self.node.files.make_dirs("/var/run/cdi")
        self.node.files.write_atomic(SPEC, "".join(f"# {line}\n" for line in stale.comments(facts)).encode())

    def run(
        self,
        policy: WatchPolicy,
        until: int,
        at: dict[int, Callable[[], object]],
        *,
        apply: Callable[[], None] | None = None,
    ) -> str:
        """Watch for `until` seconds.

        What the status and metrics files said is kept, for every second in `at` and the last.
        """
        clock, begin = self.node.clock, self.node.clock.time
        clock.stop_at = begin + until
        todo = dict(sorted(at.items()))

        def waited(now: float) -> None:
            passed = int(now - begin)
            if passed and self.node.text(STATUS):
                self.seen[passed] = (json.loads(self.node.text(STATUS))["watch"], self.node.text(METRICS))
            for second in [second for second in todo if second <= passed]:
                todo.pop(second)()

        clock.on_wait = waited
        hands = WatchActions(apply=apply or (lambda: apply_runtime(self.system)), regenerate=self.regenerate)
        return watch(self.node.host, self.targets, hands, policy)

    def whats(self, second: int) -> list[str]:
        return [finding["what"] for finding in self.seen[second][0]["findings"]]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def events(caplog: pytest.LogCaptureFixture, *reasons: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.getMessage() in reasons]


def test_a_quiet_node_is_told_once_and_no_program_is_started_twice(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    dumps = bench.daemon.dumps
    assert bench.run(WatchPolicy(), 600, {}) == "SIGTERM"
    assert bench.daemon.dumps == dumps + 1
    assert [record.getMessage() for record in caplog.records if record.name == "driverforge"].count(
        "watching"
    ) == 1
    assert events(caplog, "DriftFound", "DriftGone") == []
    status, metrics = bench.seen[600]
    assert status["handlers"] == {CONFIG: {"nvidia": True, "nvidia-cdi": True, "nvidia-legacy": True}}
    assert status["findings"] == []
    assert f"{IN_FORCE} 1\n" in metrics
    looks = {
        line.split('"')[1]: int(line.split()[-1])
        for line in metrics.splitlines()
        if line.startswith("driverforge_toolkit_looks_total{")
    }
    assert looks == {"stamps": 45, "whole": 10}
    assert not bench.node.text(STATUS), "what nobody keeps up to date goes away"
    assert not bench.node.text(METRICS)


def test_a_root_file_rewritten_by_kubespray_is_reported_and_nothing_is_restarted(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    starts = bench.daemon.starts
    bench.run(WatchPolicy(), 600, {95: lambda: bench.write(CONFIG, KUBESPRAY), 305: bench.daemon.restart})
    assert bench.whats(90) == []
    assert bench.whats(110) == ["config-rewritten"]
    (found,) = bench.seen[110][0]["findings"]
    assert found["evidence"] == [
        f"{CONFIG} was changed by somebody else",
        "containerd would be without nvidia, nvidia-cdi, nvidia-legacy after its next restart",
    ]
    assert found["since"] == 1_790_000_000 + 1000 + 100
    assert bench.whats(320) == ["config-rewritten", "handlers-not-in-force"]
    assert bench.daemon.starts == starts + 1, "the restart is somebody else's"
    assert events(caplog, "DriftFound") == ["DriftFound", "DriftFound"], "one line a change, not one a look"
    metrics = bench.seen[600][1]
    assert 'driverforge_toolkit_findings_total{what="config-rewritten"} 1' in metrics
    assert f"{IN_FORCE} 0\n" in metrics
    assert "reapplies_total" not in metrics


def test_a_rewritten_file_is_applied_again_after_an_announcement(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    starts = bench.daemon.starts
    bench.run(
        WatchPolicy(reapply=True), 900, {5: lambda: bench.write(CONFIG, KUBESPRAY), 15: bench.daemon.restart}
    )
    assert events(caplog, "ReapplyAnnounced", "Reapplied") == ["ReapplyAnnounced", "Reapplied"]
    announced, applied = (
        next(
            s for s, (status, _) in bench.seen.items() if any(e["reason"] == reason for e in status["events"])
        )
        for reason in ("ReapplyAnnounced", "Reapplied")
    )
    assert applied - announced >= 60
    assert bench.daemon.starts == starts + 2
    status, metrics = bench.seen[900]
    assert status["findings"] == []
    assert status["handlers"][CONFIG]["nvidia"] is True
    assert 'driverforge_toolkit_reapplies_total{result="done"} 1' in metrics
    assert b"127.0.0.1:1338" in bench.node.host.node.read_bytes(CONFIG), "what kubespray wrote stays"


def test_a_window_holds_a_restart_back(bench: Bench) -> None:
    """1,790,001,000 is a Monday, 14:30."""
    starts = bench.daemon.starts
    policy = WatchPolicy(reapply=True, windows=parse(["Mon 14:50-15:00"]))
    bench.run(policy, 1500, {5: lambda: bench.write(CONFIG, KUBESPRAY)})
    assert bench.seen[60][0]["reapply_at"] == 1_790_001_000 + 20 * 60
    assert bench.whats(1190) == ["config-rewritten"]
    assert [event["reason"] for event in bench.seen[1190][0]["events"]] == ["DriftFound", "ReapplyAnnounced"]
    assert bench.whats(1500) == []
    assert bench.daemon.starts == starts + 1


def test_two_tools_that_overwrite_each_other_do_not_restart_the_runtime_in_turn(bench: Bench) -> None:
    def rewrite() -> None:
        bench.write(CONFIG, KUBESPRAY)

    starts = bench.daemon.starts
    bench.run(WatchPolicy(reapply=True), 3000, dict.fromkeys(range(5, 3000, 200), rewrite))
    assert bench.daemon.starts == starts + 1
    assert bench.whats(3000) == ["config-rewritten"]


def test_a_re_apply_that_fails_is_told_and_not_tried_again_that_day(bench: Bench) -> None:
    tried = []

    def fails() -> None:
        tried.append(bench.node.clock.time)
        raise CommandFailed("containerd did not accept the change", details=["line 1: no"])

    bench.run(WatchPolicy(reapply=True), 7200, {5: lambda: bench.write(CONFIG, KUBESPRAY)}, apply=fails)
    assert len(tried) == 1
    status, metrics = bench.seen[7200]
    assert status["events"][-1]["reason"] in ("ReapplyFailed", "ReapplyAnnounced")
    assert any("line 1: no" in event["text"] for event in status["events"])
    assert 'driverforge_toolkit_reapplies_total{result="failed"} 1' in metrics


def test_an_edit_behind_our_copy_of_the_section_is_reported(bench: Bench) -> None:
    mirror = b'[plugins."io.containerd.grpc.v1.cri".registry]\nconfig_path = "/etc/containerd/certs.d"\n'
    bench.run(
        WatchPolicy(), 120, {5: lambda: bench.write(CONFIG, bench.node.host.node.read_bytes(CONFIG) + mirror)}
    )
    assert bench.whats(30) == ["config-edited", "drop-in-shadows"]
    shadow = bench.seen[30][0]["findings"][1]
    assert shadow["evidence"] == [
        f"{CONFIG}: registry.config_path: '/etc/containerd/certs.d' -> (not set) in {DROP_IN}, which counts"
    ]
    apply_runtime(bench.system)
    assert "certs.d" in bench.node.host.node.read_text(DROP_IN)


def test_a_daemon_that_is_down_is_reported_and_left_alone(bench: Bench) -> None:
    starts = bench.daemon.starts

    def stop() -> None:
        bench.daemon.down = True

    bench.run(WatchPolicy(reapply=True), 300, {5: stop})
    assert bench.whats(300) == ["runtime-silent"]
    assert bench.daemon.starts == starts


def test_a_file_that_the_daemon_does_not_accept_is_its_own_words(bench: Bench) -> None:
    bench.run(WatchPolicy(), 120, {5: lambda: bench.write(CONFIG, b"version = \n")})
    (found,) = bench.seen[120][0]["findings"]
    assert (found["what"], found["subject"]) == ("cannot-look", CONFIG)
    assert any(CONFIG in line for line in found["evidence"])


def test_a_damaged_journal_ends_no_watch(bench: Bench) -> None:
    place = journal.path_of("containerd", CONFIG)
    bench.run(WatchPolicy(), 120, {5: lambda: bench.write(place, b"{")})
    assert bench.whats(120) == ["cannot-look"]


def with_driver(bench: Bench) -> FakeNode:
    node = bench.node
    write_tree(node, TREE)
    for path, major, minor in (
        ("/dev/nvidia0", 195, 0),
        ("/dev/nvidiactl", 195, 255),
        ("/dev/nvidia-uvm", 511, 0),
    ):
        add_device(node, f"{DRIVER_ROOT}{path}", major, minor)
    node.files.write_atomic("/proc/devices", DEVICES.encode())
    bench.spec = SPEC
    bench.regenerate()
    return node


def test_a_driver_that_is_replaced_gets_new_specs_and_no_restart(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    node, starts = with_driver(bench), bench.daemon.starts
    old = f"{DRIVER_ROOT}/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06"
    new = TREE.replace("580.65.06", "595.91.07")

    def replaced() -> None:
        write_tree(node, new)
        node.files.write_atomic("/sys/module/nvidia/version", b"595.91.07\n")

    bench.run(
        WatchPolicy(),
        600,
        {
            95: lambda: (node.files.remove(old), node.files.remove(old.replace("libcuda", "libnvidia-ml"))),
            305: replaced,
        },
    )
    assert bench.whats(90) == []
    assert sorted(bench.whats(240)) == ["driver-reinstalled", "spec-stale"], (
        "nothing is written while there is no driver"
    )
    assert len(bench.regenerated) == 2
    assert bench.whats(600) == []
    assert "driver=595.91.07" in node.text(SPEC)
    assert bench.seen[600][0]["driver"] == "595.91.07"
    assert 'driverforge_toolkit_driver_info{version="595.91.07"} 1' in bench.seen[600][1]
    assert 'driverforge_toolkit_spec_writes_total{result="done"} 1' in bench.seen[600][1]
    assert events(caplog, "SpecWritten", "SpecFailed") == ["SpecWritten"]
    assert bench.daemon.starts == starts


def test_a_gpu_that_is_added_makes_the_spec_stale(bench: Bench) -> None:
    node = with_driver(bench)
    bench.run(WatchPolicy(), 200, {95: lambda: add_device(node, f"{DRIVER_ROOT}/dev/nvidia1", 195, 1)})
    assert len(bench.regenerated) == 2
    assert bench.whats(200) == []


def test_specs_of_others_are_reported_only(bench: Bench) -> None:
    node = with_driver(bench)
    text = """cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: '0'
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia7
"""
    bench.run(WatchPolicy(), 120, {5: lambda: bench.write("/etc/cdi/nvidia.yaml", text.encode())})
    (found,) = bench.seen[120][0]["findings"]
    assert (found["what"], found["subject"], found["remedy"]) == (
        "spec-stale",
        "/etc/cdi/nvidia.yaml",
        "driverctl cdi generate --output /etc/cdi/nvidia.yaml",
    )
    assert node.host.node.read_text("/etc/cdi/nvidia.yaml") == text


def test_a_second_watch_is_refused(bench: Bench) -> None:
    bench.node.files.make_dirs(FOLDER)
    with bench.node.files.lock(f"{FOLDER}/watch.lock", text="1\n"), pytest.raises(TemporaryFailure):
        bench.run(WatchPolicy(), 60, {})


def test_the_status_of_toolkit_run_is_kept(bench: Bench) -> None:
    bench.node.files.make_dirs(FOLDER)
    bench.node.files.write_atomic(STATUS, b'{"phase": "ready"}\n')
    whole: list[dict[str, object]] = []
    bench.run(WatchPolicy(), 30, {25: lambda: whole.append(json.loads(bench.node.text(STATUS)))})
    assert sorted(whole[0]) == ["phase", "watch"]
    assert json.loads(bench.node.text(STATUS)) == {"phase": "ready"}


def test_a_release_that_somebody_else_switched_to_is_told(bench: Bench) -> None:
    files = bench.node.host.node
    for name in ("1.18.0-a", "1.19.0-b"):
        for handler in bench.system.request.wanted.handlers:
            bench.write(f"/usr/local/nvidia/releases/{name}/{handler.binary.rpartition('/')[2]}", b"")
    files.remove_tree("/usr/local/nvidia/toolkit")
    files.symlink("releases/1.18.0-a", "/usr/local/nvidia/toolkit")
    bench.run(
        WatchPolicy(), 120, {5: lambda: files.symlink("releases/1.19.0-b", "/usr/local/nvidia/toolkit")}
    )
    assert bench.whats(120) == ["release-switched"]
    assert bench.seen[120][0]["findings"][0]["evidence"] == ["1.18.0-a was in force, now 1.19.0-b"]


def test_stamps_tell_a_change_of_any_file_that_counts(bench: Bench) -> None:
    with_driver(bench)
    eyes = Observer(bench.targets)
    eyes.look()
    before = eyes.fingerprint()
    assert eyes.fingerprint() == before
    for path in (
        CONFIG,
        DROP_IN,
        "/etc/containerd/conf.d/zz.toml",
        "/etc/cdi/x.yaml",
        journal.path_of("containerd", CONFIG),
    ):
        bench.write(path, b"# other\n")
        after = eyes.fingerprint()
        assert after != before, path
        before = after


def test_a_template_that_loses_our_section_is_told_before_the_file_is_made_of_it(bench: Bench) -> None:
    path, host = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml.tmpl", bench.node.host
    section = f"{template.BEGIN}\n{template.END}\n".encode()
    (entry,) = journal.entries(host)
    file = journal.JournalFile(path=path, original=None, written=section, before=None)
    journal.write_entry(host, replace(entry, files=(*entry.files, file)))
    bench.write(path, section)
    bench.run(WatchPolicy(), 120, {65: lambda: bench.write(path, b'{{ template "base" . }}\n')})
    assert bench.whats(60) == []
    assert bench.whats(120) == ["config-rewritten"]


def test_the_settings_of_the_toolkit_make_the_same_watch(bench: Bench) -> None:
    node = bench.node
    with_driver(bench)
    flags = {
        "driver_root": DRIVER_ROOT,
        "driver_root_ctr_path": DRIVER_ROOT,
        "cdi_enabled": "true",
        "create_device_nodes": "none",
    }
    wanted = settings.settings_of(
        {
            **flags,
            "reapply": "true",
            "reapply_window": "Mon 14:50-15:00; Sat 01:00-02:00",
            "watch_interval": "5",
        },
        {},
    )
    made = parts_of(node.host, bench.daemon, wanted)
    node.clock.stop_at = node.clock.time + 90
    waits: list[float] = []
    kept: list[dict[str, Any]] = []

    def waited(now: float) -> None:
        waits.append(now)
        kept.append(json.loads(node.text(STATUS))["watch"] if node.text(STATUS) else {})
        if len(waits) == 3:
            node.files.remove(SPEC)
            bench.write(CONFIG, KUBESPRAY)

    node.clock.on_wait = waited
    assert made.watch() == "SIGTERM"
    assert waits[2] - waits[1] == 5
    assert "kind: management.nvidia.com/gpu" in node.text(SPEC), "written anew, as the toolkit writes it"
    assert kept[-1]["reapply_at"] == 1_790_001_000 + 20 * 60


def test_a_wrong_window_is_told_before_anything_is_done(bench: Bench) -> None:
    with pytest.raises(UsageError, match="maintenance window"):
        parts_of(bench.node.host, bench.daemon, settings.settings_of({"reapply_window": "sometimes"}, {}))
