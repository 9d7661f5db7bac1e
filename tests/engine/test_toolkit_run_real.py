"""`driverctl toolkit run` over real daemons: NVIDIA's Go programs installed, handlers reported, a stop that
undoes or does not.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import driverctl
from driverforge_core.errors import InputError
from support.machines.runtimenode import RuntimeNode, open_node
from support.process import run, until
from support.skipping import provided
from support.upstream import gotools, recordedctk

PROGRAM = "import sys; sys.argv[0] = sys.argv.pop(1); from driverctl.cli import main; main()"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="containerd needs root")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gotools.artifacts_or_doubles(tmp_path_factory.mktemp("artifacts"))


@pytest.fixture
def node() -> Iterator[RuntimeNode]:
    """containerd 1.6 with a file of a person's, running."""
    with open_node("containerd", "bookworm") as made:
        made.start(
            '# ours\nversion = 2\n[plugins."io.containerd.grpc.v1.cri"]\n  sandbox_image = "site/pause:3"\n'
        )
        yield made


class Toolkit:
    """The command on this machine, with its folders below the node's home."""

    def __init__(self, node: RuntimeNode, source: Path) -> None:
        self.node = node
        self.folder = node.home / "nvidia"
        self.state = node.home / "state"
        self.words = [
            f"--toolkit-source-root={source}",
            f"--toolkit-install-dir={self.folder}",
            f"--pid-file={self.state}/toolkit.pid",
            f"--socket={node.socket}",
            f"--config={node.config}",
            f"--drop-in-config={node.drop_in}",
            f"--executable-path={node.program}",
            f"--restart-command={node.home}/restart",
            "--set-as-default=false",
        ]
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path(driverctl.__file__).parents[1]),
        }

    def command(self, name: str, *more: str) -> list[str]:
        action = ["toolkit", "run"] if name == "driverctl" else []
        return [sys.executable, "-c", PROGRAM, name, *action, *self.words, *more]

    def phase(self) -> str:
        path = self.state / "status.json"
        return path.read_text() if path.exists() else ""

    @contextmanager
    def serving(self, name: str) -> Iterator[subprocess.Popen[str]]:
        """A running instance that said it is ready; it is stopped at the end, and has to end well."""
        log = self.node.home / "toolkit.log"
        with (
            log.open("w") as out,
            subprocess.Popen(self.command(name), env=self.environment, stderr=out, text=True) as running,
        ):
            try:
                until(
                    lambda: '"ready"' in self.phase() or running.poll() is not None,
                    "the toolkit",
                    timeout=120,
                    log=log,
                )
                if running.poll() is not None:
                    raise InputError("toolkit run ended", details=log.read_text().splitlines())
                yield running
            finally:
                running.send_signal(signal.SIGTERM)
                running.wait(timeout=120)
        assert running.returncode == 0, log.read_text()

    def handlers(self) -> dict[str, str]:
        folder = f"{self.folder}/toolkit/nvidia-container-runtime"
        return {"nvidia": folder, "nvidia-cdi": f"{folder}.cdi", "nvidia-legacy": f"{folder}.legacy"}


def test_a_pod_and_its_replacement_then_a_stop_that_undoes(node: RuntimeNode, source: Path) -> None:
    toolkit = Toolkit(node, source)
    files, before = node.snapshot(), node.handlers()
    with toolkit.serving("driverctl"):
        assert node.handlers() == {**before, **toolkit.handlers()}
        second = subprocess.run(
            toolkit.command("driverctl"), env=toolkit.environment, capture_output=True, text=True, check=False
        )
        assert second.returncode == 75
        assert "another instance serves" in second.stderr
    assert (node.restarts(), node.handlers()) == (1, {**before, **toolkit.handlers()}), (
        "a stop is no uninstall"
    )
    marks = node.marks()
    with toolkit.serving("driverctl"):
        assert (node.restarts(), node.marks()) == (1, marks), "the next pod finds everything in place"
    with toolkit.serving("nvidia-toolkit"):
        assert (node.restarts(), node.marks()) == (1, marks)
    assert node.snapshot() == files, "NVIDIA's name undoes at a stop, to the byte"
    assert node.handlers() == before
    assert (toolkit.folder / "toolkit/nvidia-ctk").exists(), "the programs stay: containers run from them"


def installed(node: RuntimeNode, source: Path) -> Path:
    """The folder of the programs, after a start that installs and ends."""
    toolkit = Toolkit(node, source)
    run(
        *toolkit.command("driverctl", "--no-daemon", "--nvidia-container-runtime.mode=cdi"),
        env=toolkit.environment,
    )
    return toolkit.folder / "toolkit"


def test_nvidias_programs_run_from_the_wrappers(node: RuntimeNode, source: Path) -> None:
    provided(gotools.programs)
    told = run(installed(node, source) / "nvidia-ctk", "--version").stdout
    assert f"version {gotools.VERSION}" in told


def test_nvidias_program_reads_our_config_toml_and_the_wrapper_minds_the_driver(
    node: RuntimeNode, source: Path
) -> None:
    folder = installed(node, source)
    file = folder / ".config/nvidia-container-runtime/config.toml"
    shown = provided(lambda: recordedctk.config(node.home, file))
    assert 'mode = "cdi"' in shown
    assert f'path = "{folder}/nvidia-container-cli"' in shown
    driver = "nvidia " in Path("/proc/modules").read_text() if Path("/proc/modules").exists() else False
    if not driver:
        told = run(folder / "nvidia-container-runtime", "--version", check=False)
        assert "no nvidia module is loaded" in told.stderr
