"""driverctl runtime against real containerd 1.6, 1.7, 2.1 (Debian's), 2.3 and 2.4 (compiled), started by hand
and restarted by --restart-command.

test_runtime_configurations.py has the table of configurations; here is what a change does around them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from driverctl import cli
from driverforge_core.errors import (
    CommandFailed,
    DriverforgeError,
    InputError,
    TemporaryFailure,
    Unavailable,
    Unsupported,
)
from driverforge_host.adapters.real import real_host
from driverforge_host.adapters.sockets import UnixSockets
from driverforge_toolkit.runtime import journal, request
from driverforge_toolkit.runtime.transaction import change, plans
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem
from support.machines import containerd
from support.machines.runtimenode import DAEMONS, NAMES, PROGRAMS, RuntimeNode, open_node, round_trip
from support.process import missing, run, until
from support.skipping import provided

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="containerd needs root"),
    pytest.mark.skipif(
        bool(missing("apt-get", "dpkg-deb", "unshare", "setsid")),
        reason="containerd is unpacked from Debian's package",
    ),
]

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


@pytest.fixture
def node() -> Iterator[RuntimeNode]:
    with provided(lambda: open_node("containerd", "bookworm")) as opened:
        yield opened


OFTEN = ("bookworm", "sid")  # the oldest, and the newest of a package; the configurations meet the others


@pytest.mark.parametrize(
    "suite",
    [
        pytest.param(suite, marks=() if suite in OFTEN else pytest.mark.full(reason="more of the same"))
        for kind, suite in DAEMONS
        if kind == "containerd"
    ],
)
def test_apply_again_and_revert(suite: str) -> None:
    with provided(lambda: open_node("containerd", suite)) as node:
        round_trip(node, DEBIAN)


@pytest.mark.parametrize("suite", ["bookworm", "sid"])
def test_a_default_handler_and_its_revert(suite: str) -> None:
    with provided(lambda: open_node("containerd", suite)) as node:
        node.start(DEBIAN)
        node.driverctl(
            "apply", "--default", "--runtime-name", "gpu", "--cdi" if suite == "sid" else "--no-cdi"
        )
        seen = node.answers()
        assert seen is not None
        assert (seen.default, seen.handlers["gpu"]) == ("gpu", PROGRAMS["nvidia"])
        node.driverctl("apply")  # asks for other handlers, and for no default
        seen = node.answers()
        assert seen is not None
        assert (seen.default, set(seen.handlers)) == ("runc", {"runc", *NAMES})
        node.driverctl("revert")
        assert node.config.read_text() == DEBIAN


@pytest.mark.full(reason="compiles containerd")
@pytest.mark.parametrize("version", containerd.COMPILED)
def test_a_default_in_the_old_section_of_a_version_3_file_is_given_up(version: str) -> None:
    """containerd 2.3 and later bring such a file to version 4, and its old section with it."""
    root = f'version = 3\n[{CRI}.containerd]\ndefault_runtime_name = "nvidia"\n'
    root += f'[{CRI}.containerd.runtimes.nvidia]\nruntime_type = "io.containerd.runc.v2"\n'
    with provided(lambda: open_node("containerd", version)) as node:
        node.start(root)
        seen = node.answers()
        assert seen is not None
        assert seen.default == "nvidia"
        node.driverctl("apply", "--no-default", "--cdi")
        seen = node.answers()
        assert seen is not None
        assert (seen.default, set(seen.handlers)) == ("runc", {"runc", *NAMES})
        warned = "Ignoring unknown key" in node.log.read_text()
        assert not warned, "enable_cdi is no key of 2.4"
        node.driverctl("revert")
        assert node.config.read_text() == root


def test_mode_owner_and_link_stay(node: RuntimeNode) -> None:
    (node.etc / "real.toml").write_text(DEBIAN)
    (node.etc / "real.toml").chmod(0o600)
    os.chown(node.etc / "real.toml", 1, 2)
    node.config.symlink_to("real.toml")
    node.start(None)
    node.driverctl("apply", "--config", str(node.config))
    found = node.config.stat()
    assert node.config.is_symlink()
    assert (found.st_mode & 0o777, found.st_uid, found.st_gid) == (0o600, 1, 2)


def test_a_file_that_is_mounted_by_itself_is_written_in_place(node: RuntimeNode) -> None:
    """As in kind's and k3d's nodes, where a volume of one file is the configuration."""
    outside = node.home / "outside.toml"
    outside.write_text(DEBIAN)
    node.config.touch()
    run("mount", "--bind", outside, node.config)
    try:
        node.start(None)
        before = node.handlers()
        node.driverctl("apply")
        assert node.handlers() == {**before, **PROGRAMS}
        assert "imports" in outside.read_text(), "it is still the file that is mounted there"
        node.driverctl("revert")
        assert (outside.read_text(), node.handlers()) == (DEBIAN, before)
    finally:
        node.stop()
        run("umount", node.config)


def test_relative_imports_start_where_the_daemon_runs(node: RuntimeNode) -> None:
    """containerd 1.6.20 has them at its working folder."""
    site = {"conf.d/10-site.toml": f"version = 2\n[{CRI}]\n  max_container_log_line_size = 4096\n"}
    node.start(f'imports = ["conf.d/*.toml"]\n{DEBIAN}', site)
    node.write_restart(after=f"cd {node.etc}")
    run(node.home / "restart")
    until(lambda: node.answers() is not None, "containerd", timeout=60, log=node.log)
    before = node.snapshot()
    node.driverctl("apply")
    assert node.config.read_text() == f'imports = ["conf.d/*.toml"]\n{DEBIAN}', "it covers our drop-in"
    assert "4096" in node.drop_in.read_text()
    assert set(node.handlers()) == {"runc", *NAMES}
    node.driverctl("revert")
    assert node.snapshot() == before


@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_a_section_in_a_file_that_an_imported_file_imports_is_the_admins_to_move(suite: str) -> None:
    """It is read after all that the root file imports, and takes the place of ours.

    The root file could have it read earlier, by its name. But then containerd does not start without it: that
    is no change to make for somebody.
    """
    with provided(lambda: open_node("containerd", suite)) as node:
        deep = node.etc / "deep.toml"
        site = f'version = 2\nimports = ["{deep}"]\n'
        limit = f"version = 2\n[{CRI}]\n  max_container_log_line_size = 4096\n"
        runc = f'[{CRI}.containerd.runtimes.runc]\n  runtime_type = "io.containerd.runc.v2"\n'
        root = f'imports = ["{node.etc}/site.toml"]\n{DEBIAN}'
        node.start(root, {"site.toml": site, "deep.toml": limit + runc})
        before = node.snapshot()
        with pytest.raises(Unsupported, match=r"/deep\.toml is read after") as caught:
            node.driverctl("apply")
        assert "own `imports`" in caught.value.resolution
        assert (node.snapshot(), node.restarts(), node.journal.exists()) == (before, 0, False)
        # whatever its name is: containerd does not see the handler of a file that the root file imports last
        ours = node.etc / "zz.toml"
        ours.write_text(limit + runc + runc.replace("runtimes.runc", "runtimes.nvidia"))
        node.write(root.replace('site.toml"]', f'site.toml", "{ours}"]'))
        assert set(runtimes(node)) == {"runc"}
        ours.unlink()
        # as the message says
        listed = root.replace('site.toml"]', f'site.toml", "{deep}"]')
        node.write(listed)
        node.driverctl("apply")
        assert set(runtimes(node)) == {"runc", *NAMES}
        assert node.effective()["plugins"][SECTION]["max_container_log_line_size"] == 4096
        node.driverctl("revert")
        assert node.config.read_text() == listed
        deep.unlink()
        assert run(node.program, "--config", node.config, "config", "dump", check=False).status != 0


SECTION = "io.containerd.grpc.v1.cri"


def runtimes(node: RuntimeNode) -> dict[str, object]:
    found: dict[str, object] = node.effective()["plugins"][SECTION]["containerd"]["runtimes"]
    return found


def test_a_default_that_no_runtime_has_is_refused_while_the_daemon_serves(node: RuntimeNode) -> None:
    """Its CRI plugin would not load: the node would be down, and be so after the roll-back."""
    node.start(DEBIAN)
    many = "".join(
        f'[{CRI}.containerd.runtimes.r{number}]\n  runtime_type = "io.containerd.runc.v2"\n'
        for number in range(400)
    )
    node.write(f"version = 2\n{many}")
    before = node.snapshot()
    with pytest.raises(Unsupported, match="could not serve pods"):
        node.driverctl("apply")
    assert (node.snapshot(), node.restarts(), node.journal.exists()) == (before, 0, False)
    node.driverctl("apply", "--default")
    seen = node.answers()
    assert seen is not None
    assert (seen.default, len(seen.handlers)) == ("nvidia", 403)


def test_plans_show_everything_and_do_nothing(node: RuntimeNode, capsys: pytest.CaptureFixture[str]) -> None:
    node.start(DEBIAN)
    before = node.snapshot()
    node.driverctl("plan")
    out = capsys.readouterr().out
    assert "--- (not there)" in out
    assert f"+++ {node.drop_in}" in out
    assert (
        f"effective: {CRI}.containerd.runtimes.nvidia.runtime_type: (not set) -> 'io.containerd.runc.v2'"
        in out
    )
    assert f"restart: {node.home}/restart" in out
    assert f"program: {node.program}, containerd " in out
    node.driverctl("apply", "--plan", "--json")
    plan = json.loads(capsys.readouterr().out)
    assert (plan["activation"], plan["handlers"], plan["runtime"]["pid"]) == ("restart", PROGRAMS, node.pid)
    assert [file["path"] for file in plan["files"]] == [str(node.drop_in), str(node.config)]
    node.driverctl("revert", "--plan")
    assert "nothing to revert" in capsys.readouterr().out
    assert (node.snapshot(), node.restarts(), list(Path("/run/driverforge").iterdir())) == (before, 0, [])


def test_status_tells_drift_and_what_others_wrote(
    node: RuntimeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    node.start(DEBIAN)
    node.driverctl("apply")
    node.config.write_text(f"# theirs\n{node.config.read_text()}")
    capsys.readouterr()
    node.driverctl("status", "--json")
    found = json.loads(capsys.readouterr().out)
    assert (found["change"], found["drift"], found["missing"], found["foreign"]) == (
        "in force",
        [str(node.config)],
        [],
        {},
    )
    node.driverctl("status")
    assert f"{node.config} (changed by somebody else since)" in capsys.readouterr().out


def test_json_is_json_also_where_there_is_something_to_say(
    node: RuntimeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    node.start(DEBIAN)
    node.driverctl("apply")
    node.drop_in.write_text(node.drop_in.read_text().replace(f'"{PROGRAMS["nvidia"]}"', '"/usr/bin/theirs"'))
    capsys.readouterr()
    node.driverctl("revert", "--json")
    found = json.loads(capsys.readouterr().out)
    assert [note for note in found["notes"] if "was changed by somebody else; it stays" in note]
    assert "restarted containerd" in found["done"]


def test_a_daemon_that_nobody_can_restart_is_left_alone(node: RuntimeNode) -> None:
    node.start(DEBIAN)
    with pytest.raises(Unsupported, match="not run by systemd") as caught:
        cli.run(["runtime", "apply", "--socket", node.socket], real_host)
    assert "--restart-command" in caught.value.resolution
    assert node.config.read_text() == DEBIAN


def test_restart_mode_none_writes_and_says_that_it_is_not_in_force(
    node: RuntimeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    node.start(DEBIAN)
    node.driverctl("apply", "--restart-mode", "none")
    assert "not in force until containerd is restarted" in capsys.readouterr().out
    assert (node.drop_in.exists(), node.restarts(), set(node.handlers())) == (True, 0, {"runc"})
    node.driverctl("apply")
    assert (node.restarts(), set(node.handlers())) == (1, {"runc", *NAMES})


def test_a_restart_that_somebody_else_made_is_known(
    node: RuntimeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    node.start(DEBIAN)
    untouched = node.snapshot()
    node.driverctl("apply", "--restart-mode", "none")
    node.driverctl("revert")
    assert (node.snapshot(), node.restarts()) == (untouched, 0), "containerd has read nothing of ours"

    node.driverctl("apply", "--restart-mode", "none")
    run(node.home / "restart")
    until(
        lambda: set(node.handlers()) == {"runc", *NAMES} if node.answers() else False,
        "containerd",
        timeout=60,
        log=node.log,
    )
    capsys.readouterr()
    node.driverctl("apply", "--restart-mode", "none")
    assert "not in force" not in capsys.readouterr().out
    marks = node.marks()
    node.driverctl("apply")
    assert (node.restarts(), node.marks()) == (1, marks)


def test_a_daemon_that_does_not_come_back_gets_its_old_files_and_is_started_again(node: RuntimeNode) -> None:
    node.start(DEBIAN)
    before = node.snapshot()
    node.write_restart(after=f"if grep -qs nvidia {node.drop_in}; then echo 'exit 1: no'; exit 7; fi")
    with pytest.raises(CommandFailed, match="the old configuration is in force again"):
        node.driverctl("apply")
    assert (node.snapshot(), set(node.handlers()), node.journal.exists()) == (before, {"runc"}, False)
    node.write_restart()
    tries = node.restarts()
    with pytest.raises(CommandFailed, match="did not accept this change on"):
        node.driverctl("apply")
    assert node.restarts() == tries, "it cannot know what is different about the restart command"
    node.driverctl("apply", "--force")
    assert set(node.handlers()) == {"runc", *NAMES}


def test_a_daemon_that_still_runs_the_old_process_has_not_changed(node: RuntimeNode) -> None:
    node.start(DEBIAN)
    (node.home / "restart").write_text("#!/bin/sh\nexit 0\n")
    with pytest.raises(CommandFailed, match="did not accept the change") as caught:
        impatient(node, "apply")
    assert any("from before the restart still answers" in line for line in caught.value.details)
    assert node.config.read_text() == DEBIAN


def impatient(node: RuntimeNode, action: str) -> None:
    """A change whose daemon gets no time to come back."""
    asked = request.RuntimeRequest(
        wanted=request.wanted_handlers(), socket=node.socket, restart_command=str(node.home / "restart")
    )
    system = RuntimeSystem(host=real_host(), sockets=UnixSockets(), request=replace(asked, patience=0.001))
    change.carry_out(plans.apply_plan(system), system)


def test_a_daemon_that_is_down_gets_its_files_back_and_is_started(node: RuntimeNode) -> None:
    node.start(DEBIAN)
    node.driverctl("apply")
    node.stop()
    with pytest.raises(Unavailable, match="which driverctl has changed before, is not running"):
        node.driverctl("apply")
    node.driverctl("revert")
    assert node.config.read_text() == DEBIAN
    assert set(node.handlers()) == {"runc"}


def test_what_others_wrote_since_stays(node: RuntimeNode) -> None:
    node.start(DEBIAN)
    node.driverctl("apply")
    node.config.write_text("oom_score = -500 # theirs\n" + node.config.read_text())
    node.driverctl("apply")
    node.driverctl("revert")
    assert node.config.read_text() == "oom_score = -500 # theirs\n" + DEBIAN
    assert set(node.handlers()) == {"runc"}


def test_apply_after_a_rewrite_by_others_reverts_to_their_file(node: RuntimeNode) -> None:
    node.start(DEBIAN)
    node.driverctl("apply")
    theirs = DEBIAN.replace("managed by nobody", "managed by kubespray")
    node.config.write_text(theirs)
    node.driverctl("apply")
    assert set(node.handlers()) == {"runc", *NAMES}
    node.driverctl("revert")
    assert node.config.read_text() == theirs


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


def test_strip_takes_out_what_somebody_else_wrote(
    node: RuntimeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    runc = f'[{CRI}.containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'
    theirs = (
        f'[{CRI}.containerd.runtimes.nvidia]\nruntime_type = "io.containerd.runc.v2"\n'
        f'[{CRI}.containerd.runtimes.nvidia.options]\nBinaryName = "/usr/bin/nvidia-container-runtime"\n'
    )
    node.start(DEBIAN + runc + theirs)
    node.driverctl("revert")
    assert "`driverctl runtime revert --strip` takes them out" in capsys.readouterr().out
    node.driverctl("revert", "--strip")
    assert set(node.handlers()) == {"runc"}
    assert node.config.read_text() == DEBIAN + runc
    assert not node.journal.exists()


REFUSED: dict[str, tuple[str, type[DriverforgeError], str]] = {
    "version 1": ('[plugins.cri]\nsandbox_image = "x"\n', Unsupported, "version 1"),
    "broken": ("version = 2\n[plugins\n", InputError, "not valid TOML"),
    "wrong type": (
        f"version = 2\n[{CRI}.containerd]\nruntimes = 3\n",
        InputError,
        "map[string]config.Runtime",
    ),
    "CRI disabled": (
        'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n',
        Unsupported,
        "disables the CRI plugin",
    ),
    "imports no list": ('version = 2\nimports = "x"\n', InputError, "imports"),
}


@pytest.mark.parametrize(("text", "error", "says"), REFUSED.values(), ids=REFUSED)
def test_refused_with_the_node_untouched(
    node: RuntimeNode, text: str, error: type[DriverforgeError], says: str
) -> None:
    node.start(DEBIAN)
    node.config.write_text(text)
    before = node.snapshot()
    with pytest.raises(error) as caught:
        node.driverctl("apply")
    assert says in caught.value.render()
    assert (node.snapshot(), node.restarts(), node.journal.exists()) == (before, 0, False)


def test_a_socket_that_nothing_listens_on(node: RuntimeNode) -> None:
    for action in ("apply", "revert"):
        with pytest.raises(Unavailable, match="no container runtime answers"):
            node.driverctl(action, "--config", str(node.config))


def test_another_programs_socket(node: RuntimeNode) -> None:
    script = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); "
        "print('up', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, node.socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        with pytest.raises(Unsupported, match="not containerd"):
            node.driverctl("apply")


def test_a_second_instance_changes_nothing(node: RuntimeNode) -> None:
    node.start(DEBIAN)
    before = node.snapshot()
    host = real_host()
    host.node.make_dirs(journal.FOLDER)
    with host.node.lock(f"{journal.FOLDER}/lock", text="other\n") as ours:
        assert ours
        with pytest.raises(TemporaryFailure, match="another driverctl"):
            node.driverctl("apply")
        assert Path(f"{journal.FOLDER}/lock").read_text() == "other\n"
    assert node.snapshot() == before


def test_a_damaged_journal_entry_is_not_guessed_at(node: RuntimeNode) -> None:
    node.start(DEBIAN)
    node.driverctl("apply")
    node.journal.write_text("{}")
    with pytest.raises(InputError, match="journal entry"):
        node.driverctl("revert")
