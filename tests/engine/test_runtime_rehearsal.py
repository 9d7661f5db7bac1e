"""A restart that containerd would not come back from is refused before anything is written.

Against real containerd 1.6, 1.7 and 2.1. Each fault is one that its `config dump` accepts, or lets through
from 2.0 on.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from driverctl import cli
from driverforge_core.errors import DriverforgeError
from driverforge_host.adapters.real import real_host
from driverforge_host.adapters.sockets import UnixSockets
from driverforge_host.gpu.roots import DriverRoots
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem
from driverforge_toolkit.toolkit.releases import Layout
from driverforge_toolkit.watch.look import Observer, WatchTargets
from support.machines.runtimenode import NAMES, RuntimeNode, open_node
from support.process import children, missing, running, until
from support.skipping import provided

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="containerd needs root"),
    pytest.mark.skipif(
        bool(missing("apt-get", "dpkg-deb", "unshare", "setsid", "setpriv")),
        reason="containerd is unpacked from Debian's package",
    ),
]

CRI = 'plugins."io.containerd.grpc.v1.cri"'
RUNC = f'[{CRI}.containerd.runtimes.runc]\n  runtime_type = "io.containerd.runc.v2"\n'
SPEC = f'{RUNC}  base_runtime_spec = "@ETC@/spec.json"\n'
ROOT = f'version = 2\nimports = ["@ETC@/site.toml", "@ETC@/conf.d/*.toml"]\n{SPEC}'
SITE = f"version = 2\n[{CRI}]\n  max_container_log_line_size = 4096\n{SPEC}"


@pytest.fixture(params=["bookworm", "trixie", "sid"])
def node(request: pytest.FixtureRequest) -> Iterator[RuntimeNode]:
    with provided(lambda: open_node("containerd", request.param)) as opened:
        files = {"site.toml": SITE, "spec.json": "{}"}
        opened.start(at(opened, ROOT), {name: at(opened, text) for name, text in files.items()})
        yield opened


def at(node: RuntimeNode, text: str) -> str:
    return text.replace("@ETC@", str(node.etc))


def refused(node: RuntimeNode, action: str) -> str:
    """What a refusal says; the node is untouched by it."""
    before = (node.snapshot(), node.restarts(), node.pid, node.journal.exists())
    with pytest.raises(DriverforgeError) as caught:
        node.driverctl(action)
    assert (node.snapshot(), node.restarts(), node.pid, node.journal.exists()) == before
    assert not list(Path("/run/driverforge").glob(f"candidate-{os.getpid()}-*"))
    return caught.value.render()


def test_doomed_restarts_are_refused_untouched(node: RuntimeNode) -> None:
    spec, site = node.etc / "spec.json", node.etc / "site.toml"
    spec.unlink()
    for action in ("plan", "apply"):
        said = refused(node, action)
        assert f"{spec}: no such file or directory" in said
        assert f'{site}:6: base_runtime_spec = "{spec}"' in said
    spec.write_text('{"ociVersion":')
    assert f"{spec}: failed to parse base OCI spec" in refused(node, "apply")
    spec.write_text("{}")
    site.rename(node.etc / "away")
    assert str(site) in refused(node, "apply")
    (node.etc / "away").rename(site)
    node.config.rename(node.etc / "away")
    assert f"{node.config}, which its command line names, is not there" in refused(node, "apply")
    (node.etc / "away").rename(node.config)
    whole = site.read_text()
    site.write_text(
        f'{whole}[{CRI}.registry]\n  config_path = "/etc/certs"\n'
        f'[{CRI}.registry.mirrors."docker.io"]\n  endpoint = ["https://mirror.example"]\n'
    )
    said = refused(node, "apply")
    assert "`mirrors` cannot be set when `config_path` is provided" in said
    assert f'{site}:8: config_path = "/etc/certs"' in said
    site.write_text(whole)
    node.driverctl("apply")
    assert set(node.handlers()) == {"runc", *NAMES}
    spec.unlink()
    assert str(spec) in refused(node, "revert")
    spec.write_text("{}")
    node.driverctl("revert")
    assert set(node.handlers()) == {"runc"}


def test_a_rehearsal_touches_nothing_of_the_running_daemon() -> None:
    """Each of these sockets would be unlinked and made anew by a second daemon, and the store opened."""
    with provided(lambda: open_node("containerd", "sid")) as node:
        home = node.home
        node.start(
            f'version = 2\n[debug]\n  address = "{home}/debug.sock"\n'
            f'[ttrpc]\n  address = "{home}/ttrpc.sock"\n'
            f'[metrics]\n  address = "127.0.0.1:21338"\n'
            f'[proxy_plugins.far]\n  type = "snapshot"\n  address = "{home}/far.sock"\n'
            f'[plugins."io.containerd.nri.v1.nri"]\n  socket_path = "{home}/nri.sock"\n'
            f'[plugins."io.containerd.snapshotter.v1.overlayfs"]\n  root_path = "{home}/layers"\n'
        )
        before = (marks(node), Path("/proc/self/mountinfo").read_text())
        assert {"debug.sock", "ttrpc.sock", "nri.sock", "layers"} <= {path.name for path in before[0]}
        node.driverctl("plan")
        assert (marks(node), Path("/proc/self/mountinfo").read_text()) == before
        assert node.answers() is not None


def marks(node: RuntimeNode) -> dict[Path, tuple[int, int]]:
    """Inode and time of all that a second daemon might write."""
    paths = [*node.home.glob("*"), *node.home.glob("layers/*"), *node.home.glob("state/*")]
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths if path != node.log}


def test_a_rehearsal_ends_with_driverctl() -> None:
    """What hangs in it is killed with it, and nothing stays mounted."""
    with provided(lambda: open_node("containerd", "sid")) as node:
        node.start("version = 2\n")
        program = node.program.read_text()
        stuck = 'case "$*" in *private*) exec sleep 1000 ;; esac\n'
        node.program.write_text(program.replace("PATH=", f"{stuck}PATH=", 1))
        words = [sys.executable, "-c", "from driverctl.cli import main; main()", *node.words("plan")]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as driverctl:
            until(lambda: "sleep" in commands(driverctl.pid), "a rehearsal", timeout=20)
            inside = descendants(driverctl.pid)
            driverctl.kill()
        until(lambda: not any(running(pid) for pid in inside), "the end of the rehearsal", timeout=20)
        assert "candidate-" not in Path("/proc/self/mountinfo").read_text()
        node.program.write_text(program)
        node.driverctl("apply")
        assert set(node.handlers()) == {"runc", *NAMES}
        assert not list(Path("/run/driverforge").glob(f"candidate-{driverctl.pid}-*"))


def commands(pid: int) -> set[str]:
    return {Path(f"/proc/{each}/comm").read_text().strip() for each in descendants(pid) if running(each)}


def descendants(pid: int) -> list[int]:
    found = children(pid)
    return [*found, *(below for child in found for below in descendants(child))]


@pytest.mark.parametrize("node", ["sid"], indirect=True)
def test_doctor_and_watch_say_it_first(node: RuntimeNode, capsys: pytest.CaptureFixture[str]) -> None:
    """The watch looks again when the spec is gone, though no file of containerd's own has changed."""
    node.driverctl("apply")
    system = RuntimeSystem(
        host=real_host(), sockets=UnixSockets(), request=RuntimeRequest(wanted=wanted_handlers())
    )
    observer = Observer(
        WatchTargets(system=system, layout=Layout(install_dir=str(node.home)), roots=DriverRoots())
    )
    assert observer.look().runtimes[0].stated is not None
    quiet = observer.fingerprint()
    spec = node.etc / "spec.json"
    spec.write_text("{")
    assert observer.fingerprint() != quiet
    [seen] = observer.look().runtimes
    assert seen.stated is None
    assert f"{spec}: failed to parse base OCI spec" in seen.refusal[0]
    capsys.readouterr()
    assert cli.run(["doctor"], real_host) == 1
    told = capsys.readouterr().out
    assert "restart-doomed" in told
    assert f'{node.etc}/site.toml:6: base_runtime_spec = "{spec}"' in told


@pytest.mark.parametrize("node", ["sid"], indirect=True)
def test_harmless_news_are_told_and_go_through(node: RuntimeNode, capsys: pytest.CaptureFixture[str]) -> None:
    site = node.etc / "site.toml"
    site.write_text(site.read_text().replace("4096", "8192"))
    node.driverctl("plan")
    assert f"a restart puts this in force, too: {site}" in capsys.readouterr().out
    node.driverctl("apply")
    assert set(node.handlers()) == {"runc", *NAMES}
    capsys.readouterr()
    node.driverctl("plan")
    assert "a restart puts" not in capsys.readouterr().out
