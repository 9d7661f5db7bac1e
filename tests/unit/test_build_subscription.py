"""What builds are given of a subscription: files that a command line names, for those images alone whose
packages are there. How dnf and zypper read them is in tests/engine/test_fetch_subscription.py.
"""

from __future__ import annotations

import stat
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from driverforge_build import resources
from driverforge_build.advice import BuildOptions
from driverforge_build.app.build import BuildRequest, closed_repositories, jobs
from driverforge_build.app.prepare import check_mirrors
from driverforge_build.commands.shared import adapters
from driverforge_build.discover.settings import Login, Settings
from driverforge_build.discover.subscription import Subscription, subscription
from driverforge_build.engine.buildah import build_command
from driverforge_build.engine.buildx import bake_command
from driverforge_build.matrix import Cell, load_matrix
from driverforge_build.ports import BuildJob, ClientCertificate
from driverforge_build.render.context import BuildContext, context_of
from driverforge_build.render.spec import image_specs
from driverforge_core.errors import InputError, UsageError
from support.samples.synthetic import all_cells, synthetic_lock

MATRIX = load_matrix()
CELLS = {cell.key: cell for cell in all_cells(MATRIX)}
RHEL = CELLS["rhel9-amd64-535.309.01-5.14.0-687.5.1.el9_8.x86_64"]
APPSTREAM = "rhel-9-for-x86_64-appstream-rpms"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIsecret\n"


def context(cell: Cell = RHEL, *, headers_of: str = APPSTREAM) -> BuildContext:
    """An image whose headers are in a repository of that name."""
    (image,) = image_specs([cell], synthetic_lock(MATRIX))
    headers = tuple(replace(package, suite=headers_of) for package in image.pins["headers"])
    return context_of(replace(image, pins={**image.pins, "headers": headers}), resources.templates())


@pytest.fixture
def certificate(tmp_path: Path) -> ClientCertificate:
    folder = tmp_path / "entitlement"
    folder.mkdir()
    for name, text in (("1.pem", "public\n"), ("1-key.pem", KEY), ("redhat-uep.pem", "RED HAT'S")):
        (folder / name).write_text(text)
    return ClientCertificate(
        certificate=folder / "1.pem", key=folder / "1-key.pem", authorities=folder / "redhat-uep.pem"
    )


def opened(cell: Cell, **settings: object) -> Subscription:
    given = replace(Settings(now=datetime(2026, 11, 20, tzinfo=timezone.utc)), **settings)  # type: ignore[arg-type]
    return subscription(cell.os, cell.arch, given)


def job(tmp_path: Path, own: BuildContext, given: Subscription, *, ca: Path | None = None) -> BuildJob:
    request = BuildRequest(folder=tmp_path, options=BuildOptions(ca=ca), subscriptions={"rhel9-amd64": given})
    secrets = tmp_path / "secrets"
    secrets.mkdir(exist_ok=True)
    (made,) = jobs(request, (own,), {}, bake_file=tmp_path / "docker-bake.json", secrets=secrets)
    return made


def test_the_headers_of_a_subscription_are_fetched_with_its_secrets_and_nothing_else_is() -> None:
    steps = context().entries["Dockerfile"].content.decode().split("\nRUN ")
    told = [step for step in steps if "subscription" in step]
    assert len(told) == 1
    assert f'ENTITLED="{APPSTREAM}" \\\n    /run/driverforge/scripts/fetch-pinned download' in told[0]
    assert "id=subscription,target=/run/driverforge/repos.d/subscription.repo" in told[0]
    plain = context(headers_of="ubi-9-appstream-rpms").entries["Dockerfile"].content
    assert b"subscription" not in plain


def test_engines_are_told_the_files_and_no_command_line_has_a_secret(
    tmp_path: Path, certificate: ClientCertificate
) -> None:
    work = job(tmp_path, context(), opened(RHEL, entitlement=certificate))
    assert work.secrets["subscription-key"] == certificate.key
    target = {"context": "a", "platforms": ["linux/amd64"], "labels": {}, "args": {"SOURCE_DATE_EPOCH": "1"}}
    bake = bake_command(work, environment={})
    buildah = build_command("podman", work, target, environment={})
    assert f"*.secrets=id=subscription-key,src={certificate.key}" in bake
    assert f"--allow=fs.read={certificate.key}" in bake
    assert f"id=subscription-key,src={certificate.key}" in buildah
    assert not [word for word in (*bake, *buildah) if "MIIsecret" in word]


def test_each_repository_of_a_subscription_names_its_certificate(certificate: ClientCertificate) -> None:
    told = opened(RHEL, entitlement=certificate)
    sections = told.repo_file.split("\n\n")
    address = "https://cdn.redhat.com/content/dist/rhel9/9/x86_64/appstream/os"
    (appstream,) = [section for section in sections if section.startswith(f"[{APPSTREAM}]")]
    assert f"baseurl={address}\n" in appstream
    for section in sections:
        assert "sslclientcert=/run/secrets/subscription-certificate\n" in section
        assert "sslclientkey=/run/secrets/subscription-key\n" in section
        assert "sslcacert=/run/secrets/subscription-authorities" in section


def test_a_sites_authorities_stand_beside_red_hats(tmp_path: Path, certificate: ClientCertificate) -> None:
    (tmp_path / "site.pem").write_text("THE SITE'S\n")
    work = job(tmp_path, context(), opened(RHEL, entitlement=certificate), ca=tmp_path / "site.pem")
    assert work.secrets["subscription-authorities"].read_text() == "RED HAT'S\nTHE SITE'S\n"


def test_images_that_need_no_subscription_get_nothing_of_it(
    tmp_path: Path, certificate: ClientCertificate
) -> None:
    given = opened(RHEL, entitlement=certificate)
    assert job(tmp_path, context(headers_of="ubi-9-appstream-rpms"), given).secrets == {}
    assert job(tmp_path, context(), opened(RHEL)).secrets == {}


def test_what_nothing_opens_is_known_before_a_build(certificate: ClientCertificate) -> None:
    assert closed_repositories([context()], {}) == {"rhel9-amd64": (APPSTREAM,)}
    assert closed_repositories([context()], {"rhel9-amd64": opened(RHEL)}) == {"rhel9-amd64": (APPSTREAM,)}
    given = {"rhel9-amd64": opened(RHEL, entitlement=certificate)}
    assert closed_repositories([context()], given) == {}


def test_a_login_is_in_a_file_for_us_alone(tmp_path: Path) -> None:
    suse = next(cell for key, cell in CELLS.items() if key.startswith("sles15.7-amd64-") and cell.kernel)
    given = opened(
        suse,
        logins={"SCCcredentials": Login(username="SCC_1", password="pass/word")},
        mirrors={"sles15.7/sle-module-basesystem": "https://rmt.site/update"},
    )
    assert "baseurl=https://SCC_1:pass%2Fword@rmt.site/update\n" in given.repo_file
    assert "pass%2Fword" not in repr(given)
    file = job(tmp_path, context(), given).secrets["subscription"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_certificate_of_the_machine_that_we_may_not_read_is_left_alone_and_a_given_one_is_not(
    certificate: ClientCertificate, tmp_path: Path
) -> None:
    missing = replace(certificate, authorities=tmp_path / "nowhere.pem")
    assert opened(RHEL, entitlement=missing).ids == frozenset()
    certificate.key.unlink()
    with pytest.raises(InputError, match="has no certificate of a subscription"):
        adapters.subscriptions(
            {("rhel9", "amd64"): RHEL.os}, mirrors={}, entitlement=certificate.key.parent, own=True
        )


def test_a_copy_of_a_subscriptions_repository_may_be_given_for_builds() -> None:
    mirror = f"rhel9/{APPSTREAM}"
    check_mirrors({mirror: "https://user:secret@mirror.site/a"}, (RHEL,))
    with pytest.raises(UsageError, match="rhel9 uses dnf"):
        check_mirrors({"rhel9/ubi-9-appstream-rpms": "https://mirror.site/a"}, (RHEL,))
    told = opened(RHEL, mirrors={mirror: "https://user:secret@mirror.site/a"})
    assert told.ids == {APPSTREAM}
    assert "sslclientcert" not in told.repo_file
