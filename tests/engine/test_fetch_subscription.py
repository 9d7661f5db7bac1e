"""Packages of a subscription, downloaded in a build by the programs that ship: real dnf and zypper, and real
TLS servers that ask for a certificate or a login.

Roots and folders of the programs are below tmp_path; /run/secrets is a folder there too.
"""

from __future__ import annotations

import hashlib
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from driverforge_build import resources
from driverforge_build.discover.entitlement import find_entitlement, find_logins
from driverforge_build.discover.settings import Settings
from driverforge_build.discover.subscription import secrets_of, subscription
from driverforge_build.matrix import load_matrix
from support.fakes.mockpath import MockPath
from support.fakes.tlsfiles import TlsFiles, serving
from support.process import require, run
from support.samples.aptrepo import self_signed
from support.samples.rpmrepo import Rpm, RpmHome, build, index
from support.skipping import provided

DEVEL = Rpm(name="kernel-devel", version="5.14.0", release="1.el9", files={"/usr/src/Makefile": "all:"})
OPEN = Rpm(name="kmod", version="28", release="9.el9", files={"/usr/sbin/depmod": "depmod"})
USER, PASSWORD = "SCC_4711", "s3cret/@:x"
RHEL, SUSE = "rhel-9-for-x86_64-appstream-rpms", "sle-module-basesystem"


@dataclass(frozen=True)
class Bench:
    """A build's file system below `folder`; `entitlement` is what --entitlement names."""

    folder: Path
    own: Path
    entitlement: Path
    tools: MockPath
    environment: dict[str, str] = field(default_factory=dict)

    def scripts(self, family: str) -> None:
        """The programs that ship, with the build's folders here."""
        places = {
            "/run/secrets": "secrets",
            "/run/driverforge/repos.d": "given",
            "/etc/yum.repos.d": "repos.d",
            "/etc/zypp/repos.d": "repos.d",
        }
        for name in ("scripts/fetch-pinned", f"{family}/manager"):
            text = (resources.templates() / name).read_text()
            for path, own in places.items():
                text = text.replace(path, str(self.folder / own))
            target = self.folder / "scripts" / Path(name).name
            target.parent.mkdir(exist_ok=True)
            target.write_text(text)

    def configure(self, name: str, url: str, *more: str) -> None:
        """A repository that the base image is configured with."""
        lines = [f"[{name}]", f"name={name}", f"baseurl={url}", "enabled=1", "gpgcheck=0", *more]
        (self.folder / "repos.d" / f"{name}.repo").write_text("\n".join(lines) + "\n")

    def give(self, os_key: str, mirrors: dict[str, str]) -> None:
        """What `driverforge build --entitlement` passes, put where the engine puts it."""
        row = next(row for row in load_matrix().rows if row.id == os_key).on("amd64")
        settings = Settings(
            now=datetime.now(timezone.utc),
            mirrors=mirrors,
            entitlement=find_entitlement(self.entitlement),
            logins=find_logins(self.entitlement),
        )
        secrets = secrets_of(subscription(row, "amd64", settings), self.folder / "made", self.own)
        for name, file in secrets.items():
            place = self.folder / ("given/subscription.repo" if name == "subscription" else f"secrets/{name}")
            text = file.read_text().replace("/run/secrets", str(self.folder / "secrets"))
            place.write_text(text)

    def download(self, *pinned: tuple[str, Rpm], entitled: str) -> subprocess.CompletedProcess[str]:
        lines = []
        for repository, package in pinned:
            path = self.folder / repository / package.file_name
            digest, size = hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size
            version = f"{package.version}-{package.release}"
            lines.append(f"{digest} {size} {repository} {package.file_name} {package.name} {version}\n")
        (self.folder / "list").write_text("".join(lines))
        environment = {"DRIVERFORGE_STORE": f"{self.folder}/store", "ENTITLED": entitled, **self.environment}
        words = ["sh", self.folder / "scripts/fetch-pinned", "download", self.folder / "list"]
        return subprocess.run(
            [*words, self.folder / "got"],
            env=self.tools.environ(environment),
            capture_output=True,
            text=True,
            check=False,
        )

    def leaks(self, *secrets: str) -> list[Path]:
        """Files with a secret in them that the build leaves, but those that it was given."""
        names = ("given", "secrets", "made", "entitlement", "client", "server")
        given = {self.folder / name for name in names}
        return [
            path
            for path in self.folder.rglob("*")
            if path.is_file() and given.isdisjoint(path.parents)
            if any(secret.encode() in path.read_bytes() for secret in secrets)
        ]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    provided(lambda: require("createrepo_c", "rpmbuild", "openssl"))
    for repository, package in ((RHEL, DEVEL), (SUSE, DEVEL), ("open", OPEN)):
        build(package, tmp_path / repository)
        index(tmp_path / repository)
    for name in ("repos.d", "log", "secrets", "given", "entitlement"):
        (tmp_path / name).mkdir()
    client = self_signed(tmp_path / "client")
    run("openssl", "pkey", "-in", client, "-out", tmp_path / "entitlement/1-key.pem")
    run("openssl", "x509", "-in", client, "-out", tmp_path / "entitlement/1.pem")
    (tmp_path / "entitlement/SCCcredentials").write_text(f"username={USER}\npassword={PASSWORD}\n")
    own = self_signed(tmp_path / "server")
    run("openssl", "x509", "-in", own, "-out", tmp_path / "entitlement/redhat-uep.pem")
    home = RpmHome.make(tmp_path / "home")
    return Bench(tmp_path, own, tmp_path / "entitlement", MockPath(tmp_path / "bin"), dict(home.environ))


@pytest.fixture
def rhel(bench: Bench) -> Bench:
    provided(lambda: require("dnf"))
    folder = bench.folder
    (folder / "dnf.conf").write_text("[main]\n")
    bench.tools.add(
        "dnf",
        f"exec /usr/bin/dnf --config={folder}/dnf.conf --releasever=9 --installroot={folder}/root "
        f"--setopt=reposdir={folder}/repos.d --setopt=cachedir={folder}/cache --setopt=logdir={folder}/log "
        f'--setopt=persistdir={folder}/persist --setopt=skip_if_unavailable=0 "$@"',
    )
    bench.scripts("rhel")
    return bench


@contextmanager
def redhats(bench: Bench) -> Iterator[tuple[TlsFiles, TlsFiles]]:
    """A server for subscribers, and one that is open and would take note of a certificate."""
    client = bench.entitlement / "1.pem"
    with (
        serving(TlsFiles(bench.folder / RHEL, bench.own, authority=client, required=True)) as closed,
        serving(TlsFiles(bench.folder / "open", bench.own, authority=client)) as other,
    ):
        bench.configure("open", other.url, f"sslcacert={bench.entitlement}/redhat-uep.pem")
        yield closed, other


def test_the_certificate_of_a_subscription_opens_its_repository_and_no_other_host_sees_it(
    rhel: Bench,
) -> None:
    key = (rhel.entitlement / "1-key.pem").read_text().splitlines()[1]
    with redhats(rhel) as (closed, other):
        rhel.give("rhel9", {f"rhel9/{RHEL}": closed.url})
        done = rhel.download((RHEL, DEVEL), ("open", OPEN), entitled=RHEL)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (rhel.folder / "got").iterdir()} == {DEVEL.file_name, OPEN.file_name}
    assert closed.shown
    assert all(closed.shown)
    assert set(other.shown) == {None}
    assert rhel.leaks(key) == []
    assert not any(key in text for text in (done.stdout, done.stderr, *rhel.tools.calls("dnf")))


def test_without_it_the_build_ends_and_says_what_to_give(rhel: Bench) -> None:
    with redhats(rhel) as (closed, _):
        rhel.configure(RHEL, closed.url, f"sslcacert={rhel.entitlement}/redhat-uep.pem")
        done = rhel.download((RHEL, DEVEL), entitled=RHEL)
    assert done.returncode == 1
    assert f"fetch-pinned: a subscription is needed for {RHEL}" in done.stderr
    assert "driverforge build --entitlement DIR" in done.stderr


def test_a_base_that_has_the_repository_gets_the_certificate_for_it(rhel: Bench) -> None:
    with redhats(rhel) as (closed, _):
        rhel.configure(RHEL, closed.url, f"sslcacert={rhel.entitlement}/redhat-uep.pem")
        rhel.give("rhel9", {f"rhel9/{RHEL}": closed.url})
        done = rhel.download((RHEL, DEVEL), entitled=RHEL)
    assert done.returncode == 0, done.stderr
    assert all(closed.shown)


def test_a_subscription_that_does_not_cover_it_is_told_as_such(rhel: Bench) -> None:
    with serving(TlsFiles(rhel.folder / RHEL, rhel.own, login="nobody")) as closed:
        rhel.give("rhel9", {f"rhel9/{RHEL}": closed.url})
        done = rhel.download((RHEL, DEVEL), entitled=RHEL)
    assert done.returncode == 1
    assert f"check that the subscription has not ended and covers {RHEL}" in done.stderr


@pytest.fixture
def suse(bench: Bench) -> Bench:
    provided(lambda: require("zypper"))
    folder = bench.folder
    # zypper reads a site's authorities in one folder of the system alone: here the servers' own is named
    bench.tools.add("zypper", f'exec /usr/bin/zypper --root {folder}/root "$@"')
    bench.scripts("suse")
    return replace(bench, environment={**bench.environment, "HOME": str(folder)})


@contextmanager
def suses(bench: Bench) -> Iterator[TlsFiles]:
    login = "Basic " + b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    with serving(TlsFiles(bench.folder / SUSE, bench.own, login=login)) as server:
        bench.configure("open", (bench.folder / "open").as_uri())
        yield server


def test_suses_login_opens_a_repository_that_the_base_has_not(suse: Bench) -> None:
    with suses(suse) as server:
        suse.give("sles15.7", {f"sles15.7/{SUSE}": f"{server.url}?credentials=SCCcredentials&ssl_verify=no"})
        done = suse.download((SUSE, DEVEL), ("open", OPEN), entitled=SUSE)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (suse.folder / "got").iterdir()} == {DEVEL.file_name, OPEN.file_name}
    assert suse.leaks(PASSWORD, "s3cret") == []
    assert not any("s3cret" in text for text in (done.stdout, done.stderr, *suse.tools.calls("zypper")))


def test_without_suses_login_the_build_ends_and_says_what_to_give(suse: Bench) -> None:
    with suses(suse) as server:
        suse.configure(SUSE, f"{server.url}?ssl_verify=no")
        done = suse.download((SUSE, DEVEL), entitled=SUSE)
    assert done.returncode == 1
    assert f"a subscription is needed for {SUSE}" in done.stderr
