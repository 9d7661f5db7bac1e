"""The node status exporter: what it serves."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_core.errors import Unavailable
from driverforge_core.validations import FOLDER
from driverforge_host.adapters.clock import SignalClock
from driverforge_host.ports import Host, JsonObject
from driverforge_toolkit.adapters.metrics_server import HttpMetrics
from driverforge_toolkit.app.validation import export
from driverforge_toolkit.validate.context import Context
from driverforge_toolkit.validate.node_metrics import METRICS
from driverforge_toolkit.validate.validator_settings import parse
from support.fakes.fakecluster import FakeCluster
from support.fakes.fakehost import FakeNode, fake_node

SMI = "/run/nvidia/driver/usr/bin/nvidia-smi"


class Scrapes:
    """A `MetricsServer` that keeps the page of each moment at which the exporter waits."""

    def __init__(self) -> None:
        self.page: Callable[[], str] = str

    @contextmanager
    def serve(self, port: int, page: Callable[[], str]) -> Iterator[int]:
        self.page = page
        yield port


def no_cuda(_: object) -> object:
    raise AssertionError("the exporter computes nothing")


def values(page: str) -> dict[str, float]:
    lines = [line for line in page.splitlines() if not line.startswith("#")]
    return {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in lines}


def context(host: Host, cluster: FakeCluster, name: str = "n1") -> Context:
    environ = {"COMPONENT": "metrics", "METRICS_PORT": "8000", "NODE_NAME": name}
    return Context(
        host=host,
        settings=parse(environ, {}),
        cluster=lambda: cluster,
        cuda=no_cuda,  # type: ignore[arg-type]
    )


def exported(node: FakeNode, cluster: FakeCluster, *, seconds: float, name: str = "n1") -> list[str]:
    """The page before each wait once it serves."""
    scrapes, pages = Scrapes(), []
    began = node.clock.time
    node.clock.stop_at = began + seconds
    node.clock.on_wait = lambda _: pages.append(scrapes.page())
    export(context(node.host, cluster, name), scrapes)
    return [page for page in pages if page]


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    made = fake_node(tmp_path)
    made.files.make_dirs(FOLDER)
    return made


def a_cluster(capacity: JsonObject) -> FakeCluster:
    object_ = {"metadata": {"name": "n1"}, "status": {"capacity": capacity}}
    return FakeCluster(objects={"/api/v1/nodes/n1": object_})


def put_driver(node: FakeNode, status: int) -> None:
    for path in (SMI, "/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1"):
        node.files.make_dirs(path.rpartition("/")[0])
        node.files.write_atomic(path, b"")
    node.commands.programs[SMI] = lambda _: (status, "GPU 0: a fake\n", "no device")


def test_a_node_where_all_works(node: FakeNode) -> None:
    put_driver(node, 0)
    for part in ("driver", "toolkit", "plugin", "cuda"):
        node.files.write_atomic(f"{FOLDER}/{part}-ready", b"")
    last = exported(node, a_cluster({"nvidia.com/gpu": "4", "nvidia.com/mig-1g.10gb": "3"}), seconds=60)[-1]
    now = node.clock.now()
    assert {name.partition("node_")[2] or name: value for name, value in values(last).items()} == {
        "metrics_ready_ts_seconds": now - 60,
        "driver_ready": 1,
        "toolkit_ready": 1,
        "plugin_ready": 1,
        "cuda_ready": 1,
        "driver_validation": 1,
        "driver_validation_last_success_ts_seconds": now - 60,
        "device_plugin_devices_total": 7,
        "device_plugin_validation_last_success_ts_seconds": now - 60,
        "gpu_operator_nvidia_pci_devices_total": 1,
    }


class StoppedAtOnce(Scrapes):
    """A `MetricsServer` whose first client is the kubelet's stop signal."""

    @contextmanager
    def serve(self, port: int, page: Callable[[], str]) -> Iterator[int]:
        os.kill(os.getpid(), signal.SIGTERM)
        yield port


def test_a_stop_signal_during_the_first_look_ends_the_exporter_in_order(node: FakeNode) -> None:
    def killed(*_: object) -> None:
        raise AssertionError("the exporter had no handler yet: the signal would have killed it")

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
    handlers = {number: signal.signal(number, killed) for number in numbers}
    wakeup = signal.set_wakeup_fd(-1)
    try:
        export(context(replace(node.host, clock=SignalClock()), FakeCluster()), StoppedAtOnce())
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def test_a_node_where_nothing_works_is_served_too(node: FakeNode) -> None:
    put_driver(node, 9)
    found = values(exported(node, FakeCluster(), seconds=60)[-1])
    assert found.pop("gpu_operator_node_metrics_ready_ts_seconds") > 0
    assert found.pop("gpu_operator_node_device_plugin_devices_total") == -1
    assert found.pop("gpu_operator_nvidia_pci_devices_total") == 1
    assert set(found.values()) == {0}


def test_a_file_that_cannot_be_read_does_not_end_the_exporter(node: FakeNode) -> None:
    def broken(_: object) -> tuple[int, str, str]:
        raise OSError("Input/output error")

    put_driver(node, 0)
    node.commands.programs[SMI] = broken
    found = values(exported(node, FakeCluster(), seconds=30)[-1])
    assert found["gpu_operator_node_driver_validation"] == 0


def test_success_of_earlier_keeps_its_time(node: FakeNode) -> None:
    put_driver(node, 0)
    began = node.clock.now()
    node.commands.programs[SMI] = lambda _: ((0 if node.clock.now() == began else 9), "GPU 0: a fake\n", "")
    found = values(exported(node, FakeCluster(), seconds=120)[-1])
    assert found["gpu_operator_node_driver_validation"] == 0
    assert found["gpu_operator_node_driver_validation_last_success_ts_seconds"] == began


def test_files_are_looked_at_twice_as_often_as_the_driver(node: FakeNode) -> None:
    put_driver(node, 0)
    assert len(exported(node, FakeCluster(), seconds=300)) == 10
    assert len(node.commands.calls) == 5


def test_each_metric_has_its_words_and_a_name_is_quoted(node: FakeNode) -> None:
    page = exported(node, FakeCluster(), seconds=30, name='n"1\n')[-1]
    assert page.count("# HELP ") == page.count("# TYPE ") == len(METRICS)
    assert page.count('{node="n\\"1\\n"} ') == len(METRICS)


def test_a_port_that_is_taken_is_told() -> None:
    with (
        HttpMetrics().serve(0, str) as port,
        pytest.raises(Unavailable, match=f"port {port} cannot be served") as caught,
        HttpMetrics().serve(port, str),
    ):
        pass
    assert "METRICS_PORT" in caught.value.resolution
