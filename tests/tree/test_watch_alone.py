"""`driverctl toolkit watch --reapply` beside `driverctl runtime apply`.

What was applied is applied again, and nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from driverforge_toolkit.app.configure_runtime import apply_runtime, request_again
from driverforge_toolkit.app.toolkit_watch import watch_toolkit
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.backends.containerd import handlers
from driverforge_toolkit.runtime.backends.containerd_config import CRI_V2, default_of
from driverforge_toolkit.runtime.formats.values import lookup
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem
from driverforge_toolkit.toolkit.settings import settings_of
from support.fakes.driverroot import bare_node
from support.fakes.fakecontainerd import CONFIG, ROOT, FakeContainerd
from support.fakes.fakehost import FakeNode

KUBESPRAY = ROOT + b"\n[metrics]\naddress = '127.0.0.1:1338'\n"
FLAGS = {"reapply": "true", "restart_command": "restart"}


class Bench:
    """A node that `driverctl runtime apply` configured, with options that are not those of the toolkit."""

    def __init__(self, home: Path, **wanted: Any) -> None:
        self.node: FakeNode = bare_node(home)
        self.daemon = FakeContainerd(node=self.node)
        request = RuntimeRequest(wanted=wanted_handlers(**wanted), restart_command="restart")
        for handler in request.wanted.handlers:
            self.node.host.node.make_dirs(handler.binary.rpartition("/")[0])
            self.node.host.node.write_atomic(handler.binary, b"")
        apply_runtime(RuntimeSystem(host=self.node.host, sockets=self.daemon, request=request))

    def rewritten(self, **flags: str) -> None:
        """Kubespray writes containerd's file and restarts it, and the watch puts that right."""
        clock, begin, starts = self.node.clock, self.node.clock.time, self.daemon.starts
        clock.stop_at = begin + 600
        todo = [lambda: self.node.host.node.write_atomic(CONFIG, KUBESPRAY), self.daemon.restart]
        clock.on_wait = lambda now: todo.pop(0)() if todo and now > begin else None
        watch_toolkit(self.node.host, self.daemon, settings_of({**FLAGS, **flags}, {}))
        assert self.daemon.starts == starts + 2, "kubespray's restart and one re-apply"


def test_the_default_handler_stays_whose_it_was(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.rewritten()
    assert "nvidia" in handlers(bench.daemon.running)
    assert default_of(bench.daemon.running) == "runc"


def test_names_programs_and_default_are_those_that_were_applied(tmp_path: Path) -> None:
    bench = Bench(tmp_path, folder="/opt/toolkit", name="gpu", default=True)
    before = handlers(bench.daemon.running)
    assert before["gpu"] == "/opt/toolkit/nvidia-container-runtime"
    bench.rewritten(runtime_name="other", set_as_default="false")
    assert handlers(bench.daemon.running) == before
    assert default_of(bench.daemon.running) == "gpu"


def test_so_are_cdi_annotations_and_options(tmp_path: Path) -> None:
    bench = Bench(tmp_path, cdi=True, prefixes=("x.io/",), override='{"options": {"SystemdCgroup": true}}')
    (before,) = journal.entries(bench.node.host)
    bench.rewritten()
    (entry,) = journal.entries(bench.node.host)
    assert entry.wanted == before.wanted
    section = lookup(bench.daemon.running, CRI_V2)
    assert isinstance(section, dict)
    assert section["enable_cdi"] is True
    nvidia = section["containerd"]["runtimes"]["nvidia"]
    assert nvidia["container_annotations"] == ["x.io/*"]
    assert nvidia["options"]["SystemdCgroup"] is True


def test_a_revert_that_was_cut_off_does_not_lose_what_was_applied(tmp_path: Path) -> None:
    bench = Bench(tmp_path, name="gpu")
    (entry,) = journal.entries(bench.node.host)
    cut = replace(entry, handlers=(), default="", wanted=None, state="prepared", earlier=entry)
    request = request_again(RuntimeRequest(wanted=wanted_handlers(name="other")), cut)
    assert request.wanted == entry.wanted
    assert (request.runtime, request.config) == ("containerd", CONFIG)
