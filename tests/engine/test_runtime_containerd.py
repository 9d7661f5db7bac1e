"""driverctl runtime apply|revert against a real containerd 1.6 (Debian's), started by hand and restarted by --restart-command.

It runs in a mount namespace of its own, with everything under one folder; the node's root is this machine's, so only the journal is shared.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import tomllib

import driverforge_node
from driverforge_core.errors import CommandFailed, DriverforgeError, InputError, TemporaryFailure, Unavailable, Unsupported
from driverforge_node.cli import run as driverctl
from driverforge_node.host.real import real_host
from driverforge_node.host.sockets import UnixSockets
from driverforge_node.runtime import change, configure, journal
from driverforge_node.runtime.inplace import RUNTIMES, nvidia_handlers
from driverforge_node.runtime.cri import RuntimeStatus, status
from driverforge_node.runtime.daemon import Daemon, check_version
from driverforge_node.runtime.document import lookup
from support.containerd import programs, search_path
from support.process import missing, run, running, until

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="containerd needs root"),
    pytest.mark.skipif(bool(missing("apt-get", "dpkg-deb", "unshare", "setsid")), reason="containerd is unpacked from Debian's package"),
]

NAMES = ("nvidia", "nvidia-cdi", "nvidia-legacy")
CRI = 'plugins."io.containerd.grpc.v1.cri"'
# what Debian's package installs, with a site's comments
DEBIAN = f"""# managed by nobody
version = 2

[plugins]
  [{CRI}]
    [{CRI}.cni]
      bin_dir = "/usr/lib/cni"   # Debian's place
      conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.internal.v1.opt"]
    path = "/var/lib/containerd/opt"
"""
RUNC = f'[{CRI}.containerd.runtimes.runc]\n  runtime_type = "io.containerd.runc.v2"\n'
CONFIGS = {
    "debian": DEBIAN,
    "version only": "version = 2\n",
    "comments only": "# nothing yet\n",
    "empty": "",
    "crlf": DEBIAN.replace("\n", "\r\n"),
    "own runc": f"version = 2\n{RUNC}  [{CRI}.containerd.runtimes.runc.options]\n    SystemdCgroup = true\n",
    "runc and kata": f'version = 2\n{RUNC}[{CRI}.containerd.runtimes.kata]\nruntime_type = "io.containerd.kata.v2"\n',
    "default crun": f'version = 2\n[{CRI}.containerd]\ndefault_runtime_name = "crun"\n[{CRI}.containerd.runtimes.crun]\n'
    'runtime_type = "io.containerd.runc.v2"\n',
    "dotted": f'version = 2\n[{CRI}]\ncontainerd.snapshotter = "native"\nsandbox_image = "pause:1"\n',
    "inline": 'version = 2\nplugins = { "io.containerd.grpc.v1.cri" = { sandbox_image = "pause:1" } }\n',
    "subtable first": f'version = 2\n[{CRI}.containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'
    f'[{CRI}]\nsandbox_image = "p:1"\n',
    "mirrors": f'version = 2\n[{CRI}.registry]\nconfig_path = "/etc/containerd/certs.d"\n',
    "nvidia by somebody else": f'version = 2\n{RUNC}[{CRI}.containerd.runtimes.nvidia]\nruntime_type = "io.containerd.runc.v2"\n'
    f'[{CRI}.containerd.runtimes.nvidia.options]\nBinaryName = "/usr/bin/nvidia-container-runtime"\n',
}


@dataclass
class Node:
    """A containerd and the files to start it with."""

    home: Path
    prefix: Path

    @property
    def config(self) -> Path:
        return self.home / "config.toml"

    @property
    def socket(self) -> str:
        return str(self.home / "c.sock")

    @property
    def pid(self) -> int:
        return int((self.home / "pid").read_text())

    def write_restart(self, *, config: Path | None = None, after: str = "") -> str:
        """The command that stops and starts the daemon; `after` runs in between."""
        daemon = f"{self.prefix}/usr/bin/containerd --root {self.home}/root --state {self.home}/state --address {self.socket}"
        script = self.home / "restart"
        script.write_text(
            f"""#!/bin/sh
if old=$(cat {self.home}/pid 2>/dev/null); then
  kill "$old"
  while grep -qs '^State:.[^Z]' "/proc/$old/status"; do sleep 0.05; done
fi
echo restart >>{self.home}/restarts
{after}
PATH={search_path(self.prefix)} setsid unshare --mount --propagation private {daemon} --config {config or self.config} \\
  >>{self.home}/log 2>&1 </dev/null &
echo $! >{self.home}/pid
"""
        )
        script.chmod(0o755)
        return str(script)

    def start(self, text: str | None) -> None:
        if text is not None:
            self.config.write_bytes(text.encode())
        started_with = self.config
        if text is None:
            started_with = self.home / "other.toml"
            started_with.write_text("version = 2\n")
        run(self.write_restart(config=started_with))
        until(lambda: self.answers() is not None, "containerd", timeout=60, log=self.home / "log")
        (self.home / "restarts").unlink()
        self.write_restart()

    def answers(self) -> RuntimeStatus | None:
        try:
            return status(UnixSockets(), self.socket)
        except Unavailable:
            return None

    def handlers(self) -> set[str]:
        seen = self.answers()
        assert seen is not None
        return set(seen.handlers)

    def driverctl(self, action: str, *more: str) -> None:
        arguments = ["runtime", action, "--socket", self.socket, "--restart-command", str(self.home / "restart"), *more]
        assert driverctl(arguments, real_host) == 0

    def restarts(self) -> int:
        log = self.home / "restarts"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def stop(self) -> None:
        if (self.home / "pid").exists():
            run("kill", str(self.pid), check=False)
            until(lambda: not running(self.pid), "the end of containerd")


@pytest.fixture(scope="session")
def prefix() -> Path:
    return programs()


@pytest.fixture
def node(prefix: Path) -> Iterator[Node]:
    home = Path(tempfile.mkdtemp(prefix="df-rt-", dir="/tmp"))
    made = Node(home=home, prefix=prefix)
    try:
        yield made
    finally:
        made.stop()
        Path(journal.place(str(made.config))).unlink(missing_ok=True)
        shutil.rmtree(home, ignore_errors=True)


@pytest.mark.parametrize("text", CONFIGS.values(), ids=CONFIGS)
def test_apply_gives_handlers_and_revert_gives_the_bytes_back(node: Node, text: str) -> None:
    node.start(text)
    before, pid, inode = node.handlers(), node.pid, node.config.stat().st_ino
    node.driverctl("apply")
    assert node.handlers() == before | set(NAMES)
    assert node.pid != pid
    assert node.config.stat().st_ino != inode
    kept = [line for line in text.splitlines() if "BinaryName" not in line and "plugins = {" not in line]
    assert set(kept) <= set(node.config.read_bytes().decode().splitlines())
    node.driverctl("revert")
    assert node.config.read_bytes() == text.encode()
    assert node.handlers() == before
    assert not Path(journal.place(str(node.config))).exists()


def test_handlers_have_the_nodes_cgroup_driver_and_their_programs(node: Node) -> None:
    node.start(CONFIGS["own runc"])
    node.driverctl("apply", "--toolkit-dir", "/opt/toolkit/")
    options = lookup(tomllib.loads(node.config.read_text()), (*RUNTIMES, "nvidia", "options"))
    assert options == {"SystemdCgroup": True, "BinaryName": "/opt/toolkit/nvidia-container-runtime"}
    seen = node.answers()
    assert seen is not None
    assert {name: seen.handlers[name] for name in NAMES} == {h.name: h.binary for h in nvidia_handlers("/opt/toolkit")}


def test_a_second_apply_writes_and_restarts_nothing(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.start(DEBIAN)
    node.driverctl("apply")
    watched = [node.config, Path(journal.place(str(node.config)))]
    before = [(path.stat().st_ino, path.stat().st_mtime_ns) for path in watched]
    node.driverctl("apply")
    assert capsys.readouterr().out.splitlines()[-1] == "nothing to do"
    assert [(path.stat().st_ino, path.stat().st_mtime_ns) for path in watched] == before
    assert node.restarts() == 1


def test_mode_and_owner_stay(node: Node) -> None:
    node.start(DEBIAN)
    node.config.chmod(0o600)
    os.chown(node.config, 1, 2)
    node.driverctl("apply")
    found = node.config.stat()
    assert (found.st_mode & 0o777, found.st_uid, found.st_gid) == (0o600, 1, 2)


def test_a_file_that_was_not_there_goes_away_again(node: Node) -> None:
    node.start(None)
    node.driverctl("apply", "--config", str(node.config))
    assert node.handlers() == {"runc", *NAMES}
    # without a file containerd does not start at all when it is named on the command line: it starts with its own other one
    node.write_restart(config=node.home / "other.toml")
    node.driverctl("revert", "--config", str(node.config))
    assert not node.config.exists()
    assert node.handlers() == {"runc"}


def test_a_symbolic_link_stays_one(node: Node) -> None:
    (node.home / "real.toml").write_text(DEBIAN)
    node.config.symlink_to("real.toml")
    node.start(None if node.config.exists() else DEBIAN)
    node.driverctl("apply", "--config", str(node.config))
    assert node.config.is_symlink()
    assert "nvidia-cdi" in (node.home / "real.toml").read_text()


def test_plans_show_everything_and_do_nothing(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.start(DEBIAN)
    node.driverctl("apply", "--plan")
    out = capsys.readouterr().out
    assert f"+[{CRI}.containerd.runtimes.nvidia-cdi]" in out
    assert f"effective: {CRI}.containerd.runtimes.nvidia.runtime_type: (not set)" in out
    assert f"restart: {node.home}/restart" in out
    assert node.config.read_text() == DEBIAN
    assert node.restarts() == 0
    node.driverctl("revert", "--plan")
    assert "nothing to revert" in capsys.readouterr().out


def test_a_daemon_that_nobody_can_restart_is_left_alone(node: Node) -> None:
    node.start(DEBIAN)
    with pytest.raises(Unsupported, match="not run by systemd") as caught:
        driverctl(["runtime", "apply", "--socket", node.socket], real_host)
    assert "--restart-command" in caught.value.resolution
    assert node.config.read_text() == DEBIAN


def test_a_daemon_that_does_not_come_back_gets_its_old_file_and_is_started_again(node: Node) -> None:
    node.start(DEBIAN)
    node.write_restart(after=f"if grep -q nvidia {node.config}; then echo 'exit 1: no'; exit 7; fi")
    with pytest.raises(CommandFailed, match="the old configuration is in force again"):
        node.driverctl("apply")
    assert node.config.read_text() == DEBIAN
    assert node.handlers() == {"runc"}
    assert not Path(journal.place(str(node.config))).exists()
    # and the same once nothing is in the way
    node.write_restart()
    node.driverctl("apply")
    assert node.handlers() == {"runc", *NAMES}


@dataclass
class Unit:
    """The `Services` port for a daemon that a script stands in for systemd of."""

    node: Node

    def restart(self, unit: str) -> None:
        assert unit == "containerd.service"
        run(str(self.node.home / "restart"))

    def main_pid(self, unit: str) -> int:
        return self.node.pid

    def last_log_lines(self, unit: str, count: int) -> tuple[str, ...]:
        return tuple((self.node.home / "log").read_text().splitlines()[-count:])


def carry_out_as_unit(node: Node, patience: float = 60) -> None:
    host = replace(real_host(), services=Unit(node))
    runtime = change.Runtime(host=host, sockets=UnixSockets(), socket=node.socket, patience=patience)
    plan, entry = configure.apply_plan(runtime, nvidia_handlers("/t"), "")
    assert change.restart_words(plan, runtime) == "needs --restart-command"
    plan = replace(plan, daemon=replace(plan.daemon, unit="containerd.service"))
    assert change.restart_words(plan, runtime) == "systemctl restart containerd.service"
    change.carry_out(plan, runtime, entry)


def test_a_daemon_that_systemd_runs_is_restarted_through_it(node: Node) -> None:
    node.start(DEBIAN)
    carry_out_as_unit(node)
    assert node.handlers() == {"runc", *NAMES}
    assert node.restarts() == 1


def test_the_daemons_own_last_words_are_in_the_error(node: Node) -> None:
    node.start(DEBIAN)
    other = node.home / "broken.toml"
    other.write_text("version = 2\nrequired_plugins = ['io.containerd.nothing.v1.x']\n")
    node.write_restart(after=f"grep -q nvidia {node.config} && cp {other} {node.config}")
    with pytest.raises(CommandFailed, match="the old configuration is in force again") as caught:
        carry_out_as_unit(node, patience=5)
    assert any(line.startswith("containerd.service: ") and "nothing.v1.x" in line for line in caught.value.details)
    assert node.config.read_text() == DEBIAN
    assert node.handlers() == {"runc"}


def test_a_daemon_that_still_runs_the_old_process_has_not_changed(node: Node) -> None:
    node.start(DEBIAN)
    (node.home / "restart").write_text("#!/bin/sh\nexit 0\n")
    with pytest.raises(CommandFailed, match="did not accept the change") as caught:
        carry_out_as_unit(node, patience=0)
    assert any("from before the restart still answers" in line for line in caught.value.details)
    assert node.config.read_text() == DEBIAN


def test_a_run_that_ended_between_write_and_restart_is_finished_by_the_next(node: Node) -> None:
    node.start(DEBIAN)
    (node.home / "restart").write_text('#!/bin/sh\nread -r _ _ _ driverctl _ <"/proc/$PPID/stat"\nkill -9 "$driverctl"\n')
    command = [*interpreter(), "runtime", "apply", "--socket", node.socket, "--restart-command", str(node.home / "restart")]
    assert run(*command, env={"PYTHONPATH": packages()}, check=False).status == -9
    assert "nvidia" in node.config.read_text()
    assert node.handlers() == {"runc"}
    node.write_restart()
    node.driverctl("apply")
    assert node.handlers() == {"runc", *NAMES}
    node.driverctl("revert")
    assert node.config.read_text() == DEBIAN


def test_a_daemon_that_is_down_gets_its_file_back_and_is_started(node: Node) -> None:
    node.start(DEBIAN)
    node.driverctl("apply")
    node.stop()
    with pytest.raises(Unavailable, match="no container runtime answers"):
        node.driverctl("apply", "--config", str(node.config))
    node.driverctl("revert", "--config", str(node.config))
    assert node.config.read_text() == DEBIAN
    assert node.handlers() == {"runc"}


def interpreter() -> tuple[str, ...]:
    return (sys.executable, "-c", "from driverforge_node.cli import main; main()")


def packages() -> str:
    return str(Path(driverforge_node.__file__).parents[1])


def test_what_others_wrote_since_stays(node: Node) -> None:
    node.start(DEBIAN)
    node.driverctl("apply")
    node.config.write_text("oom_score = -500 # theirs\n" + node.config.read_text())
    node.driverctl("revert")
    assert node.config.read_text().startswith("oom_score = -500 # theirs\n# managed by nobody\n")
    assert tomllib.loads(node.config.read_text()) == {"oom_score": -500, **tomllib.loads(DEBIAN)}
    assert node.handlers() == {"runc"}


def test_apply_after_a_rewrite_by_others_reverts_to_their_file(node: Node) -> None:
    node.start(DEBIAN)
    node.driverctl("apply")
    theirs = DEBIAN.replace("managed by nobody", "managed by kubespray")
    node.config.write_text(theirs)
    node.driverctl("apply")
    assert node.handlers() == {"runc", *NAMES}
    node.driverctl("revert")
    assert node.config.read_text() == theirs


REFUSED: dict[str, tuple[str, type[DriverforgeError], str]] = {
    "version 1": ('[plugins.cri]\nsandbox_image = "x"\n', Unsupported, "version 1"),
    "broken": ("version = 2\n[plugins\n", InputError, "not valid TOML"),
    "wrong type": (f"version = 2\n[{CRI}.containerd]\nruntimes = 3\n", InputError, "map[string]config.Runtime"),
}


@pytest.mark.parametrize(("text", "error", "says"), REFUSED.values(), ids=REFUSED)
def test_refused_with_the_node_untouched(node: Node, text: str, error: type[DriverforgeError], says: str) -> None:
    node.start(DEBIAN)
    node.config.write_text(text)
    with pytest.raises(error) as caught:
        node.driverctl("apply")
    assert says in caught.value.render()
    assert node.config.read_text() == text
    assert node.restarts() == 0


def test_a_disabled_cri_plugin_is_named(node: Node) -> None:
    node.start(DEBIAN)
    text = 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
    node.config.write_text(text)
    with pytest.raises(Unsupported, match="disables the CRI plugin"):
        node.driverctl("apply")
    assert node.config.read_text() == text


@pytest.mark.parametrize("place", ["drop", "{home}/drop"], ids=["relative", "absolute"])
def test_an_import_that_takes_the_cri_section_refuses(node: Node, place: str) -> None:
    (node.home / "drop").mkdir()
    (node.home / "drop/site.toml").write_text(f'version = 2\n[{CRI}]\nsandbox_image = "pause:1"\n')
    text = f'version = 2\nimports = ["{place.format(home=node.home)}/*.toml"]\n'
    node.start(text)
    with pytest.raises(Unsupported, match="does not see the handler"):
        node.driverctl("apply")
    assert node.config.read_text() == text


def test_a_socket_that_nothing_listens_on(node: Node) -> None:
    for action in ("apply", "revert"):
        with pytest.raises(Unavailable, match="no container runtime answers"):
            node.driverctl(action, "--config", str(node.config))


def test_another_programs_socket(node: Node, prefix: Path) -> None:
    script = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print('up', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", script, node.socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        with pytest.raises(Unsupported, match="not containerd"):
            node.driverctl("apply")


def test_a_second_instance_changes_nothing(node: Node) -> None:
    node.start(DEBIAN)
    host = real_host()
    host.node.make_dirs(journal.FOLDER)
    with host.node.lock(f"{journal.FOLDER}/lock", text="other\n") as ours:
        assert ours
        with pytest.raises(TemporaryFailure, match="another driverctl"):
            node.driverctl("apply")
    assert node.config.read_text() == DEBIAN


def test_other_releases_are_refused(node: Node, tmp_path: Path) -> None:
    node.start(DEBIAN)
    text = node.config.read_text()
    fake = tmp_path / "containerd"
    fake.write_text("#!/bin/sh\necho 'containerd github.com/containerd/containerd 1.7.24~ds1 1.7.24~ds1-6'\n")
    fake.chmod(0o755)
    daemon = Daemon(pid=1, binary=str(fake), config=str(node.config), unit="")
    with pytest.raises(Unsupported, match=r"containerd 1\.6 only") as caught:
        check_version(real_host(), daemon)
    assert "1.7.24" in caught.value.details[0]
    assert node.config.read_text() == text


def test_a_damaged_journal_entry_is_not_guessed_at(node: Node) -> None:
    node.start(DEBIAN)
    node.driverctl("apply")
    place = Path(journal.place(str(node.config)))
    place.write_text("{}")
    with pytest.raises(InputError, match="journal entry"):
        node.driverctl("revert")
