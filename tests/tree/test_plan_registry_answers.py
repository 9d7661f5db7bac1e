"""`driverforge plan --registry` with a registry that answers something, or cuts the connection."""

from __future__ import annotations

import json
import socket
import struct
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from driverforge_build import resources
from driverforge_build.cli import run
from driverforge_build.fetch import web
from driverforge_build.lock.file import dump_lock
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import load_matrix
from driverforge_build.plan.rows import all_cells
from driverforge_build.render.bake import INPUTS_LABEL, immutable_tag_of
from driverforge_build.render.context import context_of
from driverforge_build.render.spec import image_specs
from driverforge_oci.reference import Reference
from driverforge_oci.transport import Request
from support.fakes import wireserver
from support.fakes.fakeengine import store_image
from support.fakes.memoryregistry import MemoryRegistry
from support.samples.locks import sample_driver, target
from support.samples.sampledebian import write_matrix

LOCK = Lock(targets={"debian12-amd64": target(drivers={"535.261.03": sample_driver()})})
# an RST in place of a FIN
RESET = struct.pack("ii", 1, 0)


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix and a lock with one JIT image; nobody waits between two attempts."""
    write_matrix(tmp_path)
    (tmp_path / "site.lock.json").write_text(dump_lock(LOCK))
    monkeypatch.chdir(tmp_path)
    clock = SimpleNamespace(time=time.time, monotonic=time.monotonic, sleep=lambda _: None)
    monkeypatch.setattr(web, "time", clock)


def planned(
    conversation: wireserver.Conversation, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str, int]:
    """Exit status, the cell's verdict and reason, and how often the registry was asked."""
    with wireserver.talking(conversation) as server:
        words = ["--matrix", "site.yaml", "--lock", "site.lock.json", "--select", "debian12-*"]
        status = run(["plan", *words, "--registry", f"{server.address}/site", "--json"])
    (cell,) = json.loads(capsys.readouterr().out)["cells"]
    return status, cell["verdict"], cell["reason"], len(server.heads)


def saying(status: int) -> wireserver.Conversation:
    def say(connection: socket.socket, _head: str) -> None:
        connection.sendall(wireserver.answer(status=f"{status} ", Connection="close"))

    return say


def reset(connection: socket.socket, _head: str) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def holding(inputs: str = "") -> wireserver.Conversation:
    """A registry that has the image of the cell, made from these inputs or from ours."""
    (cell,) = (
        cell for cell in all_cells(load_matrix(Path("site.yaml")), LOCK) if cell.key.startswith("debian12-")
    )
    context = context_of(*image_specs([cell], LOCK), resources.templates())
    registry = MemoryRegistry()
    place = Reference.parse(f"registry.site/site/driver:{immutable_tag_of(context)}")
    store_image(registry, place, {INPUTS_LABEL: inputs or context.inputs})

    def serve(connection: socket.socket, head: str) -> None:
        method, path, _ = head.split(maxsplit=2)
        said = registry.send(Request(method=method, url=f"http://registry.site{path}"))
        body = b"" if method == "HEAD" else said.body.read()
        length = said.headers.get("content-length", len(body))
        names = {
            name.replace("-", "_"): value for name, value in said.headers.items() if name != "content-length"
        }
        told = wireserver.answer(
            body, status=f"{said.status} ", length=int(length), Connection="close", **names
        )
        connection.sendall(told)

    return serve


def test_an_image_of_the_same_inputs_exists(capsys: pytest.CaptureFixture[str]) -> None:
    assert planned(holding(), capsys)[:2] == (0, "exists")


def test_an_image_of_other_inputs_leaves_it_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    status, verdict, reason, _ = planned(holding("e" * 64), capsys)
    assert (status, verdict) == (75, "unknown")
    assert "made from other inputs" in reason


def test_no_image_is_one_to_build(capsys: pytest.CaptureFixture[str]) -> None:
    assert planned(saying(404), capsys)[:2] == (0, "build")


# whoever is refused does not ask again
@pytest.mark.parametrize(("answer", "asked"), [(401, 1), (403, 1), (429, 5), (500, 5)])
def test_an_answer_that_is_none_leaves_it_unknown(
    answer: int, asked: int, capsys: pytest.CaptureFixture[str]
) -> None:
    status, verdict, _, requests = planned(saying(answer), capsys)
    assert (status, verdict, requests) == (75, "unknown", asked)


def test_a_connection_that_is_reset_leaves_it_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    status, verdict, reason, asked = planned(reset, capsys)
    assert (status, verdict, asked) == (75, "unknown", 5)
    assert "does not answer: [Errno 104] Connection reset by peer" in reason
