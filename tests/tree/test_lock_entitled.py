"""Repositories of a subscription: a real TLS server that asks each client for its certificate."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime, timezone
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
from support.fakes.tlsfiles import TlsFiles, serving
from support.process import missing, run
from support.samples import rockyrepo
from support.samples.aptrepo import self_signed
from support.samples.rockyrepo import MATRIX, NEW, OLD, rocky_matrix

PROGRAMS = ("createrepo_c", "modifyrepo_c", "rpmbuild", "openssl")
pytestmark = pytest.mark.skipif(
    bool(missing(*PROGRAMS)), reason=f"not installed: {', '.join(missing(*PROGRAMS))}"
)
ENTITLED = MATRIX.replace("signed: packages", "signed: packages\n        entitled: true")


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


def cdn(folder: Path, own: Path, host: Path) -> AbstractContextManager[TlsFiles]:
    """Files for clients that show the certificate of a host."""
    authority = host / "etc/pki/entitlement/4711.pem"
    return serving(TlsFiles(folder, own, authority=authority, required=True))


def surveyed(server: TlsFiles, cache: Path, entitlement: ClientCertificate | None, own: Path) -> Survey:
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
