"""Kubeconfigs mean to the operator's commands what they mean to kubectl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from driverforge_core.errors import InputError
from driverforge_operator.cluster.kubeconfig import Access, find


def config(**changes: Any) -> dict[str, Any]:
    """One as `kubectl config view` writes it, with changes of its parts."""
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "current-context": "site",
        "contexts": [{"name": "site", "context": {"cluster": "a", "user": "me", "namespace": "x"}}],
        "clusters": [{"name": "a", "cluster": {"server": "https://a.example:6443"}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
    }
    return {**document, **changes}


def write(path: Path, document: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return path


def read(*paths: Path, **environ: str) -> Access:
    return find({"KUBECONFIG": ":".join(map(str, paths)), **environ}, account=Path("/nowhere"))


def test_the_current_context_counts(tmp_path: Path) -> None:
    found = read(write(tmp_path / "config", config()))
    assert (found.server.server, found.user.token) == ("https://a.example:6443", "t")


def test_of_a_list_of_files_the_first_that_says_something_counts(tmp_path: Path) -> None:
    other = {"name": "a", "cluster": {"server": "https://other.example"}}
    first = write(
        tmp_path / "1/config", {"clusters": None, "users": [{"name": "me", "user": {"token": "1"}}]}
    )
    second = write(tmp_path / "2/config", config())
    third = write(tmp_path / "3/config", config(clusters=[other], **{"current-context": "no"}))
    found = read(first, tmp_path / "gone", second, third)
    assert (found.server.server, found.user.token) == ("https://a.example:6443", "1")
    found = find({"KUBECONFIG": f":{first}::{second}:"}, account=Path("/nowhere"))
    assert found.user.token == "1"


def test_paths_start_at_the_file_that_has_them(tmp_path: Path) -> None:
    user = {
        "client-certificate": "me.crt",
        "client-key": "/etc/me.key",
        "tokenFile": "t",
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "bin/login"},
    }
    first = write(tmp_path / "1/config", config(users=None, clusters=[]))
    server = {"server": "https://a.example", "certificate-authority": "../ca.crt"}
    second = write(
        tmp_path / "2/config",
        {"users": [{"name": "me", "user": user}], "clusters": [{"name": "a", "cluster": server}]},
    )
    found = read(first, second)
    folder = tmp_path / "2"
    assert found.server.certificate_authority == f"{folder}/../ca.crt"
    assert (found.user.client_certificate, found.user.client_key) == (f"{folder}/me.crt", "/etc/me.key")
    assert found.user.token_file == f"{folder}/t"
    assert found.user.exec is not None
    assert found.user.exec.command == f"{folder}/bin/login"


def test_a_program_without_a_path_is_looked_for_in_path(tmp_path: Path) -> None:
    program = {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws", "interactiveMode": "Never"}
    found = read(write(tmp_path / "config", config(users=[{"name": "me", "user": {"exec": program}}])))
    assert found.user.exec is not None
    assert found.user.exec.command == "aws"


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """A pod's service account."""
    folder = tmp_path / "account"
    folder.mkdir()
    for name in ("token", "ca.crt"):
        (folder / name).write_text("x")
    return folder


POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def test_a_pod_has_its_account_unless_a_kubeconfig_is_given(tmp_path: Path, account: Path) -> None:
    home = write(tmp_path / ".kube/config", config()).parents[1]
    found = find({**POD, "HOME": str(home)}, account=account)
    assert found.server.server == "https://10.0.0.1:443"
    assert found.user.token_file == str(account / "token")
    given = str(home / ".kube/config")
    assert find({**POD, "KUBECONFIG": given}, account=account).server.server == "https://a.example:6443"


def test_a_pod_of_ipv6(account: Path) -> None:
    assert find({**POD, "KUBERNETES_SERVICE_HOST": "fd00::1"}, account=account).server.server == (
        "https://[fd00::1]:443"
    )


def test_elsewhere_the_home_folders_counts(tmp_path: Path) -> None:
    write(tmp_path / ".kube/config", config())
    for environ in ({}, POD):
        found = find({**environ, "HOME": str(tmp_path)}, account=Path("/nowhere"))
        assert found.server.server == "https://a.example:6443"


WRONG: dict[str, tuple[object, str]] = {
    "no context is current": (config(**{"current-context": ""}), "there is no current-context"),
    "another context is current": (config(**{"current-context": "b"}), "there is no context 'b'"),
    "a context without a word": (config(contexts=[{"name": "site"}]), "there is no context 'site'"),
    "no contexts": (config(contexts=None), "there is no context 'site'"),
    "no cluster": (config(clusters=[]), "context 'site': there is no cluster 'a' with a server"),
    "a cluster without a server": (
        config(clusters=[{"name": "a", "cluster": {}}]),
        "context 'site': there is no cluster 'a' with a server",
    ),
    "no user": (config(users=[]), "context 'site': there is no user 'me'"),
    "a provider": (
        config(users=[{"name": "me", "user": {"auth-provider": {"name": "gcp"}}}]),
        "user 'me': auth-provider is gone since Kubernetes 1.26",
    ),
    "a wrong type": (config(clusters=[{"name": "a", "cluster": {"server": 1}}]), "Expected `str"),
    "a list": ([], ""),
    "no YAML": ("a: [", "while parsing"),
    "nothing": ("", "there is no current-context"),
    "another text": ("<html></html>", "Expected `object`"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_missing_is_one_sentence_with_the_file(what: str, tmp_path: Path) -> None:
    document, words = WRONG[what]
    path = write(tmp_path / "config", document)
    with pytest.raises(InputError, match="no cluster is known") as wrong:
        read(path)
    (told,) = wrong.value.details
    assert told.startswith(f"{path}: ")
    assert words in told
    assert wrong.value.resolution


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as wrong:
        read(tmp_path / "a", tmp_path / "b")
    assert wrong.value.details == (f"{tmp_path}/a, {tmp_path}/b: no file is there",)
    with pytest.raises(InputError, match="no cluster is known") as wrong:
        find({"HOME": str(tmp_path)}, account=Path("/nowhere"))
    assert "KUBECONFIG is not set" in wrong.value.details[0]


def test_a_user_without_a_login_is_one(tmp_path: Path) -> None:
    anonymous = [{"name": "site", "context": {"cluster": "a"}}]
    found = read(write(tmp_path / "config", config(contexts=anonymous, users=None)))
    assert found.user.token is None
