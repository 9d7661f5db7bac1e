"""Which handlers CRI-O's pods need, by the files from which it restores them."""

from __future__ import annotations

import json
from pathlib import Path

from driverforge_node.runtime.backends.crio_pods import ANNOTATION, STORAGE, pods_by_handler
from support.fakes.fakehost import FakeNode, fake_node


def sandbox(node: FakeNode, identity: str, handler: str, root: str = STORAGE, kind: str = "sandbox") -> None:
    about = {"RuntimeHandler": handler, "ContainerType": kind, "Namespace": "apps", "KubeName": identity}
    spec = {"annotations": {f"{ANNOTATION}{name}": value for name, value in about.items()}}
    write(node, f"{root}/overlay-containers/{identity}", json.dumps(spec))


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
    write(node, f"{STORAGE}/overlay-layers/f", '{"annotations": {"io.kubernetes.cri-o.RuntimeHandler": "x"}}')
    assert pods_by_handler(node.host.node, {}) == {}
