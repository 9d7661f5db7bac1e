"""`driverforge lock` on repositories laid out as Rocky Linux's: repomd, primary, kernels, dependencies."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from driverforge_build import cli, packed
from driverforge_build.discover.machine import read_machine
from driverforge_build.discover.settings import Settings
from driverforge_build.discover.signature import Untrusted
from driverforge_build.discover.survey import Survey, survey
from driverforge_build.lock.file import load_lock
from driverforge_build.lock.pins import Lock, TargetLock
from driverforge_build.ports import NotThere
from driverforge_core.errors import DriverforgeError, InputError, TemporaryFailure
from support.fakes.mirror import fetcher
from support.process import missing
from support.samples import rockyrepo
from support.samples.aptrepo import SigningKey, served, signing_key
from support.samples.rockyrepo import BARE, MATRIX, NEW, OLD, rocky_matrix
from support.samples.rpmrepo import Rpm, build_all, index, repack_primary, sign_index

PROGRAMS = ("createrepo_c", "modifyrepo_c", "rpmbuild", "gpg", "gpgv")
pytestmark = pytest.mark.skipif(
    bool(missing(*PROGRAMS)), reason=f"not installed: {', '.join(missing(*PROGRAMS))}"
)
DRIVER = "580.178.04"


@pytest.fixture(scope="module")
def other_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SigningKey]:
    with signing_key(tmp_path_factory.mktemp("key") / "other", algorithm="rsa2048") as made:
        yield made


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory, key: SigningKey) -> Path:
    folder = tmp_path_factory.mktemp("mirror") / "rocky"
    for machine in ("x86_64", "aarch64"):
        rockyrepo.publish(folder, machine, key)
    return folder


@pytest.fixture
def own(mirror: Path, tmp_path: Path) -> Path:
    """A mirror that the test may change."""
    return Path(shutil.copytree(mirror, tmp_path / "rocky"))


def surveyed(
    address: str, key: SigningKey, cache: Path, *, arch: str = "amd64", earlier: Lock | None = None
) -> Survey:
    matrix = rocky_matrix()
    (row,) = matrix.rows
    settings = Settings(
        now=datetime.now(timezone.utc), mirrors={"rocky9": address}, keyrings=[("", key.keyring)]
    )
    targets = [(row, one) for one in row.archs if one == arch]
    return survey(matrix, targets, earlier or Lock(), fetcher(cache), settings)


@pytest.fixture(scope="module")
def found(mirror: Path, key: SigningKey, tmp_path_factory: pytest.TempPathFactory) -> dict[str, TargetLock]:
    targets: dict[str, TargetLock] = {}
    for arch in ("amd64", "arm64"):
        told = surveyed(mirror.as_uri(), key, tmp_path_factory.mktemp("cache"), arch=arch)
        assert not told.problems
        targets |= told.targets
    return targets


def test_all_kernels_by_what_they_call_themselves(found: dict[str, TargetLock]) -> None:
    amd64, arm64 = found["rocky9-amd64"], found["rocky9-arm64"]
    assert list(amd64.kernels) == [f"{OLD}.x86_64", f"{NEW}.x86_64"]
    assert list(arm64.kernels) == [f"{OLD}.aarch64", f"{NEW}.aarch64", f"{NEW}.aarch64+64k"]
    assert amd64.without_headers == (f"{BARE}.x86_64",)


def test_headers_and_image_of_a_kernel(found: dict[str, TargetLock]) -> None:
    kernel = found["rocky9-amd64"].kernels[f"{NEW}.x86_64"]
    assert [(one.name, one.version, one.suite) for one in kernel.headers] == [
        ("kernel-devel", NEW, "appstream"),
        ("kernel-headers", NEW, "appstream"),
    ]
    assert kernel.image is not None
    assert (kernel.image.name, kernel.image.suite) == ("kernel-core", "baseos")
    assert [(one.name, one.version) for one in kernel.modules] == [
        ("kernel-modules-core", NEW),
        ("kernel-modules", NEW),
    ]
    assert kernel.headers[0].path == f"Packages/kernel-devel-{NEW}.x86_64.rpm"
    wide = found["rocky9-arm64"].kernels[f"{NEW}.aarch64+64k"]
    assert [one.name for one in wide.headers] == ["kernel-64k-devel"]


def test_header_probes_read_rpm_packages(found: dict[str, TargetLock]) -> None:
    target = found["rocky9-amd64"]
    breaks = {
        release: [fact.breaks for fact in target.facts(kernel).values()]
        for release, kernel in target.kernels.items()
    }
    assert breaks == {f"{OLD}.x86_64": [False], f"{NEW}.x86_64": [True]}


def names(target: TargetLock, role: str) -> list[str]:
    return [
        package.name
        for own, packages in target.drivers[DRIVER].items()
        if own == role
        for package in packages
    ]


def test_dependencies_are_followed_by_what_packages_provide(found: dict[str, TargetLock]) -> None:
    """A base image has glibc-minimal-langpack, so that is the one of two that provide what glibc needs."""
    target = found["rocky9-amd64"]
    assert names(target, "tools") == [
        "bash",
        "glibc",
        "glibc-common",
        "glibc-minimal-langpack",
        "kmod",
        "python3.12",
        "python3.12-libs",
    ]


def test_rich_dependencies_and_module_streams(found: dict[str, TargetLock]) -> None:
    """annobin is for those who have redhat-rpm-config; make 9 is of a stream that nobody enabled."""
    target = found["rocky9-amd64"]
    assert names(target, "toolchain") == [
        "cpp",
        "elfutils-libelf",
        "elfutils-libelf-devel",
        "gcc",
        "make",
        "perl-interpreter",
    ]
    versions = {one.name: one.version for one in target.drivers[DRIVER]["toolchain"]}
    assert versions["make"] == "1:4.3-8.el9"
    assert versions["gcc"] == "11.5.0-5.el9"


def test_the_lock_says_who_signed(found: dict[str, TargetLock], key: SigningKey) -> None:
    baseos, appstream = found["rocky9-amd64"].repositories
    assert baseos.signed_by == appstream.signed_by == (key.fingerprint,)
    parts = {name.rpartition("-")[2] for name in appstream.indexes}
    assert parts == {"modules.yaml.gz", "primary.xml.gz"}
    assert baseos.date[:4] >= "2026"


@pytest.mark.parametrize(
    ("command", "suffix"), [(["xz", "-c"], ".xz"), (["zstd", "-qc"], ".zst"), (["cat"], "")]
)
def test_an_index_may_be_packed_otherwise(
    own: Path, key: SigningKey, tmp_path: Path, command: list[str], suffix: str
) -> None:
    if suffix == ".zst" and packed.zstd is None:
        pytest.skip("backports.zstd is not installed (Python 3.14 has it)")
    if missing(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    for name in ("BaseOS", "AppStream"):
        repository = own / name / "x86_64/os"
        repack_primary(repository, command, suffix)
        sign_index(repository, key)
    target = surveyed(own.as_uri(), key, tmp_path / "cache").targets["rocky9-amd64"]
    assert list(target.kernels) == [f"{OLD}.x86_64", f"{NEW}.x86_64"]
    assert any(name.endswith(f"primary.xml{suffix}") for name in target.repositories[0].indexes)


def test_a_changed_repomd_is_refused(own: Path, key: SigningKey, tmp_path: Path) -> None:
    repomd = own / "BaseOS/x86_64/os/repodata/repomd.xml"
    repomd.write_text(repomd.read_text().replace("<revision>", "<revision>1"))
    with pytest.raises(Untrusted, match=r"repomd.xml of baseos was changed after it was signed"):
        surveyed(own.as_uri(), key, tmp_path / "cache")


def test_a_strangers_signature_is_refused(mirror: Path, other_key: SigningKey, tmp_path: Path) -> None:
    with pytest.raises(Untrusted, match="not signed by a key that is trusted here"):
        surveyed(mirror.as_uri(), other_key, tmp_path / "cache")


def test_an_index_that_is_not_the_signed_one(own: Path, key: SigningKey, tmp_path: Path) -> None:
    (primary,) = (own / "AppStream/x86_64/os/repodata").glob("*-primary.xml.gz")
    primary.write_bytes(primary.read_bytes()[:-1] + b"x")
    with pytest.raises(TemporaryFailure, match="is not what the signed index says"):
        surveyed(own.as_uri(), key, tmp_path / "cache")


def test_a_run_that_may_ask_no_more_says_so_and_the_next_one_goes_on(
    own: Path, key: SigningKey, tmp_path: Path
) -> None:
    matrix = rocky_matrix()
    with served(own) as server:
        settings = Settings(
            now=datetime.now(timezone.utc), mirrors={"rocky9": server.url}, keyrings=[("", key.keyring)]
        )

        def run() -> Survey:
            downloads = fetcher(tmp_path / "cache", in_all=8)
            return survey(matrix, [(matrix.rows[0], "amd64")], Lock(), downloads, settings)

        with pytest.raises(TemporaryFailure, match=r"was asked 8 times, and a run asks a host no more"):
            run()
        assert len(server.requests) == 8
        assert list(run().targets) == ["rocky9-amd64"]


def test_what_only_a_subscriptions_repository_may_have_is_left_out_with_it(
    mirror: Path, key: SigningKey, tmp_path: Path
) -> None:
    """kmod is in BaseOS, and the row of the driver names no repository."""
    row = "      - id: baseos\n        entitled: true\n"
    matrix = rocky_matrix(MATRIX.replace("      - id: baseos\n", row, 1))
    mirrors = {"rocky9/appstream": (mirror / "AppStream/x86_64/os").as_uri()}

    def run(earlier: Lock) -> Survey:
        settings = Settings(
            now=datetime.now(timezone.utc), mirrors=mirrors, keyrings=[("", key.keyring)], accept_shrink=True
        )
        return survey(matrix, [(matrix.rows[0], "amd64")], earlier, fetcher(tmp_path), settings)

    found = run(Lock())
    assert not found.problems
    told = found.closed["rocky9-amd64"]
    assert told.brief == "rocky9-amd64: a subscription is needed for baseos"
    assert told.details[0].startswith(f"left out: driver {DRIVER}: the repositories that were read have no ")
    # what was pinned once and is gone is a problem, also beside a closed repository
    (target,) = found.targets.values()
    again = run(Lock(targets={target.key: replace(target, drivers={DRIVER: {}})}))
    assert list(again.problems) == [f"rocky9-amd64 {DRIVER}"]


def test_a_mirror_of_the_whole_system_need_not_have_what_is_optional(
    mirror: Path, key: SigningKey, tmp_path: Path
) -> None:
    """EUS and Extensions have no address in their rows: on such a mirror they are folders of their names."""
    row = "    kernels:\n"
    optional = "      - {id: extensions, signed: packages, entitled: true, role: extra, optional: true}\n"
    matrix = rocky_matrix(MATRIX.replace(row, optional + row, 1))

    def run(**own: str) -> Survey:
        settings = Settings(
            now=datetime.now(timezone.utc),
            mirrors={"rocky9": mirror.as_uri(), **own},
            keyrings=[("", key.keyring)],
        )
        return survey(matrix, [(matrix.rows[0], "amd64")], Lock(), fetcher(tmp_path), settings)

    found = run()
    assert (found.problems, found.closed) == ({}, {})
    assert list(found.targets["rocky9-amd64"].kernels) == [f"{OLD}.x86_64", f"{NEW}.x86_64"]
    # what somebody names has to be there
    with pytest.raises(NotThere, match="the mirror has no "):
        run(**{"rocky9/extensions": f"{mirror.as_uri()}/extensions"})


def unsigned(folder: Path) -> None:
    for path in folder.rglob("repomd.xml.asc"):
        path.unlink()


def test_metadata_without_signature_comes_by_tls_or_not_at_all(
    own: Path, key: SigningKey, tmp_path: Path
) -> None:
    """Red Hat's and Oracle's is not signed; the packages are, and the lock says that nothing else is."""
    unsigned(own)
    with (
        served(own) as server,
        pytest.raises(Untrusted, match="nobody vouches for repomd"),
    ):
        surveyed(server.url, key, tmp_path / "cache")
    target = surveyed(own.as_uri(), key, tmp_path / "cache").targets["rocky9-amd64"]
    assert [one.packages_only for one in target.repositories] == [True, True]
    assert target.repositories[0].signers() == "not signed itself, only its packages are"


def test_a_signature_that_is_gone_stops_the_run(
    own: Path, key: SigningKey, tmp_path: Path, found: dict[str, TargetLock]
) -> None:
    unsigned(own)
    with pytest.raises(TemporaryFailure) as told:
        surveyed(own.as_uri(), key, tmp_path / "cache", earlier=Lock(targets=found))
    assert "rocky9-amd64: baseos is not signed any more" in told.value.details


HOSTILE = {
    "entities": ('<!DOCTYPE metadata [<!ENTITY a "b">]>', "document type declaration"),
    "torn": ("", "ends in the middle|no element found"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_index(own: Path, key: SigningKey, tmp_path: Path, what: str) -> None:
    declared, message = HOSTILE[what]
    repository = own / "BaseOS/x86_64/os"
    script = f"sed '1a {declared}'" if declared else "head -c 2000"
    repack_primary(repository, ["sh", "-c", f"{script} | gzip -c"], ".gz")
    sign_index(repository, key)
    with pytest.raises(InputError, match=message):
        surveyed(own.as_uri(), key, tmp_path / "cache")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('href="repodata/', 'href="../../../../etc/'),
        ('href="repodata/', 'href="https://elsewhere.site/'),
        ('checksum type="sha256"', 'checksum type="sha1"'),
        ('type="primary"', 'type="primery"'),
        ("<repomd", '<!DOCTYPE x [<!ENTITY a "b">]><repomd'),
        ("</repomd>", ""),
    ],
)
def test_a_hostile_repomd(own: Path, key: SigningKey, tmp_path: Path, old: str, new: str) -> None:
    repository = own / "BaseOS/x86_64/os"
    repomd = repository / "repodata/repomd.xml"
    repomd.write_text(repomd.read_text().replace(old, new))
    sign_index(repository, key)
    with pytest.raises(InputError, match=r"cannot read repomd.xml of baseos"):
        surveyed(own.as_uri(), key, tmp_path / "cache")


def test_a_package_that_the_repositories_lack_is_named_with_who_needs_it(
    mirror: Path, key: SigningKey, tmp_path: Path
) -> None:
    matrix = rocky_matrix(MATRIX.replace("[make, elfutils-libelf-devel]", "[make, nonsense-devel]"))
    settings = Settings(
        now=datetime.now(timezone.utc), mirrors={"rocky9": mirror.as_uri()}, keyrings=[("", key.keyring)]
    )
    told = survey(matrix, [(matrix.rows[0], "amd64")], Lock(), fetcher(tmp_path), settings)
    (problem,) = told.problems.values()
    assert isinstance(problem, DriverforgeError)
    assert "have no nonsense-devel" in problem.brief


REPO = """\
[baseos]
name=Rocky Linux $releasever - BaseOS
mirrorlist=MIRROR/mirrorlist?arch=$basearch&repo=BaseOS-$releasever$rltype
gpgcheck=1
gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-Rocky-9

[appstream]
name=Rocky Linux $releasever - AppStream
baseurl=MIRROR/rocky/AppStream/$basearch/os/
gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-Rocky-9
"""


def test_the_machines_own_repositories_are_read(mirror: Path, key: SigningKey, tmp_path: Path) -> None:
    root = tmp_path / "root"
    for folder in ("etc/yum.repos.d", "etc/pki/rpm-gpg", "etc/dnf/vars"):
        (root / folder).mkdir(parents=True)
    shutil.copy(key.armored, root / "etc/pki/rpm-gpg/RPM-GPG-KEY-Rocky-9")
    (root / "etc/dnf/vars/rltype").write_text("")
    (root / "etc/os-release").write_text('ID="rocky"\nVERSION_ID="9.7"\n')
    (root / "etc/yum.repos.d/broken.repo").write_text("no section\n")
    (mirror.parent / "mirrorlist").write_text("# the nearest first\n")
    with served(mirror.parent) as server:
        (mirror.parent / "mirrorlist").write_text(f"# nearest\n{server.url}/rocky/BaseOS/x86_64/os/\n")
        (root / "etc/yum.repos.d/rocky.repo").write_text(REPO.replace("MIRROR", server.url))
        settings = Settings(now=datetime.now(timezone.utc), machine=read_machine(root))
        matrix = rocky_matrix()
        told = survey(matrix, [(matrix.rows[0], "amd64")], Lock(), fetcher(tmp_path / "cache"), settings)
    assert list(told.targets["rocky9-amd64"].kernels) == [f"{OLD}.x86_64", f"{NEW}.x86_64"]
    assert any("mirrorlist?arch=x86_64&repo=BaseOS-9.7" in line for line in server.requests)


@pytest.mark.usefixtures("no_pauses")
def test_from_the_command_line(
    mirror: Path, key: SigningKey, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "site.yaml").write_text(MATRIX)
    words = ["--matrix", str(tmp_path / "site.yaml"), "--lock", str(tmp_path / "lock.json")]
    lock = [*words, "--cache-dir", str(tmp_path / "cache"), "--keyring", str(key.keyring)]
    with served(mirror) as server:
        lock += ["--mirror", f"rocky9={server.url}"]
        assert cli.run(["lock", *lock]) == 0
        assert sorted(load_lock(tmp_path / "lock.json").targets) == ["rocky9-amd64", "rocky9-arm64"]
        told = capsys.readouterr().out
        assert "rocky9-arm64: 3 kernels (64k 1, default 2), 1 driver: 580.178.04" in told
        server.requests.clear()
        assert cli.run(["lock", *lock]) == 0
        assert "is up to date" in capsys.readouterr().out
        assert {line.rpartition("/")[2] for line in server.requests} == {"repomd.xml", "repomd.xml.asc"}
        server.broken["/BaseOS/x86_64/os/repodata/repomd.xml"] = 503
        assert cli.run(["lock", *lock]) == 75
        capsys.readouterr()
        assert cli.run(["lock", "--offline", "--json", *lock]) == 0
        targets = json.loads(capsys.readouterr().out)["targets"]
        assert {one["state"] for target in targets.values() for one in target["read"].values()} == {"stale"}
        assert all(target["read"].keys() == target["suites"].keys() for target in targets.values())
        server.broken.clear()
        server.broken[f"/AppStream/x86_64/os/Packages/kernel-devel-{NEW}.x86_64.rpm"] = 404
        shutil.rmtree(tmp_path / "cache")
        before = (tmp_path / "lock.json").read_bytes()
        assert cli.run(["lock", *lock]) == 1
        assert "rocky9-amd64: error: the mirror has no" in capsys.readouterr().err
        assert (tmp_path / "lock.json").read_bytes() == before
    assert cli.run(["plan", *words, "--select", "rocky9-*"]) == 0
    assert f"headers {OLD} of appstream, gcc" in capsys.readouterr().out
    assert cli.run(["explain", f"rocky9-amd64-{DRIVER}-{OLD}.x86_64", *words]) == 0
    explained = capsys.readouterr().out
    assert "; repomd.xml sha256 " in explained
    assert f"  signed by {key.fingerprint}" in explained


def test_an_index_that_its_distribution_signs_has_to_be_signed(
    own: Path, key: SigningKey, tmp_path: Path
) -> None:
    unsigned(own)
    matrix = rocky_matrix(MATRIX.replace("signed: packages", "signed: index"))
    settings = Settings(
        now=datetime.now(timezone.utc), mirrors={"rocky9": own.as_uri()}, keyrings=[("", key.keyring)]
    )
    with pytest.raises(Untrusted, match="is not signed, and its distribution signs it"):
        survey(matrix, [(matrix.rows[0], "amd64")], Lock(), fetcher(tmp_path), settings)


@pytest.mark.usefixtures("no_pauses")
def test_a_subscribers_token_goes_with_every_request_and_into_no_message(
    own: Path, key: SigningKey, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """zypper's addresses of SUSE's repositories end so."""
    (tmp_path / "site.yaml").write_text(MATRIX)
    words = ["lock", "--matrix", str(tmp_path / "site.yaml"), "--lock", str(tmp_path / "lock.json")]
    words += ["--cache-dir", str(tmp_path / "cache"), "--keyring", str(key.keyring)]
    with served(own) as server:
        for name, folder in (("baseos", "BaseOS"), ("appstream", "AppStream")):
            words += ["--mirror", f"rocky9-amd64/{name}={server.url}/{folder}/x86_64/os?t0ken"]
        assert cli.run([*words, "--select", "rocky9-amd64-*"]) == 0
        assert server.requests
        assert all(line.endswith("?t0ken") for line in server.requests)
        server.broken["*"] = 503
        assert cli.run([*words, "--select", "rocky9-amd64-*"]) == 75
    told = capsys.readouterr()
    assert "t0ken" not in told.out + told.err + (tmp_path / "lock.json").read_text()


OWN = """\
        payload: packages
        module_types: [open]
        repositories: [cuda, baseos, appstream]
        modules: [{id: open, packages: [kmod-nvidia-open-dkms], tree: "usr/src/nvidia-{version}"}]
        firmware: {package: nvidia-kmod-common, tree: "usr/lib/firmware/nvidia/{version}"}
        userspace: [nvidia-driver-cuda]
"""


def test_nvidias_own_user_space_asks_for_its_modules_which_want_dkms(
    mirror: Path, key: SigningKey, tmp_path: Path
) -> None:
    """Why docs/lock.md sends RHEL's relatives to the archive."""

    def package(name: str, *requires: str, provides: tuple[str, ...] = ()) -> Rpm:
        version = {"version": DRIVER, "release": "1.el9", "epoch": "3"}
        return Rpm(name=name, arch="x86_64", requires=requires, provides=provides, **version)

    modules = (f"nvidia-kmod = 3:{DRIVER}",)
    theirs = [
        package("nvidia-driver-cuda", f"nvidia-kmod-common = 3:{DRIVER}"),
        package("nvidia-kmod-common", f"nvidia-kmod = 3:{DRIVER}"),
        package("kmod-nvidia-open-dkms", "dkms", provides=modules),
    ]
    build_all(theirs, tmp_path / "cuda/Packages")
    index(tmp_path / "cuda")
    sign_index(tmp_path / "cuda", key)
    row = "      - {id: cuda, urls: ['https://cuda.invalid/x'], role: extra, keyring: /nowhere}\n"
    text = MATRIX[: MATRIX.index("        payload: runfile")] + OWN
    matrix = rocky_matrix(text.replace("    kernels:\n", f"{row}    kernels:\n", 1))
    mirrors = {"rocky9": mirror.as_uri(), "rocky9/cuda": (tmp_path / "cuda").as_uri()}
    settings = Settings(now=datetime.now(timezone.utc), mirrors=mirrors, keyrings=[("", key.keyring)])
    found = survey(matrix, [(matrix.rows[0], "amd64")], Lock(), fetcher(tmp_path / "cache"), settings)
    problem = found.problems[f"rocky9-amd64 {DRIVER}"]
    assert problem.brief == "the repositories that were read have no dkms"
    chain = "kmod-nvidia-open-dkms <- nvidia-kmod-common <- nvidia-driver-cuda"
    assert f"needed by {chain}" in problem.details
