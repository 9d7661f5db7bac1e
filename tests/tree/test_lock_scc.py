"""SUSE's subscription: the login of a registered host, and a real TLS server that asks for it.

The server stands in for SUSE's, or a site's RMT; the repository is made with createrepo_c and signed.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from pathlib import Path

import pytest

from driverforge_build.discover.entitlement import find_entitlement, find_logins
from driverforge_build.discover.machine import read_machine
from driverforge_build.discover.settings import Settings
from driverforge_build.discover.survey import Survey, closed_targets, survey
from driverforge_build.fetch.cache import Cache
from driverforge_build.fetch.fetcher import Fetcher
from driverforge_build.fetch.web import mirror_transport
from driverforge_build.lock.file import dump_lock
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import Matrix
from driverforge_core.errors import InputError
from support.fakes.tlsfiles import TlsFiles, serving
from support.process import missing
from support.samples import suserepo
from support.samples.aptrepo import SigningKey, self_signed
from support.samples.suserepo import BASESYSTEM, BCI, DRIVER, MATRIX, suse_matrix

PROGRAMS = ("createrepo_c", "rpmbuild", "gpg", "gpgv", "openssl")
pytestmark = pytest.mark.skipif(
    bool(missing(*PROGRAMS)), reason=f"not installed: {', '.join(missing(*PROGRAMS))}"
)
TARGET = "sles15.7-amd64"
USER, PASSWORD = "SCC_4711", "s3cret/@:x"
CREDENTIALS = f"# of SUSEConnect\nusername={USER}\npassword={PASSWORD}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, key: SigningKey) -> Path:
    made = tmp_path_factory.mktemp("mirror")
    suserepo.publish(made / "bci", BCI, key)
    suserepo.publish(made / "update", BASESYSTEM, key)
    return made


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("server") / "own")


def scc(folder: Path, own: Path) -> AbstractContextManager[TlsFiles]:
    """Files for those who log in."""
    login = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    return serving(TlsFiles(folder, own, login=login))


def matrix(server: TlsFiles) -> Matrix:
    """The sample's, with an address for what a subscription opens."""
    row = "{id: sle-module-basesystem, entitled: true, role: extra"
    return suse_matrix(MATRIX.replace(row, f"{row}, urls: ['{server.url}/update/']"))


def host(root: Path, *, repo: str = "") -> Path:
    """The root folder of a registered host; `repo` is the address in its .repo file."""
    (root / "etc/zypp/credentials.d").mkdir(parents=True)
    (root / "etc/zypp/credentials.d/SCCcredentials").write_text(CREDENTIALS)
    (root / "etc/os-release").write_text('ID="sles"\nVERSION_ID="15.7"\n')
    if repo:
        (root / "etc/zypp/repos.d").mkdir()
        text = f"[sle-module-basesystem]\nbaseurl={repo}\nenabled=1\n"
        (root / "etc/zypp/repos.d/basesystem.repo").write_text(text)
    return root


def settings(folder: Path, key: SigningKey, root: Path, mirrors: Mapping[str, str] | None = None) -> Settings:
    return Settings(
        now=datetime.now(timezone.utc),
        machine=read_machine(root),
        mirrors={"sles15.7/SLE_BCI": (folder / "bci").as_uri(), **(mirrors or {})},
        keyrings=[("", key.keyring)],
        logins=find_logins(None, root=root),
    )


def surveyed(whole: Matrix, given: Settings, own: Path, cache: Path) -> Survey:
    transport = mirror_transport({"SSL_CERT_FILE": str(own)}, lambda _why, _seconds: None, {})
    return survey(whole, [(whole.rows[0], "amd64")], Lock(), Fetcher(Cache(cache), transport), given)


def test_the_login_of_a_registered_host_opens_the_rows_address_and_is_written_nowhere(
    folder: Path, own: Path, key: SigningKey, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with scc(folder, own) as server:
        given = settings(folder, key, host(tmp_path / "host"))
        found = surveyed(matrix(server), given, own, tmp_path / "cache")
    assert not found.closed
    target = found.targets[TARGET]
    assert DRIVER in target.drivers
    assert server.refused == []
    written = [dump_lock(Lock(targets=found.targets)), caplog.text, repr(given)]
    written += [
        path.read_text(errors="replace") for path in (tmp_path / "cache").rglob("*") if path.is_file()
    ]
    assert not [text for text in written if PASSWORD in text or "s3cret" in text]


@pytest.mark.parametrize("extra", ["", "&other=1"])
def test_zyppers_own_parameter_names_the_login(
    folder: Path, own: Path, key: SigningKey, tmp_path: Path, extra: str
) -> None:
    """zypper(8): ?credentials=FILE of /etc/zypp/credentials.d; as RMT writes it."""
    with scc(folder, own) as server:
        root = host(tmp_path / "host", repo=f"{server.url}/update?credentials=SCCcredentials{extra}")
        found = surveyed(suse_matrix(), settings(folder, key, root), own, tmp_path / "cache")
    assert DRIVER in found.targets[TARGET].drivers
    assert server.refused == []


def test_a_mirror_that_is_given_gets_the_login_by_tls_alone(
    folder: Path, own: Path, key: SigningKey, tmp_path: Path
) -> None:
    with scc(folder, own) as server:
        mirrors = {"sles15.7/sle-module-basesystem": f"{server.url}/update"}
        given = settings(folder, key, host(tmp_path / "host"), mirrors)
        found = surveyed(suse_matrix(), given, own, tmp_path / "cache")
    assert DRIVER in found.targets[TARGET].drivers
    plain = settings(folder, key, tmp_path / "host", {"sles15.7/sle-module-basesystem": "http://m.invalid/u"})
    from driverforge_build.discover.rpm.places import locate

    places = {one.id: one for one in locate(suse_matrix().rows[0].on("amd64"), "amd64", plain)}
    assert places["sle-module-basesystem"].uri == "http://m.invalid/u"


def test_without_a_login_that_is_said_before_anything_is_asked(
    folder: Path, own: Path, key: SigningKey, tmp_path: Path
) -> None:
    with scc(folder, own) as server:
        whole = matrix(server)
        given = settings(folder, key, tmp_path)
        (told,) = closed_targets([(whole.rows[0], "amd64")], given).values()
        assert told.brief == f"{TARGET}: a subscription is needed for sle-module-basesystem"
        assert "SCCcredentials" in told.resolution
        assert server.refused == []
        found = surveyed(whole, given, own, tmp_path / "cache")
        assert (list(found.closed), server.refused) == ([TARGET], [])


def test_a_login_that_the_server_does_not_take_is_told_without_it(
    folder: Path, own: Path, key: SigningKey, tmp_path: Path
) -> None:
    root = host(tmp_path / "host")
    (root / "etc/zypp/credentials.d/SCCcredentials").write_text("username=SCC_1\npassword=wrong-one\n")
    with scc(folder, own) as server:
        found = surveyed(matrix(server), settings(folder, key, root), own, tmp_path / "cache")
    told = found.closed[TARGET].render()
    assert "a subscription is needed for the repository sle-module-basesystem" in told
    assert "wrong-one" not in told
    assert DRIVER not in found.targets[TARGET].drivers


def test_a_folder_that_is_given_has_one_or_the_other(tmp_path: Path) -> None:
    (tmp_path / "SCCcredentials").write_text(CREDENTIALS)
    assert find_entitlement(tmp_path) is None
    (login,) = find_logins(tmp_path, root=tmp_path / "none").values()
    assert (login.username, login.password) == (USER, PASSWORD)
    assert PASSWORD not in repr(login)
    (tmp_path / "SCCcredentials").write_text("username=x\n")
    with pytest.raises(InputError, match="SCCcredentials has no login"):
        find_logins(tmp_path, root=tmp_path / "none")


def test_a_build_secret_is_a_login_too(tmp_path: Path) -> None:
    """As container-suseconnect has it."""
    (tmp_path / "run/secrets").mkdir(parents=True)
    (tmp_path / "run/secrets/SCCcredentials").write_text(CREDENTIALS)
    assert list(find_logins(None, root=tmp_path)) == ["SCCcredentials"]
