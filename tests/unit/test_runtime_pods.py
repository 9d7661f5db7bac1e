"""Which handlers CRI-O's pods need, by the files from which it restores them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from driverforge_core.errors import CommandFailed
from driverforge_toolkit.runtime.backends import config_files
from driverforge_toolkit.runtime.model import Handler
from driverforge_toolkit.runtime.transaction import held
from driverforge_toolkit.runtime.transaction.held import ANNOTATION, STORAGE, pods_by_handler
from driverforge_toolkit.runtime.transaction.observed import ObservedRuntime
from support.fakes.fakehost import FakeNode, fake_node


def sandbox(
    node: FakeNode,
    identity: str,
    handler: str,
    root: str = STORAGE,
    kind: str = "sandbox",
    store: str = "overlay-containers",
) -> None:
    about = {"RuntimeHandler": handler, "ContainerType": kind, "Namespace": "apps", "KubeName": identity}
    spec = {"annotations": {f"{ANNOTATION}{name}": value for name, value in about.items()}}
    write(node, f"{root}/{store}/{identity}", json.dumps(spec))


def write(node: FakeNode, folder: str, text: str) -> None:
    node.host.node.make_dirs(f"{folder}/userdata")
    node.host.node.write_atomic(f"{folder}/userdata/config.json", text.encode())


def test_pods_are_told_by_the_handler_that_they_name(tmp_path: Path) -> None:
    node = fake_node(tmp_path, gpu=False)
    sandbox(node, "b", "nvidia")
    sandbox(node, "a", "nvidia")
    sandbox(node, "c", "nvidia-cdi")
    sandbox(node, "plain", "")
    sandbox(node, "main", "nvidia-legacy", kind="container")
    assert pods_by_handler(node.host.node, {}) == {"nvidia": ("apps/a", "apps/b"), "nvidia-cdi": ("apps/c",)}


def test_the_storage_is_where_the_configuration_has_it(tmp_path: Path) -> None:
    node = fake_node(tmp_path, gpu=False)
    sandbox(node, "a", "nvidia")
    sandbox(node, "b", "nvidia", root="/data/storage")
    assert pods_by_handler(node.host.node, {"crio": {"root": "/data/storage"}}) == {"nvidia": ("apps/b",)}
    assert pods_by_handler(node.host.node, {"crio": {"root": ""}}) == {"nvidia": ("apps/a",)}


def test_what_is_being_made_or_removed_and_what_is_broken_is_passed_over(tmp_path: Path) -> None:
    node = fake_node(tmp_path, gpu=False)
    assert pods_by_handler(node.host.node, {}) == {}
    broken = ("{", "[]", '{"annotations": null}', '"x"', "[" * 100_000)
    for name, text in zip("abcdg", broken, strict=True):
        write(node, f"{STORAGE}/overlay-containers/{name}", text)
    node.host.node.make_dirs(f"{STORAGE}/overlay-containers/e")
    assert pods_by_handler(node.host.node, {}) == {}
    sandbox(node, "f", "nvidia", store="overlay-layers")
    assert pods_by_handler(node.host.node, {}) == {}


# --- what of our change stays for them

OURS = {"nvidia": "/t/n", "nvidia-cdi": "/t/c"}


def seen(kind: str = "crio", programs: Mapping[str, str] | None = OURS) -> ObservedRuntime:
    """As little of it as is looked at here."""
    entry = None if programs is None else SimpleNamespace(programs=programs, names=tuple(programs))
    edit = SimpleNamespace(handlers=lambda clean: {"crun": "/c"})
    return cast(
        ObservedRuntime,
        SimpleNamespace(daemon=SimpleNamespace(kind=kind), entry=entry, edit=edit, clean={}, disk={}),
    )


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    """Pods of a handler of ours, of one that is there anyway, and of one that is none of ours."""
    made = fake_node(tmp_path, gpu=False)
    for pod, handler in (("a", "nvidia"), ("b", "crun"), ("c", "kata")):
        sandbox(made, pod, handler)
    return made


def test_a_handler_of_ours_stays_for_the_pods_that_name_it(node: FakeNode) -> None:
    found = held.held_handlers(node.host, seen(), {})
    assert found.handlers == (Handler(name="nvidia", binary="/t/n"),)
    assert ["apps/a" in note for note in found.notes] == [True]
    assert held.held_handlers(node.host, seen(), {}, besides=("nvidia",)).handlers == ()
    own = seen(programs={**OURS, "crun": "/t/crun"})
    assert [each.name for each in held.held_handlers(node.host, own, {}).handlers] == ["nvidia"]
    assert held.held_handlers(node.host, seen(programs=None), {}).handlers == ()
    assert held.held_handlers(node.host, seen("containerd"), {}).handlers == ()


def test_pods_that_would_lose_their_handler_are_told_also_where_crio_is_broken(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def broken(*question: object) -> dict[str, object]:
        asked.append(question)
        raise CommandFailed("crio does not run")

    monkeypatch.setattr(held, "effective_configuration", broken)
    (told,) = held.pods_that_lose_theirs(node.host, seen())
    assert told.startswith("the handler nvidia goes, ")
    assert "apps/a" in told
    assert held.pods_that_lose_theirs(node.host, seen(programs=None)) == ()
    asked.clear()
    assert held.pods_that_lose_theirs(node.host, seen("containerd")) == ()
    assert asked == []


def test_the_files_of_a_drop_in_folder_are_those_that_crio_walks(tmp_path: Path) -> None:
    """Those of folders in it too, but a link to a folder is a file, which it cannot read."""
    files = fake_node(tmp_path, gpu=False).host.node
    folder = "/etc/crio/crio.conf.d"
    for path in (f"{folder}/10-a.conf", f"{folder}/20-d/x.conf", "/elsewhere/y.conf"):
        files.make_dirs(path.rpartition("/")[0])
        files.write_atomic(path, b"")
    below = config_files._below
    assert [*below(files, folder, ("99-nvidia.toml",))] == [
        f"{folder}/10-a.conf",
        f"{folder}/20-d/x.conf",
        f"{folder}/99-nvidia.toml",
    ]
    files.symlink("/elsewhere", f"{folder}/30-link")
    assert f"{folder}/30-link" in below(files, folder)
    assert f"{folder}/30-link/y.conf" not in below(files, folder)
