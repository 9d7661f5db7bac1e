"""Where RPM repositories are: --mirror, the machine's .repo files, the rows; and who is let in."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from driverforge_build.discover.machine import Machine
from driverforge_build.discover.offered import ON_REQUEST
from driverforge_build.discover.repofiles import RepoFile
from driverforge_build.discover.rpm.places import RpmPlace, locate
from driverforge_build.discover.settings import Settings
from driverforge_build.discover.survey import closed_targets
from driverforge_build.matrix import load_matrix
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.load import parse_matrix
from driverforge_build.ports import ClientCertificate

CERTIFICATE = ClientCertificate(certificate=Path("/e/1.pem"), key=Path("/e/1-key.pem"))


def located(
    os_key: str,
    arch: Arch = "amd64",
    *,
    mirrors: dict[str, str] | None = None,
    machine: Machine | None = None,
    entitlement: ClientCertificate | None = None,
) -> dict[str, RpmPlace]:
    row = next(row for row in load_matrix().rows if row.id == os_key)
    settings = Settings(
        now=datetime(2026, 11, 20, tzinfo=timezone.utc),
        mirrors=mirrors or {},
        machine=machine or Machine(),
        entitlement=entitlement,
    )
    return {place.id: place for place in locate(row.on(arch), arch, settings)}


@pytest.mark.parametrize(
    ("os_key", "mirror", "repository", "expected"),
    [
        ("rocky9", "http://m/rocky/9", "baseos", "http://m/rocky/9/BaseOS/x86_64/os"),
        ("rocky9", "http://m/rocky/9/", "appstream", "http://m/rocky/9/AppStream/x86_64/os"),
        ("ol9", "http://m/OL9", "ol9_baseos_latest", "http://m/OL9/baseos/latest/x86_64"),
        ("sles15.7", "http://m/bci", "SLE_BCI", "http://m/bci/x86_64/product"),
        ("rhel9", "http://m/ubi", "ubi-9-baseos-rpms", "http://m/ubi/x86_64/baseos/os"),
    ],
)
def test_a_mirror_of_an_os_stands_for_what_its_addresses_share(
    os_key: str, mirror: str, repository: str, expected: str
) -> None:
    found = located(os_key, mirrors={os_key: mirror}, entitlement=CERTIFICATE)
    assert found[repository].uri == expected


def test_one_repository_of_one_architecture_may_be_elsewhere() -> None:
    mirrors = {
        "rocky9": "http://m/9",
        "rocky9-arm64/baseos": "http://b/base/",
        "rocky9/appstream": "http://a",
    }
    assert located("rocky9", "arm64", mirrors=mirrors)["baseos"].uri == "http://b/base"
    assert located("rocky9", mirrors=mirrors)["baseos"].uri == "http://m/9/BaseOS/x86_64/os"
    assert located("rocky9", mirrors=mirrors)["appstream"].uri == "http://a"


def test_the_rows_own_addresses_come_last() -> None:
    assert located("rocky9")["baseos"].uri == "https://dl.rockylinux.org/pub/rocky/9/BaseOS/x86_64/os"
    own = RepoFile(id="baseos", uri="http://own/$basearch/os", keys=(Path("/k"),))
    machine = Machine(id="rocky", version="9.7", repositories=(own,))
    place = located("rocky9", "arm64", machine=machine)["baseos"]
    assert (place.uri, place.keyrings) == ("http://own/aarch64/os", (Path("/k"),))
    assert located("rocky8", machine=machine)["baseos"].uri.startswith("https://dl.rockylinux.org/")


MINORS = b"""\
extends: builtin
systems:
  - {id: rocky9.6, like: rocky9, name: Rocky 9.6, base: "registry.site/rocky:9.6", releasever: "9.6"}
  - {id: rhel9.6, like: rhel9, name: RHEL 9.6, base: "registry.site/ubi:9.6", releasever: "9.6"}
"""


def test_a_row_of_a_minor_release_has_the_addresses_of_older_ones() -> None:
    rows = {row.id: row for row in parse_matrix(MINORS, name="site.yaml").rows}
    settings = Settings(now=datetime(2026, 11, 20, tzinfo=timezone.utc), entitlement=CERTIFICATE)
    found = {
        place.id: place.uri
        for key in ("rocky9.6", "rhel9.6")
        for place in locate(rows[key].on("amd64"), "amd64", settings)
    }
    assert found["baseos"] == "https://dl.rockylinux.org/vault/rocky/9.6/BaseOS/x86_64/os"
    eus, main = "rhel-9-for-x86_64-baseos-eus-rpms", "rhel-9-for-x86_64-baseos-rpms"
    assert found[eus] == "https://cdn.redhat.com/content/eus/rhel9/9.6/x86_64/baseos/os"
    assert found[main] == "https://cdn.redhat.com/content/dist/rhel9/9.6/x86_64/baseos/os"
    assert eus not in located("rhel9", entitlement=CERTIFICATE)


def test_without_a_subscription_its_repositories_are_left_out_and_told_before_anything_is_asked() -> None:
    assert list(located("rhel9")) == ["cuda-rhel9", "ubi-9-baseos-rpms", "ubi-9-appstream-rpms"]
    row = next(row for row in load_matrix().rows if row.id == "rhel9")
    now = datetime(2026, 11, 20, tzinfo=timezone.utc)
    (told,) = closed_targets([(row, "amd64")], Settings(now=now)).values()
    assert told.brief == (
        "rhel9-amd64: a subscription is needed for rhel-9-for-x86_64-baseos-rpms and "
        "rhel-9-for-x86_64-appstream-rpms"
    )
    assert "--entitlement DIR" in told.resolution
    assert closed_targets([(row, "amd64")], Settings(now=now, entitlement=CERTIFICATE)) == {}


def test_what_a_subscription_opens_is_for_what_asks_for_it_by_name() -> None:
    """An image is built from repositories that its base is configured with."""
    wanted = {place.id: place.preference for place in located("rhel9", entitlement=CERTIFICATE).values()}
    on_request = {name for name, preference in wanted.items() if preference == ON_REQUEST}
    assert on_request == {name for name in wanted if name.startswith(("rhel-9-for-", "cuda-"))}


def test_an_entitlement_opens_the_addresses_of_the_rows() -> None:
    places = located("rhel9", entitlement=CERTIFICATE)
    baseos = places["rhel-9-for-x86_64-baseos-rpms"]
    assert baseos.uri == "https://cdn.redhat.com/content/dist/rhel9/9/x86_64/baseos/os"
    assert baseos.certificate == CERTIFICATE
    assert located("rocky9", entitlement=CERTIFICATE)["baseos"].certificate is None


def test_a_registered_hosts_own_certificate_goes_before_one_that_is_given() -> None:
    own = ClientCertificate(certificate=Path("/own.pem"), key=Path("/own-key.pem"))
    repositories = tuple(
        RepoFile(id=f"rhel-9-for-x86_64-{name}-rpms", uri=f"https://cdn/{name}", certificate=own)
        for name in ("baseos", "appstream")
    )
    places = located(
        "rhel9", machine=Machine(id="rhel", version="9.8", repositories=repositories), entitlement=CERTIFICATE
    )
    found = {place.certificate for name, place in places.items() if name.startswith("rhel-9-for")}
    assert found == {own}


def test_a_mirror_of_ones_own_needs_no_subscription() -> None:
    names = [f"rhel-9-for-x86_64-{name}-rpms" for name in ("baseos", "appstream")]
    places = located("rhel9", mirrors={f"rhel9/{name}": f"http://satellite/{name}" for name in names})
    assert [places[name].uri for name in names] == [f"http://satellite/{name}" for name in names]
    assert {places[name].certificate for name in names} == {None}


def test_what_is_extra_and_closed_is_left_out() -> None:
    """SUSE's headers are open to all, its kernels and finished modules to subscribers."""
    assert "SLE_BCI" in located("sles15.7")
    assert "sle-module-basesystem" not in located("sles15.7")
    exact = {"sles15.7/sle-module-basesystem": "https://scc.site/basesystem"}
    assert located("sles15.7", mirrors=exact)["sle-module-basesystem"].uri == "https://scc.site/basesystem"


def test_a_repository_may_have_keys_of_its_own(tmp_path: Path) -> None:
    (keyring := tmp_path / "vendor.gpg").touch()
    extra = f"repositories: [{{id: vendor, urls: ['https://v.site/'], keyring: '{keyring}', role: extra}}]"
    site = f"extends: builtin\nsystems: [{{id: rocky9, {extra}}}]\n"
    row = next(row for row in parse_matrix(site.encode(), name="site.yaml").rows if row.id == "rocky9")
    settings = Settings(now=datetime(2026, 11, 20, tzinfo=timezone.utc))
    found = {place.id: place.keyrings for place in locate(row.on("amd64"), "amd64", settings)}
    assert found["vendor"] == (keyring,)
    assert found["baseos"] == ()
