"""The bench's registry: on a port of its own, open or closed."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from support.machines import registry
from support.process import missing

pytestmark = pytest.mark.skipif(
    bool(missing("docker-registry", "setpriv")), reason="docker-registry is not installed"
)


def _get(url: str, login: str = "") -> bytes:
    headers = {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"} if login else {}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
        body: bytes = answer.read()
    return body


def test_two_registries_do_not_disturb_each_other(tmp_path: Path) -> None:
    with registry.serve(tmp_path / "a") as first, registry.serve(tmp_path / "b") as second:
        assert first.address != second.address
        for server in (first, second):
            assert json.loads(_get(f"http://{server.address}/v2/_catalog")) == {"repositories": []}


def test_a_closed_registry_wants_the_password(tmp_path: Path) -> None:
    with registry.serve(tmp_path, users={"ci": "correct hörse"}) as server:
        with pytest.raises(urllib.error.HTTPError, match="401") as refusal:
            _get(f"http://{server.address}/v2/")
        refusal.value.close()
        assert _get(f"http://{server.address}/v2/", "ci:correct hörse") == b"{}"


def test_it_ends_with_its_block(tmp_path: Path) -> None:
    with registry.serve(tmp_path) as server:
        address = server.address
    with pytest.raises(urllib.error.URLError, match="refused"):
        _get(f"http://{address}/v2/")
