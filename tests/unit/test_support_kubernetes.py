"""The bench's API server: what can be checked without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from driverforge_core.errors import InputError, Unavailable
from support.cluster.kubernetes import Api, documents
from support.cluster.kubernetes_build import PROGRAMS, kubelet, programs


def test_documents_keep_their_text_and_comments_alone_are_none() -> None:
    text = "# about\n---\na: 1\na: 2\n---\n# nothing\n--- \nb: |\n  ---\n"
    assert documents(text) == ["a: 1\na: 2\n", "b: |\n  ---\n"]


def test_a_named_folder_without_programs_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "etcd").touch(mode=0o755)
    with pytest.raises(InputError) as caught:
        programs({PROGRAMS: str(tmp_path)})
    assert caught.value.details == (str(tmp_path / "kube-apiserver"),)


def test_a_named_folder_may_lack_the_kubelet_alone(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="without a kubelet"):
        kubelet({PROGRAMS: str(tmp_path)})
    (tmp_path / "kubelet").touch(mode=0o755)
    assert kubelet({PROGRAMS: str(tmp_path)}) == tmp_path / "kubelet"


def test_a_kubelet_gets_its_own_token_and_the_servers_certificate(tmp_path: Path) -> None:
    (tmp_path / "server.crt").write_text("PEM")
    api = Api(
        port=1234, token="admin", certificate=tmp_path / "server.crt", nodes={"a": "token-a", "b": "token-b"}
    )
    found = json.loads(api.kubeconfig("b"))
    assert [one["user"] for one in found["users"]] == [{"token": "token-b"}]
    assert found["clusters"][0]["cluster"] == {
        "server": "https://127.0.0.1:1234",
        "certificate-authority-data": "UEVN",
    }
