"""The bench's own engine.

It builds and runs, leaves the machine as it was, and does not survive its starter.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from driverforge_core.errors import Unavailable
from support.machines import engine as engines
from support.machines.engine import Engine
from support.process import children, run, running, start, until
from support.skipping import provided

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="an engine of our own needs root")


@pytest.fixture
def home() -> Iterator[Path]:
    """A short path: a Unix socket's has 107 bytes at most."""
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)


def _machine() -> dict[str, str]:
    """What an engine could change of this machine."""
    links = {path.name for path in Path("/sys/class/net").iterdir()}
    forwarding = {
        str(path): path.read_text() for path in Path("/proc/sys/net").glob("ipv*/conf/all/forwarding")
    }
    rules = run("iptables-save", check=False).stdout if shutil.which("iptables-save") else "no iptables here"
    counted = "\n".join(line.partition("[")[0] for line in rules.splitlines() if not line.startswith("#"))
    mounts = sorted(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return {
        "links": str(sorted(links)),
        "forwarding": str(forwarding),
        "rules": counted,
        "mounts": str(mounts),
    }


def _processes(home: Path) -> list[str]:
    """Command lines of processes that name a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and running(int(entry.name)):
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if str(home) in words:
                found.append(words)
    return found


def test_it_builds_and_runs(engine: Engine, bookworm: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        f"FROM {bookworm}\nRUN --mount=type=cache,target=/c <<X\necho built >/made\nX\n"
    )
    build = [
        "buildx",
        "build",
        "--network",
        engine.network,
        "--load",
        "--tag",
        "driverforge-bench/built",
        tmp_path,
    ]
    engine.docker(*build)
    shown = engine.docker(
        "run",
        "--rm",
        "--privileged",
        "--network",
        engine.network,
        "driverforge-bench/built",
        "cat",
        "/made",
        "/etc/os-release",
    )
    assert shown.stdout.startswith("built\n")
    assert "VERSION_CODENAME=bookworm" in shown.stdout
    engine.docker("image", "rm", "driverforge-bench/built")


def test_it_exports_oci_archives(engine: Engine, bookworm: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {bookworm}\n")
    engine.docker("buildx", "build", "--output", f"type=oci,dest={tmp_path}/image.tar", tmp_path)
    assert "index.json" in run("tar", "-tf", tmp_path / "image.tar").stdout.split()


def test_the_base_names_the_machines_mirror_and_is_imported_once(engine: Engine, bookworm: str) -> None:
    created = engine.docker("image", "inspect", "--format", "{{.Created}}", bookworm).stdout
    assert engines.debian_base(engine, "bookworm") == bookworm
    assert engine.docker("image", "inspect", "--format", "{{.Created}}", bookworm).stdout == created
    sources = engine.docker(
        "run", "--rm", "--network", engine.network, bookworm, "sh", "-c", "cat /etc/apt/sources.list"
    ).stdout
    assert sources.startswith("deb http")


def test_start_join_stop_leave_the_machine_as_it_was(home: Path) -> None:
    provided(engines.programs)
    before = _machine()
    first = engines.start_own(home)
    try:
        second = engines.start_own(home)
        assert (first.owned, second.owned) == (True, False)
        second.stop()  # not its own
        assert first.docker("info", "--format", "{{.Driver}}").stdout.strip() == "overlayfs"
        assert _machine() == before
    finally:
        first.stop()
    assert _processes(home) == []
    assert _machine() == before


def test_a_killed_engine_leaves_nothing_and_starts_again(home: Path) -> None:
    provided(engines.programs)
    first = engines.start_own(home)
    assert first.child is not None
    first.child.kill()
    first.child.wait()
    first.stop()
    until(lambda: not _processes(home), "the end of dockerd and containerd", timeout=20)
    # the number in the stale PID file belongs to somebody else by now
    (home / "docker.pid").write_text(str(os.getpid()))
    (home / "docker.sock").touch()
    again = engines.start_own(home)
    try:
        assert again.owned
        assert again.docker("info", check=False).status == 0
    finally:
        again.stop()


def test_it_dies_with_whoever_started_it(home: Path) -> None:
    provided(engines.programs)
    program = (
        f"import sys, time; sys.path[:0] = {sys.path!r}\n"
        "from pathlib import Path\nfrom support.machines import engine\n"
    )
    program += f"engine.start_own(Path({str(home)!r}))\nprint('started', flush=True)\ntime.sleep(1000)\n"
    log = home / "starter.log"
    starter = start([sys.executable, "-c", program], log=log)
    until(lambda: "started" in log.read_text(), "the starter", timeout=120, child=starter, log=log)
    assert _processes(home)
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    until(lambda: not _processes(home), "the engine's end", timeout=20)
    assert children(starter.pid) == []


def test_what_is_no_engine_is_not_taken_for_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{home}/nothing.sock")
    with pytest.raises(Unavailable, match=r"no engine answers|no docker command"):
        engines.find()


def test_workers_that_import_one_image_at_the_same_time_all_have_it(engine: Engine, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "root.tar", "w") as archive:
        archive.add(Path(__file__), "file")
    name = "driverforge-bench:at-the-same-time"

    def take(number: int) -> None:
        engines.import_once(engine, tmp_path / "root.tar", name, label=f"round-{number // 4}")

    try:
        with ThreadPoolExecutor(4) as workers:
            list(workers.map(take, range(12)))
        found = engine.docker("image", "inspect", "--format", "{{json .Config.Labels}}", name).stdout
        assert "round-" in found
    finally:
        engine.docker("image", "rm", "--force", name, check=False)
