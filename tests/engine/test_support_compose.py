"""The registry that pytest-docker brings up with compose in the engine takes what the engine pushes."""

from __future__ import annotations

import json
import urllib.request

import docker

from support.machines.engine import Engine


def test_push_by_the_sdk_and_read_back(engine: Engine, bookworm: str, compose_registry: str) -> None:
    client = docker.DockerClient(base_url=engine.host)
    try:
        name = f"{compose_registry}/bench/base"
        client.images.get(bookworm).tag(name, "1")
        said = [json.loads(line) for line in client.images.push(name, "1").splitlines()]
        assert not [line for line in said if "error" in line]
        client.images.remove(f"{name}:1")
    finally:
        client.close()
    with urllib.request.urlopen(f"http://{compose_registry}/v2/bench/base/tags/list", timeout=10) as answer:
        assert json.load(answer) == {"name": "bench/base", "tags": ["1"]}
