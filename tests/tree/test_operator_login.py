"""The operator's connection logs in as a kubeconfig says, over real TLS and with real programs."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from driverforge_core.errors import InputError, TemporaryFailure, Unavailable
from driverforge_operator.cluster.api import ApiServer
from driverforge_operator.cluster.kubeconfig import Access, Program, Server, User, Variable
from driverforge_operator.cluster.login import client
from driverforge_operator.state.kinds import NODE
from support.fakes import tunnel
from support.fakes.tlsfiles import TlsFiles

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
V1 = "client.authentication.k8s.io/v1"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates: `named` is of api.example, `here` of the loopback, `me` a client's; one file each."""
    folder = tmp_path_factory.mktemp("certificates")
    for name, subject in (("named", "DNS:api.example"), ("here", "IP:127.0.0.1"), ("me", "DNS:me")):
        how = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        what = ["-subj", f"/CN={name}", "-addext", f"subjectAltName={subject}"]
        files = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt")]
        subprocess.run(["openssl", "req", *how, *what, *files], check=True, capture_output=True)
        both = (folder / f"{name}.crt").read_text() + (folder / f"{name}.key").read_text()
        (folder / f"{name}.pem").write_text(both)
    node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "a", "resourceVersion": "1"}}
    (folder / "api/v1/nodes").mkdir(parents=True)
    (folder / "api/v1/nodes/a").write_text(json.dumps(node))
    return folder


@contextmanager
def server(site: Path, name: str = "here", **how: Any) -> Iterator[TlsFiles]:
    found = TlsFiles(site, site / f"{name}.pem", **how)
    thread = threading.Thread(target=found.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.shutdown()
        found.server_close()
        thread.join()


def asked(found: TlsFiles, site: Path, user: User | None = None, **cluster: Any) -> str:
    """The name of the node that the server tells to whoever logs in so."""
    trusted = {"certificate_authority": str(site / "here.crt")}
    access = Access(server=Server(server=found.url, **{**trusted, **cluster}), user=user or User())
    with client(access, httpx2.Timeout(30)) as http:
        return ApiServer(http, "gpu-operator").get(NODE, "a").metadata.name


def script(folder: Path, text: str) -> str:
    path = folder / "login"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def credential(version: str = V1, **status: str) -> str:
    return json.dumps({"kind": "ExecCredential", "apiVersion": version, "status": status})


def test_a_name_that_its_certificate_has_counts_for_its_address(site: Path) -> None:
    with server(site, "named") as found:
        trusted = {"certificate_authority": str(site / "named.crt")}
        assert asked(found, site, **trusted, tls_server_name="api.example") == "a"
        with pytest.raises(TemporaryFailure, match="does not answer"):
            asked(found, site, **trusted)
        assert asked(found, site, insecure_skip_tls_verify=True, certificate_authority=None) == "a"


@pytest.mark.parametrize("held", ["in files", "in the kubeconfig"])
def test_a_client_certificate_is_shown(site: Path, held: str) -> None:
    files = {"client_certificate": str(site / "me.crt"), "client_key": str(site / "me.key")}
    data = {
        f"{name}_data": base64.b64encode(Path(path).read_bytes()).decode() for name, path in files.items()
    }
    user = User(**(files if held == "in files" else data))
    with server(site, authority=site / "me.crt", required=True) as found:
        assert asked(found, site, user) == "a"
        assert found.shown != [None]


def test_a_proxy_of_the_kubeconfig_is_asked(site: Path) -> None:
    with server(site, "named") as found, tunnel.serve() as proxy:
        trusted = {"certificate_authority": str(site / "named.crt"), "tls_server_name": "api.example"}
        assert asked(found, site, **trusted, proxy_url=f"http://{proxy.address}") == "a"
        assert list(proxy.asked) == [f"127.0.0.1:{found.server_port}"]


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_program_gives_a_token_and_learns_of_its_cluster(site: Path, tmp_path: Path, version: str) -> None:
    version = V1.replace("v1", version)
    text = f"""printf %s "$KUBERNETES_EXEC_INFO" > {tmp_path}/told; printf '%s' "$ANSWER"; [ "$1" = --now ]"""
    program = Program(
        command=script(tmp_path, text),
        api_version=version,
        args=["--now"],
        env=[Variable(name="ANSWER", value=credential(version, token="t"))],
        provide_cluster_info=True,
    )
    with server(site, login="Bearer t") as found:
        assert asked(found, site, User(exec=program)) == "a"
        told = json.loads((tmp_path / "told").read_text())
        assert (told["kind"], told["apiVersion"]) == ("ExecCredential", version)
        assert told["spec"]["interactive"] is False
        assert told["spec"]["cluster"]["server"] == found.url
        assert base64.b64decode(told["spec"]["cluster"]["certificate-authority-data"])


def test_a_program_gives_a_certificate(site: Path, tmp_path: Path) -> None:
    shown = {
        "clientCertificateData": (site / "me.crt").read_text(),
        "clientKeyData": (site / "me.key").read_text(),
    }
    (tmp_path / "answer").write_text(credential(**shown))
    program = Program(command=script(tmp_path, f"cat {tmp_path}/answer"), api_version=V1)
    with server(site, authority=site / "me.crt", required=True) as found:
        assert asked(found, site, User(exec=program)) == "a"


@pytest.mark.parametrize(("until", "runs"), [("2020-01-01T00:00:00Z", 3), ("2999-01-01T00:00:00Z", 1)])
def test_a_program_is_asked_again_once_its_word_expires(
    site: Path, tmp_path: Path, until: str, runs: int
) -> None:
    answer = credential(token="t", expirationTimestamp=until)
    program = Program(
        command=script(tmp_path, f"echo run >> {tmp_path}/runs; echo '{answer}'"), api_version=V1
    )
    with server(site, login="Bearer t") as found:
        access = Access(
            server=Server(server=found.url, certificate_authority=str(site / "here.crt")),
            user=User(exec=program),
        )
        with client(access, httpx2.Timeout(30)) as http:
            for _ in range(3):
                assert ApiServer(http, "gpu-operator").get(NODE, "a").metadata.name == "a"
    assert (tmp_path / "runs").read_text().split() == ["run"] * runs


def test_a_token_that_is_refused_is_asked_for_once_more(site: Path, tmp_path: Path) -> None:
    old, new = credential(token="old"), credential(token="t")
    runs = f"{tmp_path}/runs"
    text = f"echo run >> {runs}; [ $(wc -l < {runs}) = 1 ] && echo '{old}' || echo '{new}'"
    program = Program(command=script(tmp_path, text), api_version=V1)
    with server(site, login="Bearer t") as found:
        assert asked(found, site, User(exec=program)) == "a"
    assert (tmp_path / "runs").read_text().split() == ["run"] * 2


FAILING = {
    "it fails": ("echo 'log in first' >&2; exit 3", "it ended with 3"),
    "it prints nothing": ("exit 0", "what it prints is no ExecCredential"),
    "it prints words": ("echo token", "what it prints is no ExecCredential"),
    "another version": (f"echo '{credential(token='t')}'".replace("/v1", "/v1beta1"), "not of"),
}


@pytest.mark.parametrize("what", FAILING)
def test_a_program_that_gives_nothing_is_told(site: Path, tmp_path: Path, what: str) -> None:
    text, words = FAILING[what]
    hint = "install it"
    program = Program(command=script(tmp_path, text), api_version=V1, install_hint=hint)
    with server(site) as found, pytest.raises(Unavailable, match="gives no login") as failed:
        asked(found, site, User(exec=program))
    assert words in failed.value.details[0]
    assert failed.value.resolution == hint


def test_a_program_that_is_not_there_or_needs_a_terminal_is_told(site: Path, tmp_path: Path) -> None:
    for program in (
        Program(command=str(tmp_path / "gone"), api_version=V1),
        Program(command=script(tmp_path, "exit 0"), api_version=V1, interactive_mode="Always"),
    ):
        with server(site) as found, pytest.raises(Unavailable, match="gives no login"):
            asked(found, site, User(exec=program))


WRONG: dict[str, tuple[dict[str, Any], User]] = {
    "an authority that is not there": ({"certificate_authority": "/nowhere"}, User()),
    "an authority that is none": ({"certificate_authority_data": "AAAA"}, User()),
    "a certificate without a key": ({}, User(client_certificate_data="AAAA")),
    "a certificate that is none": ({}, User(client_certificate_data="AAAA", client_key_data="AAAA")),
    "a proxy that is none": ({"proxy_url": "ftp://proxy"}, User()),
    "another exec": ({}, User(exec=Program(command="x", api_version="v1"))),
    "a server that is none": ({"server": "https://[x"}, User()),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_used_is_one_sentence(what: str) -> None:
    cluster, user = WRONG[what]
    access = Access(server=Server(**{"server": "https://a.example", **cluster}), user=user)
    with pytest.raises(InputError, match="the kubeconfig's cluster cannot be asked"):
        client(access, httpx2.Timeout(1), environ={})


def test_who_asks_may_be_somebody_else() -> None:
    user = User(impersonate="jane", impersonate_groups=["a", "b"], impersonate_uid="1")
    with client(Access(server=Server(server="http://a"), user=user), httpx2.Timeout(1), environ={}) as http:
        assert http.headers.get_list("Impersonate-Group") == ["a", "b"]
        assert (http.headers["Impersonate-User"], http.headers["Impersonate-Uid"]) == ("jane", "1")


def test_a_token_is_read_again_and_the_last_one_counts_while_its_file_is_gone(
    site: Path, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    with server(site, login="Bearer first") as found:
        user = User(token_file=str(token))
        with pytest.raises(TemporaryFailure, match="does not answer"):
            asked(found, site, user)
        token.write_text("first\n")
        access = Access(
            server=Server(server=found.url, certificate_authority=str(site / "here.crt")), user=user
        )
        with client(access, httpx2.Timeout(30)) as http:
            api = ApiServer(http, "gpu-operator")
            assert api.get(NODE, "a").metadata.name == "a"
            token.unlink()
            assert api.get(NODE, "a").metadata.name == "a"
            found.login = "Bearer second"
            token.write_text("second")
            assert api.get(NODE, "a").metadata.name == "a"
