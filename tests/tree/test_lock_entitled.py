"""Repositories of a subscription: a real TLS server that asks each client for its certificate."""

from __future__ import annotations

import functools
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from driverforge_build.discover.entitlement import find_entitlement
from driverforge_build.discover.settings import Nowhere, Settings
from driverforge_build.discover.survey import Survey, survey
from driverforge_build.fetch.cache import Cache
from driverforge_build.fetch.fetcher import Fetcher
from driverforge_build.fetch.web import mirror_transport
from driverforge_build.lock.pins import Lock
from driverforge_build.ports import ClientCertificate
from driverforge_core.errors import InputError
from support.process import missing, run
from support.samples import rockyrepo
from support.samples.aptrepo import self_signed
from support.samples.rockyrepo import MATRIX, NEW, OLD, rocky_matrix

PROGRAMS = ("createrepo_c", "modifyrepo_c", "rpmbuild", "openssl")
pytestmark = pytest.mark.skipif(
    bool(missing(*PROGRAMS)), reason=f"not installed: {', '.join(missing(*PROGRAMS))}"
)
ENTITLED = MATRIX.replace("signed: packages", "signed: packages\n        entitled: true")


class Cdn(ThreadingHTTPServer):
    """Files for clients that show a certificate of `client`; `status` answers all of them instead."""

    def __init__(self, folder: Path, own: Path, client: Path) -> None:
        self.requests: list[str] = []
        self.status = 0
        super().__init__(("127.0.0.1", 0), functools.partial(_Handler, directory=str(folder)))
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(own)
        tls.load_verify_locations(client)
        tls.verify_mode = ssl.CERT_REQUIRED
        self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A handshake that fails is what some tests are about."""


class _Handler(SimpleHTTPRequestHandler):
    server: Cdn

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        if self.server.status:
            self.send_error(self.server.status)
        else:
            super().do_GET()

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cdn") / "rocky"
    rockyrepo.publish(folder, "x86_64", None)
    return folder


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root folder of a registered host: the certificate that subscription-manager left there."""
    root = tmp_path_factory.mktemp("host")
    made = self_signed(root / "made")
    folder = root / "etc/pki/entitlement"
    folder.mkdir(parents=True)
    run("openssl", "pkey", "-in", made, "-out", folder / "4711-key.pem")
    run("openssl", "x509", "-in", made, "-out", folder / "4711.pem")
    return root


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("server") / "own")


@contextmanager
def cdn(folder: Path, own: Path, host: Path) -> Iterator[Cdn]:
    server = Cdn(folder, own, host / "etc/pki/entitlement/4711.pem")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def surveyed(server: Cdn, cache: Path, entitlement: ClientCertificate | None, own: Path) -> Survey:
    matrix = rocky_matrix(ENTITLED.replace("https://dl.rocky.invalid/pub/rocky/{releasever}", server.url))
    settings = Settings(now=datetime.now(timezone.utc), entitlement=entitlement)
    certificates: dict[str, ClientCertificate] = {}
    transport = mirror_transport({"SSL_CERT_FILE": str(own)}, lambda _why, _seconds: None, certificates)
    downloads = Fetcher(Cache(cache), transport, certificates=certificates)
    return survey(matrix, [(matrix.rows[0], "amd64")], Lock(), downloads, settings)


def test_the_certificate_of_a_registered_host_opens_its_repositories(
    repositories: Path, own: Path, host: Path, tmp_path: Path
) -> None:
    found = find_entitlement(None, root=host)
    with cdn(repositories, own, host) as server:
        target = surveyed(server, tmp_path, found, own).targets["rocky9-amd64"]
    assert list(target.kernels) == [f"{OLD}.x86_64", f"{NEW}.x86_64"]
    assert [one.packages_only for one in target.repositories] == [True, True]


def test_without_one_nothing_is_asked(repositories: Path, own: Path, host: Path, tmp_path: Path) -> None:
    with cdn(repositories, own, host) as server:
        with pytest.raises(Nowhere, match="a subscription is needed for baseos and appstream"):
            surveyed(server, tmp_path, None, own)
        assert server.requests == []


def test_a_subscription_that_does_not_cover_it_is_told_as_such(
    repositories: Path, own: Path, host: Path, tmp_path: Path
) -> None:
    with cdn(repositories, own, host) as server:
        server.status = 403
        with pytest.raises(Nowhere, match="a subscription is needed for baseos and appstream") as told:
            surveyed(server, tmp_path, find_entitlement(None, root=host), own)
    assert [line for line in told.value.details if line.endswith("HTTP 403 Forbidden")]
    assert "has not ended" in told.value.resolution


def test_what_a_subscription_had_opened_is_not_taken_out_of_the_lock(
    repositories: Path, tmp_path: Path
) -> None:
    """The subscription has ended, or this is another host: a shorter target would lose its kernels."""
    matrix = rocky_matrix(ENTITLED)
    copies = {"baseos": "BaseOS", "appstream": "AppStream"}

    def found(earlier: Lock, *ids: str) -> Survey:
        mirrors = {f"rocky9/{one}": (repositories / copies[one] / "x86_64/os").as_uri() for one in ids}
        settings = Settings(now=datetime.now(timezone.utc), mirrors=mirrors, accept_shrink=True)
        downloads = Fetcher(Cache(tmp_path), mirror_transport({}, lambda *_: None))
        return survey(matrix, [(matrix.rows[0], "amd64")], earlier, downloads, settings)

    before = Lock(targets=found(Lock(), *copies).targets)
    assert list(found(Lock(), "baseos").closed) == ["rocky9-amd64"]
    with pytest.raises(Nowhere, match="a subscription is needed for appstream"):
        found(before, "baseos")


def test_a_folder_that_is_given_and_has_none(tmp_path: Path) -> None:
    assert find_entitlement(None, root=tmp_path) is None
    with pytest.raises(InputError, match="has no certificate of a subscription"):
        find_entitlement(tmp_path)


def test_a_certificate_that_is_none(repositories: Path, own: Path, host: Path, tmp_path: Path) -> None:
    for name in ("1.pem", "1-key.pem"):
        (tmp_path / name).write_text("no certificate\n")
    with (
        cdn(repositories, own, host) as server,
        pytest.raises(InputError, match=r"the client certificate .*1\.pem cannot be used"),
    ):
        surveyed(server, tmp_path / "cache", find_entitlement(tmp_path), own)
