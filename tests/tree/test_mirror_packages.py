"""Packages of a mirror's list: locked, carried, laid out, and installed by the real package managers.

They install from the folder alone, without a network.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from driverforge_build.cli import run as driverforge
from support.jsonschemas import check_document
from support.process import missing, run
from support.samples import rockyrepo, suserepo
from support.samples.aptrepo import Archive, Deb, SigningKey, served, signing_key
from support.samples.chartsite import ChartSite, chart_site
from support.samples.clusternodes import node, write_nodes
from support.samples.rpmrepo import add_metadata, index, sign, sign_index
from support.samples.sampledebian import BASE, MATRIX, NEW, OLD, SECURITY

PACKAGES = "localhost/driverforge/packages:debian12-amd64"
CUT = ("unshare", "--user", "--map-root-user", "--net")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    wanted = ("docker-registry", "setpriv", "gpg", "gpgv", "dpkg-deb", "apt-get", "unshare")
    if gone := missing(*wanted):
        pytest.skip(f"not installed: {', '.join(gone)}")
    drivers = [f"nvcr.io/nvidia/driver:595.91.07-{one}" for one in ("debian12", "rocky9", "sles15.7")]
    with (
        signing_key(tmp_path / "key", algorithm="rsa2048") as key,
        chart_site(tmp_path, *drivers) as (vendor, mirror),
    ):
        yield Site(folder=tmp_path, vendor=vendor, mirror=mirror, key=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site(ChartSite):
    """With a distribution's repositories, and the key that signs them."""

    key: SigningKey

    def lock_packages(self, mirror: str, os: str) -> int:
        found = ("--packages", "--matrix", str(self.folder / "site.yaml"), "--mirror", f"{os}={mirror}")
        return self.lock(*found, "--keyring", str(self.key.keyring), "--accept-expired")

    def packages(self) -> Any:
        return next(one for one in self.document()["images"] if one["image"] == PACKAGES)


REBUILT = Deb(name="linux-kbuild-6.1", version="6.1.190-1", depends="libc6, libelf1")
"""Of no kernel there, but apt takes it, for it is the newest that the headers' dependency admits."""


def list_further(suite: Path, key: SigningKey) -> None:
    """Name one more index in a suite's InRelease, as Debian's names a hundred."""
    signed = suite / "InRelease"
    text = signed.read_text().partition("\n\n")[2].partition("-----BEGIN PGP SIGNATURE")[0]
    lines = [f" {'0' * 64} 123 main/dep11/Components-amd64.yml{end}\n" for end in ("", ".gz", ".xz")]
    signed.write_text(key.clearsign(text + "".join(lines)))


def publish(site: Site) -> str:
    """A Debian whose security suite is past its time, as each is that stands still; and nodes of it."""
    debian, security = (
        Archive(site.folder / "debian-site" / name, site.key) for name in ("debian", "debian-security")
    )
    list_further(debian.publish("bookworm", {"main": list(BASE), "non-free": []}), site.key)
    security.publish(
        "bookworm-security", {"main": [*SECURITY, REBUILT]}, prefix="updates/", valid_for=timedelta(hours=1)
    )
    matrix = MATRIX.replace("/nowhere/archive.gpg", str(site.key.keyring))
    (site.folder / "site.yaml").write_text(matrix)
    write_nodes(site.folder, node("gpu-0", os=("debian", "12"), kernel=OLD))
    return debian.url


def apt(root: Path, sources: str) -> list[str]:
    """apt-get of an image that has the compiler, and the libraries that header packages need."""
    for folder in (
        "etc/apt/parts",
        "lists/partial",
        "cache/archives/partial",
        "var/lib/dpkg/info",
        "var/lib/dpkg/updates",
    ):
        (root / folder).mkdir(parents=True)
    there = [
        one
        for one in BASE
        if one.name in ("libc6", "libelf1", "libgcc-s1", "linux-compiler-gcc-12-x86", "gcc-12", "binutils")
    ]
    status = "\n".join(
        f"Package: {one.name}\nStatus: install ok installed\n" + one.control().partition("\n")[2]
        for one in there
    )
    (root / "var/lib/dpkg/status").write_text(status)
    (root / "sources.list").write_text(sources)
    settings = {
        "APT::Architecture": "amd64",
        "APT::Sandbox::User": "root",
        "Dir::Cache": root / "cache",
        "Dir::Etc::PreferencesParts": root / "etc/apt/parts",
        "Dir::Etc::SourceList": root / "sources.list",
        "Dir::Etc::SourceParts": root / "etc/apt/parts",
        "Dir::State::Lists": root / "lists",
        "Dir::State::status": root / "var/lib/dpkg/status",
        "DPkg::Options::": f"--root={root}",
        "DPkg::Pre-Install-Pkgs": "",
        "APT::Update::Error-Mode": "any",
        # what the package appstream adds to an image
        "Acquire::IndexTargets::deb::DEP-11::MetaKey": "$(COMPONENT)/dep11/Components-amd64.yml",
        "Acquire::IndexTargets::deb::DEP-11::ShortDescription": "DEP-11",
        "Acquire::IndexTargets::deb::DEP-11::KeepCompressed": "true",
        "Acquire::IndexTargets::deb::DEP-11::KeepCompressedAs": "gz",
        "Acquire::IndexTargets::deb::DEP-11::Description": "DEP-11",
    }
    config = root / "apt.conf"
    config.write_text(
        "#clear DPkg::Pre-Install-Pkgs;\n"
        + "".join(f'{name} "{value}";\n' for name, value in settings.items() if value)
    )
    return ["env", f"APT_CONFIG={config}", "apt-get", "-q", "--assume-yes"]


def test_apt_installs_headers_from_what_was_carried(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert site.lock_packages(publish(site), "debian12") == 0
    check_document("mirror-lock", site.document())
    told = site.packages()
    assert [(one["kernel"], one["next_boot"], one["nodes"]) for one in told["reasons"]] == [
        (OLD, False, ["gpu-0"]),
        (NEW, True, []),
    ]
    capsys.readouterr()
    assert site.call("explain", f"linux-headers-{OLD}") == 0
    assert "nodes: gpu-0" in capsys.readouterr().out
    assert site.save() == 0
    # what follows is on the other side: nothing of the vendors is there
    (site.folder / "debian-site").rename(site.folder / "gone")
    receipt = site.folder / "receipt.json"
    assert site.load("--receipt", str(receipt)) == 0
    assert site.call("verify", "--deep", "--to", site.mirror) == 0
    out = site.folder / "served"
    capsys.readouterr()
    assert site.call("packages", "--to", site.mirror, "--out", str(out)) == 0
    printed = capsys.readouterr().out
    configuration = yaml.safe_load((out / "repo-config-debian12.yaml").read_text())
    sources = configuration["data"]["driverforge.list"]
    assert all(line in printed for line in sources.splitlines())
    root = site.folder / "root"
    command = [*CUT, *apt(root, sources)]
    run(*command, "update")
    run(*command, "install", f"linux-headers-{OLD}", f"linux-headers-{NEW}")
    assert (root / f"usr/src/linux-headers-{OLD}/.config").exists()
    run(*command, "download", f"linux-image-{OLD}", cwd=root)
    # the next archive brings none of them again
    (site.folder / "gone").rename(site.folder / "debian-site")
    assert site.save("--inventory", str(receipt)) == 0
    left_out = json.loads(Path(f"{site.archive}.list.json").read_text())["left_out"]
    assert told["platforms"][0]["blobs"].items() <= left_out.items()


def test_a_kernel_that_the_repositories_do_not_have_is_an_error(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    url = publish(site)
    write_nodes(site.folder, node("gpu-0", os=("debian", "12"), kernel="6.1.0-49-cloud-amd64"))
    assert site.lock_packages(url, "debian12") == 65
    told = capsys.readouterr().err
    assert f"6.1.0-49-cloud-amd64 (debian12, amd64): gpu-0; they have {NEW}, {OLD}" in told
    assert not site.lock_file.exists()


def test_a_web_server_serves_the_folder_as_it_is(site: Site) -> None:
    """apt asks for indexes by their hash first, and then by their name, where they are."""
    assert site.lock_packages(publish(site), "debian12") == 0
    assert site.save() == 0
    out = site.folder / "served"
    with served(site.folder) as web:
        url = f"{web.url}/served"
        assert (
            driverforge(
                ["mirror", "packages", "--from-archive", site.archive, "--out", str(out), "--url", url]
            )
            == 0
        )
        sources = yaml.safe_load((out / "repo-config-debian12.yaml").read_text())["data"]["driverforge.list"]
        command = apt(site.folder / "root", sources)
        run(*command, "update")
        run(*command, "download", f"linux-headers-{OLD}", cwd=site.folder)


SUMS = pytest.mark.parametrize(
    "sums",
    [
        pytest.param((), id="sha256"),
        pytest.param(("--checksum=sha512",), id="sha512", marks=pytest.mark.full(reason="more of the same")),
    ],
)


@SUMS
def test_dnf_installs_headers_from_what_was_carried(site: Site, sums: tuple[str, ...]) -> None:
    if gone := missing("dnf", "createrepo_c", "rpmbuild", "rpmsign"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    rocky = site.folder / "rocky-site"
    rockyrepo.publish(rocky, "x86_64", None)
    for name in ("BaseOS", "AppStream"):
        repository = rocky / name / "x86_64/os"
        for package in repository.glob("Packages/kernel-*.rpm"):
            sign(package, site.key)
        index(repository, *sums)
        if name == "AppStream":
            add_metadata(repository, "modules", rockyrepo.MODULES, *sums)
        sign_index(repository, site.key)
    write_rpm_matrix(site, rockyrepo.MATRIX, "base: rockylinux")
    release = f"{rockyrepo.OLD}.x86_64"
    write_nodes(site.folder, node("gpu-0", os=("rocky", "9.5"), kernel=release))
    assert site.lock_packages(rocky.as_uri(), "rocky9") == 0
    assert site.save() == 0
    # the image has these, and the other side nothing else
    root = site.folder / "root"
    needed = ("glibc-*", "bash-*", "elfutils-libelf-0*", "perl-interpreter-*")
    there = [file for name in needed for file in rocky.glob(f"*/x86_64/os/Packages/{name}.rpm")]
    run(*CUT, "rpm", f"--root={root}", "--install", "--justdb", "--nodeps", "--nosignature", *there)
    rocky.rename(site.folder / "gone")
    settings = carried_repo(site, "rocky9")
    command = [*CUT, "dnf", f"--installroot={root}", f"--setopt=reposdir={settings}", "--releasever=9"]
    command += ["--forcearch=x86_64", "--setopt=module_platform_id=platform:el9", "--assumeyes"]
    run(*command, "install", f"kernel-devel-{release}")
    assert (root / f"usr/src/kernels/{release}/Makefile").read_text() == "all:"
    # NVIDIA's containers ask for these too
    names = [f"{name}-{release}" for name in ("kernel-core", "kernel-headers", "kernel-modules")]
    run(*command, "install", "--downloadonly", *names)


@SUMS
def test_zypper_installs_headers_from_what_was_carried(site: Site, sums: tuple[str, ...]) -> None:
    if gone := missing("zypper", "createrepo_c", "rpmbuild", "rpmsign"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    suse = site.folder / "suse-site"
    suserepo.publish(suse, suserepo.BCI, site.key)
    for package in suse.glob("x86_64/*.rpm"):
        sign(package, site.key)
    index(suse, *sums)
    sign_index(suse, site.key)
    write_rpm_matrix(site, suserepo.MATRIX, "base: registry")
    release = f"{suserepo.OLD}-default"
    write_nodes(site.folder, node("gpu-0", os=("sles", "15.7"), kernel=release))
    assert site.lock_packages(suse.as_uri(), "sles15.7/SLE_BCI") == 0
    assert site.save() == 0
    suse.rename(site.folder / "gone")
    root = site.folder / "root"
    settings = carried_repo(site, "sles15.7")
    command = [*CUT, "env", f"ZYPP_LOCKFILE_ROOT={site.folder}", "zypper", "--non-interactive"]
    command += ["--gpg-auto-import-keys", "--root", str(root), "--reposd-dir", str(settings)]
    command += ["--cache-dir", str(site.folder / "zypp")]
    run(*command, "refresh")
    run(
        *command,
        "install",
        f"kernel-devel={suserepo.OLD.partition('-')[0]}-{suserepo.OLD.partition('-')[2]}.1",
    )
    assert (root / f"usr/src/linux-{suserepo.OLD}/include/linux/pci.h").exists()


def test_packages_of_kernels_that_no_node_wants_are_not_asked_for(site: Site) -> None:
    """Where an index has no sha256, what is carried is downloaded for it."""
    if gone := missing("createrepo_c", "rpmbuild"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    suse = site.folder / "suse-site"
    suserepo.publish(suse, suserepo.BCI, site.key)
    index(suse, "--checksum=sha512")
    sign_index(suse, site.key)
    for package in suse.glob(f"x86_64/kernel-*-{suserepo.OLD}.1.*.rpm"):
        package.unlink()
    write_rpm_matrix(site, suserepo.MATRIX, "base: registry")
    write_nodes(site.folder, node("gpu-0", os=("sles", "15.7"), kernel=f"{suserepo.NEW}-default"))
    assert site.lock_packages(suse.as_uri(), "sles15.7/SLE_BCI") == 0


def write_rpm_matrix(site: Site, matrix: str, before: str) -> None:
    """The matrix, with the key that signs its packages."""
    text = matrix.replace(f"    {before}", f"    keyring: {site.key.armored}\n    {before}", 1)
    (site.folder / "site.yaml").write_text(text)


def carried_repo(site: Site, os: str) -> Path:
    """A folder with the .repo file of the ConfigMap that the packages come with."""
    out, settings = site.folder / "served", site.folder / "repos.d"
    assert driverforge(["mirror", "packages", "--from-archive", site.archive, "--out", str(out)]) == 0
    data = yaml.safe_load((out / f"repo-config-{os}.yaml").read_text())["data"]
    settings.mkdir()
    (settings / "driverforge.repo").write_text(data["driverforge.repo"])
    return settings
