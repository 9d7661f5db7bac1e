"""`driverforge lock`, `plan` and `explain`, from the command line to the exit status, on a small Debian."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from driverforge_build import cli
from driverforge_build.commands.shared.lastread import of_cache, state_of_all
from driverforge_build.fetch.web import registry_transport
from driverforge_build.lock.file import load_lock
from driverforge_build.lock.pins import TargetLock
from driverforge_build.ports import LastRead
from driverforge_oci.client import OCI_INDEX, OCI_MANIFEST, RegistryClient, digest_of
from driverforge_oci.reference import Reference
from driverforge_oci.session import Session
from support.jsonschemas import check_document
from support.machines import dockerregistry
from support.process import missing
from support.samples.aptrepo import Archive, Deb, SigningKey, served, signing_key
from support.samples.sampledebian import (
    BARE,
    BOTH_BREAK,
    FOUR,
    MATRIX,
    NEW,
    OLD,
    SECURITY,
    kernel_debs,
    publish,
    write_matrix,
)

PROGRAMS = ("gpg", "gpgv", "dpkg-deb")
pytestmark = pytest.mark.skipif(
    bool(missing(*PROGRAMS)), reason=f"not installed: {', '.join(missing(*PROGRAMS))}"
)

TARGET = "debian12-amd64"


@dataclass(frozen=True, slots=True)
class Site:
    """A matrix, its repositories, and a command line that points at both."""

    folder: Path
    archive: Archive
    security: Archive
    out: Callable[[], str]

    @property
    def lock(self) -> Path:
        return self.folder / "site.lock.json"

    def run(self, command: str, *arguments: str, mirror: str = "") -> tuple[int, str]:
        """Exit status, and everything that was printed."""
        words = [command, *arguments, "--matrix", str(self.folder / "site.yaml"), "--lock", str(self.lock)]
        if command == "lock":
            words += ["--cache-dir", str(self.folder / "cache"), "--keyring", str(self.archive.key.keyring)]
            words += ["--mirror", f"debian12={mirror or self.archive.url}"]
        return cli.run(words), self.out()


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SigningKey]:
    with signing_key(tmp_path_factory.mktemp("key") / "k") as made:
        yield made


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, key: SigningKey) -> Path:
    folder = tmp_path_factory.mktemp("mirror")
    publish(Archive(folder / "debian", key), Archive(folder / "debian-security", key))
    return folder


@pytest.fixture
def site(tmp_path: Path, key: SigningKey, published: Path, capsys: pytest.CaptureFixture[str]) -> Site:
    write_matrix(tmp_path)

    def out() -> str:
        captured = capsys.readouterr()
        return captured.out + captured.err

    return Site(
        tmp_path, Archive(published / "debian", key), Archive(published / "debian-security", key), out
    )


@pytest.fixture
def own(site: Site, key: SigningKey, published: Path) -> Site:
    """A site whose repositories the test may change."""
    for name in ("debian", "debian-security"):
        shutil.copytree(published / name, site.folder / name)
    return Site(
        site.folder,
        Archive(site.folder / "debian", key),
        Archive(site.folder / "debian-security", key),
        site.out,
    )


def target(site: Site) -> TargetLock:
    return load_lock(site.lock).targets[TARGET]


def test_lock_pins_everything_that_a_build_downloads(site: Site) -> None:
    status, told = site.run("lock")
    assert status == 0, told
    assert f"wrote {site.lock}" in told
    pinned = target(site)
    assert list(pinned.kernels) == [OLD, NEW]
    assert pinned.without_headers == (BARE,)
    roles = {
        role: [package.name for package in packages]
        for role, packages in pinned.drivers["535.261.03"].items()
    }
    assert roles == {
        "firmware": ["firmware-nvidia-gsp"],
        "source": ["nvidia-kernel-dkms", "nvidia-open-kernel-dkms"],
        "toolchain": ["binutils", "gcc-12", "libelf1", "make"],
        "tools": ["kmod", "libc6", "libgcc-s1", "python3"],
        "userspace": ["libcuda1", "libnvidia-ml1", "nvidia-alternative", "nvidia-modprobe"],
    }
    every = [package for packages in pinned.drivers["535.261.03"].values() for package in packages]
    every += [package for kernel in pinned.kernels.values() for package in (*kernel.headers, kernel.image)]
    places = {"bookworm": site.archive, "bookworm-security": site.security}
    assert all(
        (places[package.suite].folder / package.path).stat().st_size == package.size for package in every
    )
    assert {package.version for package in every if package.name == "libnvidia-ml1"} == {"535.261.03-1"}


def test_a_second_lock_changes_nothing_and_downloads_nothing_again(site: Site, published: Path) -> None:
    with served(published) as server:
        assert site.run("lock", mirror=f"{server.url}/debian")[0] == 0
        first = site.lock.read_bytes()
        assert sum("/pool/" in line for line in server.requests) == 2  # the two packages of common headers
        server.requests.clear()
        status, told = site.run("lock", mirror=f"{server.url}/debian")
        assert (status, site.lock.read_bytes()) == (0, first)
        assert "is up to date" in told
        assert [line.rpartition("/")[2] for line in server.requests] == ["InRelease", "InRelease"]


def test_the_security_archive_is_the_neighbour_of_the_main_one(site: Site, published: Path) -> None:
    with served(published) as server:
        site.run("lock", mirror=f"{server.url}/debian")
        assert any(
            line.startswith("GET /debian-security/dists/bookworm-security/main/") for line in server.requests
        )
        assert any(line.startswith("GET /debian-security/pool/main/") for line in server.requests)


def test_offline_uses_the_cache(site: Site, published: Path) -> None:
    with served(published) as server:
        address = f"{server.url}/debian"
        status, told = site.run("lock", "--offline", mirror=address)
        assert (status, "not in the cache" in told) == (69, True)
        assert site.run("lock", mirror=address)[0] == 0
    first = site.lock.read_bytes()
    site.lock.unlink()
    assert site.run("lock", "--offline", mirror=address)[0] == 0
    assert site.lock.read_bytes() == first


def test_what_the_cache_says_is_not_told_as_what_a_mirror_says(site: Site, published: Path) -> None:
    with served(published) as server:
        address = f"{server.url}/debian"
        before = f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
        now = json.loads(site.run("lock", "--json", mirror=address)[1])["targets"][TARGET]
        assert now["state"] == "fresh"
        assert {one["state"] for one in now["read"].values()} == {"fresh"}
        assert now["read"].keys() == now["suites"].keys() == {"bookworm", "bookworm-security"}
        assert min(one["time"] for one in now["read"].values()) >= before
        told = site.run("lock", "--check", mirror=address)[1]
        assert f"{site.lock} is up to date\n" in told
        assert "the cache holds" not in told
        assert not re.search(r": $", told, re.MULTILINE)
        server.broken["*"] = 503
        document = json.loads(site.run("lock", "--offline", "--check", "--json", mirror=address)[1])
        check_document("lock-report", document)
        kept = document["targets"][TARGET]
        assert (document["changed"], kept["state"]) == (False, "stale")
        assert {one["state"] for one in kept["read"].values()} == {"stale"}
        times = [one["time"] for one in kept["read"].values()]
        assert min(times) >= max(one["time"] for one in now["read"].values())
        status, told = site.run("lock", "--offline", "--check", mirror=address)
    assert status == 0
    assert f"{site.lock} is up to date, by what the cache holds, read {min(times)}\n" in told
    for suite, one in kept["read"].items():
        assert re.search(rf"^  {suite} of .*: what the cache holds, read {one['time']}$", told, re.MULTILINE)
    site.lock.unlink()
    told = site.run("lock", "--offline", "--check", mirror=address)[1]
    assert f"would change, by what the cache holds, read {min(times)}; nothing was written" in told
    told = site.run("lock", "--offline", mirror=address)[1]
    assert f"wrote {site.lock}, by what the cache holds, read {min(times)}\n" in told


def test_what_several_copies_say_is_as_old_as_the_oldest() -> None:
    now = LastRead(fresh=True, time="2026-11-18T12:00:00Z")
    older, newer, undated = (
        LastRead(fresh=False, time=time) for time in ("2026-11-19T12:00:00Z", "2026-11-20T12:00:00Z", "")
    )
    assert of_cache([newer, now, older]) == "what the cache holds, read 2026-11-19T12:00:00Z"
    # it may be older than all others
    assert of_cache([newer, undated]) == "what the cache holds"
    assert (state_of_all([now, older]), state_of_all([now])) == ("stale", "fresh")


def test_a_suite_that_does_not_answer_is_degraded_discovery(site: Site, published: Path) -> None:
    with served(published) as server:
        server.broken["/debian-security/dists/bookworm-security/InRelease"] = 503
        server.later = "3600"
        status, told = site.run("lock", mirror=f"{server.url}/debian")
    assert status == 75
    assert f"{server.url.removeprefix('http://')} is busy or broken (Retry-After: 3600)" in told
    assert "discovery is degraded: 1 of the repositories cannot be read now (bookworm-security)" in told
    assert "--offline" in told
    assert not site.lock.exists()


def test_a_pause_is_an_event_for_programs(
    site: Site, published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A document on standard output, what is waited for on standard error."""
    name = "/debian/dists/bookworm/InRelease"
    with served(published) as server:
        server.broken[name] = 503
        server.before = lambda line: server.requests.count(line) > 1 and server.broken.pop(name, None)
        words = ["--matrix", str(site.folder / "site.yaml"), "--lock", str(site.lock), "--json"]
        words += ["--cache-dir", str(site.folder / "cache"), "--mirror", f"debian12={server.url}/debian"]
        assert cli.run(["lock", "--keyring", str(site.archive.key.keyring), *words]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["changed"]
    (waited,) = map(json.loads, captured.err.splitlines())
    assert waited["event"] == "waiting"
    assert waited["why"] == f"{server.url.removeprefix('http://')} answers 503"
    assert waited["seconds"] > 0


def test_packages_of_a_module_type_that_the_row_does_not_offer_are_not_looked_for(site: Site) -> None:
    """A row that narrows `module_types` needs no word about `modules`, which it may have from another row."""
    matrix = site.folder / "site.yaml"
    narrowed = matrix.read_text().replace("module_types: [open, proprietary]", "module_types: [proprietary]")
    matrix.write_text(narrowed.replace("nvidia-open-kernel-dkms", "nowhere-to-be-found"))
    status, told = site.run("lock")
    assert status == 0, told
    assert [package.name for package in target(site).drivers["535.261.03"]["source"]] == [
        "nvidia-kernel-dkms"
    ]


def test_check_writes_nothing(own: Site) -> None:
    assert own.run("lock", "--check") == (1, own.run("lock", "--check")[1])
    assert not own.lock.exists()
    assert own.run("lock")[0] == 0
    assert own.run("lock", "--check")[0] == 0
    before = own.lock.read_bytes()
    publish(own.archive, own.security, extra=[Deb(name="make", version="4.4-1")])
    status, told = own.run("lock", "--check")
    assert (status, own.lock.read_bytes()) == (1, before)
    assert "535.261.03: make 4.3-4 -> 4.4-1" in told


def test_a_suite_that_lost_its_kernels_stops_the_run(own: Site) -> None:
    assert own.run("lock")[0] == 0
    before = own.lock.read_bytes()
    publish(own.archive, own.security, newest=False)
    status, told = own.run("lock")
    assert (status, own.lock.read_bytes()) == (75, before)
    assert "bookworm-security has 0 kernels of flavour cloud-amd64, the lock has 1" in told
    assert own.run("lock", "--accept-shrink")[0] == 0
    assert list(target(own).kernels) == [OLD]


def test_a_frozen_mirror_is_read_on_request_only(own: Site) -> None:
    past = datetime.now(timezone.utc) - timedelta(days=30)
    own.security.publish(
        "bookworm-security", {"main": list(SECURITY)}, date=past, valid_for=timedelta(days=7)
    )
    assert own.run("lock")[0] == 69
    assert own.run("lock", "--accept-expired")[0] == 0


def test_a_driver_that_the_repositories_do_not_have(site: Site) -> None:
    row = """\
      - id: "535-other"
        branch: "535"
        version: 535.300.01
        payload: packages
        variants: [jit]
        module_types: [open]
        repositories: [bookworm]
        modules: [{id: open, packages: [nvidia-open-kernel-dkms], tree: usr/src}]
        firmware: {package: firmware-nvidia-gsp, tree: lib/firmware}
        userspace: [libcuda1]
"""
    write_matrix(
        site.folder,
        MATRIX.replace("  - id: ubuntu24.04", row + "  - id: ubuntu24.04").replace(
            "535.261.03,", "535.300.01,", 1
        ),
    )
    status, told = site.run("lock")
    assert status == 1
    assert "the repositories do not have libcuda1 535.300.01" in told
    assert "they have 535.261.03-1 (bookworm)" in told
    assert not site.lock.exists()
    assert site.run("lock", "--keep-going")[0] == 1
    assert list(target(site).drivers) == ["535.261.03"]
    rows = json.loads(site.run("plan", "--json", "--select", "*-535.300.01-jit", "--skip", "ubuntu*")[1])[
        "cells"
    ]
    assert [(row["verdict"], row["reason"]) for row in rows] == [
        ("unknown", "the lock does not pin driver 535.300.01")
    ]


@pytest.mark.parametrize("mark", ["<<<<<<< HEAD\n", '{"schema": 2, "targets": {}}\n'])
def test_a_lock_that_cannot_be_read_is_made_anew_once_it_is_removed(site: Site, mark: str) -> None:
    site.lock.write_text(mark)
    status, told = site.run("lock")
    assert (status, site.lock.read_text()) == (65, mark)
    assert (
        f"or remove it and run: driverforge lock --matrix {site.folder / 'site.yaml'} --lock {site.lock}"
        in told
    )
    site.lock.unlink()
    assert site.run("lock")[0] == 0


def test_lock_as_json(site: Site) -> None:
    status, told = site.run("lock", "--json")
    found = json.loads(told)
    assert (status, found["changed"], found["problems"]) == (0, True, {})
    assert found["targets"][TARGET]["kernels"] == [OLD, NEW]
    check_document("lock-report", found)


def test_the_newest_kernels_alone_are_locked_where_the_row_says_so(site: Site) -> None:
    site.run("lock")
    write_matrix(
        site.folder, MATRIX.replace('releases: "6.1.*"\n', 'releases: "6.1.*"\n        newest: 1\n', 1)
    )
    status, told = site.run("lock")
    assert (status, list(target(site).kernels)) == (0, [NEW])
    assert "  1 older kernels left out, as `newest:` of their series says" in told
    document = json.loads(site.run("lock", "--json")[1])
    assert document["targets"][TARGET]["older"] == [OLD]
    check_document("lock-report", document)
    status, told = site.run("explain", f"debian12-amd64-535.261.03-{OLD}")
    assert status == 65
    assert "`newest: 1` of series 6.1 leaves older kernels out" in told


def test_a_kernel_that_is_in_no_package_of_its_row_is_told_and_built_all_the_same(own: Site) -> None:
    release = "6.1.0-54-cloud-amd64"
    image, *headers = kernel_debs(release, "6.1.187-1", FOUR)
    publish(own.archive, own.security, extra=[replace(image, fields={"Installed-Size": "15"}), *headers])
    hollow = f"linux-image-{release} unpacks to 15360 bytes"
    status, told = own.run("lock")
    assert status == 0, told
    assert f"1 kernels are in no package that `image:` names: {hollow}" in told
    assert target(own).kernels[release].image is None
    document = json.loads(own.run("lock", "--json")[1])
    assert document["targets"][TARGET]["hollow"] == [hollow]
    check_document("lock-report", document)


def test_a_kernel_of_a_flavour_that_is_excluded_is_blocked_with_the_reason(site: Site) -> None:
    """No lock has it: nothing looks for its headers."""
    site.run("lock")
    cell = "debian12-amd64-535.261.03-6.1.0-53-rt-amd64"
    status, told = site.run("plan", "--select", cell)
    assert status == 0, told
    assert re.search(rf"^{cell} +blocked +NVIDIA's build refuses PREEMPT_RT$", told, re.MULTILINE)
    status, told = site.run("explain", cell)
    assert (status, told.splitlines()[0]) == (0, f"{cell}: blocked")
    assert "exclusion no-realtime" in told
    status, told = site.run("plan", "--select", "debian12-*-rt-amd64")
    assert status == 64
    assert "site.yaml:" in told
    assert "exclusion no-realtime: NVIDIA's build refuses PREEMPT_RT" in told
    # one of another flavour may be newer than the lock
    status, told = site.run("plan", "--select", "debian12-amd64-535.261.03-6.1.0-99-cloud-amd64")
    assert (status, "no-realtime" in told) == (64, False)


def test_a_mirror_without_the_suite(site: Site) -> None:
    status, told = site.run("lock", mirror=f"{site.archive.url}-nowhere")
    assert status == 69
    assert "the mirror has no" in told


def test_plan_reads_the_verdicts_off_the_lock(site: Site) -> None:
    site.run("lock")
    status, told = site.run("plan", "--select", "debian12-*")
    assert status == 0
    verdicts = {line.split()[0]: line.split()[1] for line in told.splitlines() if line.startswith("debian12")}
    assert verdicts == {
        "debian12-amd64-535.261.03-jit": "build",
        f"debian12-amd64-535.261.03-{OLD}": "build",
        f"debian12-amd64-535.261.03-{NEW}": "build",
    }
    assert "3 cells: 3 build" in told
    assert "warning (1 cell): built without open modules: pci_resize_resource() has four arguments" in told
    assert "warning (3 cells): branch 535 is past its end of life, 2026-06 (a page)" in told


@pytest.mark.parametrize("stray", ["debain12", "debain12/bookworm-security"])
def test_a_mirror_of_an_os_that_the_matrix_has_not(site: Site, stray: str) -> None:
    status, told = site.run("lock", "--mirror", f"{stray}=http://127.0.0.1:9")
    assert status == 64
    assert "--mirror names debain12" in told
    assert "debian12" in told.replace("debain12", "")
    assert not site.lock.exists()


def test_plan_without_a_lock_names_the_command(site: Site) -> None:
    status, told = site.run("plan", "--select", "debian12-*")
    assert status == 65
    assert (
        f"driverforge lock --matrix {site.folder / 'site.yaml'} --lock {site.lock} --select 'debian12-*'"
        in told
    )


@pytest.mark.parametrize(("status", "verdict", "exit_status"), [(403, "unknown", 75), (404, "build", 0)])
def test_plan_asks_the_registry(site: Site, status: int, verdict: str, exit_status: int) -> None:
    write_matrix(site.folder, BOTH_BREAK)
    site.run("lock")
    with served(site.folder) as registry:
        registry.broken["*"] = status
        told = site.run(
            "plan",
            "--select",
            f"debian12-*-{{{OLD},{NEW}}}",
            "--registry",
            f"{registry.url.removeprefix('http://')}/driver",
        )
    assert told[0] == exit_status
    assert [line.split()[1] for line in told[1].splitlines()[:2]] == [verdict, "blocked"]
    assert {line.split()[0] for line in registry.requests} == {"HEAD"}  # what is blocked is not asked about
    assert all(f"-{OLD}-debian12-r" in line for line in registry.requests)


def test_a_registrys_pause_is_an_event_for_programs(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.run("lock")
    with served(site.folder) as registry:
        registry.broken["*"] = 503
        registry.before = lambda _: len(registry.requests) > 1 and registry.broken.update({"*": 404})
        host = registry.url.removeprefix("http://")
        words = ["--matrix", str(site.folder / "site.yaml"), "--lock", str(site.lock), "--json"]
        cells = f"debian12-*-{OLD}"
        assert cli.run(["plan", "--select", cells, "--registry", f"{host}/driver", *words]) == 0
    captured = capsys.readouterr()
    assert [cell["verdict"] for cell in json.loads(captured.out)["cells"]] == ["build"]
    (waited,) = map(json.loads, captured.err.splitlines())
    assert (waited["event"], waited["why"]) == ("waiting", f"{host} answers 503")


def test_explain_prints_the_line_of_the_header(site: Site) -> None:
    site.run("lock")
    status, told = site.run("explain", f"debian12-amd64-535.261.03-{NEW}")
    assert status == 0
    assert (
        "linux-headers-6.1.0-53-common 6.1.187-1: include/linux/pci.h:2: "
        "pci_resize_resource(struct pci_dev *dev, int i, int size, int exclude_bars)"
    ) in told
    assert "bookworm-security of 2026-11-20T12:00:00Z" in told
    told = json.loads(site.run("explain", f"debian12-amd64-535.261.03-{NEW}", "--json")[1])
    assert (told["verdict"]["state"], told["module_types"]) == ("build", ["proprietary"])
    check_document("explain", told)


def test_explain_of_no_cell(site: Site) -> None:
    site.run("lock")
    status, told = site.run("explain", f"debian12-amd64-535.261.03-{NEW}x")
    assert status == 64
    assert f"near: debian12-amd64-535.261.03-{NEW}" in told


def push_base(registry: str, content: bytes) -> str:
    """An image behind an index at REGISTRY/debian:12; the digest of the image."""
    client = RegistryClient(Session(registry_transport({}, lambda *_: None)))
    place = Reference.parse(f"{registry}/debian:12")
    digest = digest_of(content)
    client.put_blob(place, content, digest=digest, size=len(content))
    blob = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest, "size": len(content)}
    image = json.dumps({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": blob, "layers": []}).encode()
    child = client.put_manifest(place.with_digest(digest_of(image)), image, OCI_MANIFEST)
    platform = {"os": "linux", "architecture": "amd64"}
    entry = {"mediaType": OCI_MANIFEST, "digest": child, "size": len(image), "platform": platform}
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [entry]}
    client.put_manifest(place, json.dumps(index).encode(), OCI_INDEX)
    return child


@pytest.mark.skipif(bool(missing("docker-registry")), reason="docker-registry is not installed")
def test_a_base_image_is_pinned_watched_and_kept_when_its_registry_is_away(site: Site) -> None:
    with dockerregistry.registry(site.folder / "registry") as registry:
        name = f"{registry}/debian:12"
        words = ("--base", f"debian12={name}")
        first = push_base(registry, b'{"one": 1}')
        status, told = site.run("lock", *words)
        assert (status, f"  base {name} is {first}\n" in told) == (0, True), told
        assert target(site).base is not None
        assert site.run("lock", *words, "--check")[0] == 0
        moved = push_base(registry, b'{"two": 2}')
        status, told = site.run("lock", *words, "--check")
        assert (status, f"  base: {name}@{first} -> {name}@{moved}\n" in told) == (1, True), told
        assert site.run("lock", *words)[0] == 0
    before = site.lock.read_bytes()
    status, told = site.run("lock", *words)
    assert status == 0
    assert f"  base {name} stays {moved}: {registry} does not answer" in told
    assert site.lock.read_bytes() == before
    out = site.folder / "out"
    assert site.run("generate", "--select", "debian12-*-jit", "--output", str(out), *words)[0] == 0
    (dockerfile,) = out.glob("*/Dockerfile")
    assert f"ARG BASE_IMAGE={name}@{moved}\n" in dockerfile.read_text()
    assert "nobody notices" not in site.run("plan", "--select", "debian12-*-jit", *words)[1]


@pytest.mark.skipif(bool(missing("docker-registry")), reason="docker-registry is not installed")
def test_a_registry_without_tls_is_asked_where_its_address_says_so(site: Site) -> None:
    site.run("lock")
    words = ("plan", "--select", f"debian12-*-{OLD}")
    with dockerregistry.registry(site.folder / "registry") as registry:
        # this machine too, by an address that nobody takes for the loopback
        place = f"{registry.replace('127.0.0.1', '0.0.0.0')}/site"
        status, told = site.run(*words, "--registry", f"http://{place}")
        assert (status, "1 build" in told) == (0, True), told
        status, told = site.run(*words, "--registry", place)
        assert (status, "1 unknown" in told) == (75, True), told


@pytest.mark.skipif(bool(missing("docker-registry")), reason="docker-registry is not installed")
def test_a_driver_image_is_pinned_where_it_holds_the_driver_and_kept_when_its_registry_is_away(
    site: Site,
) -> None:
    def content(version: str) -> bytes:
        return json.dumps({"config": {"Env": [f"DRIVER_VERSION={version}"]}}).encode()

    with dockerregistry.registry(site.folder / "registry") as registry:
        name = f"{registry}/debian:12"
        row = f"payload: image\n        image: {name}\n"
        write_matrix(site.folder, MATRIX.replace("payload: packages\n", row))
        push_base(registry, content("535.309.01"))
        status, told = site.run("lock")
        assert status == 0
        why = f"driver image {name} is not pinned: it holds driver 535.309.01, as its DRIVER_VERSION says"
        assert f"  535.261.03: {why}\n" in told
        assert target(site).images == {}
        told = site.run("plan", "--select", "debian12-*-jit")[1]
        assert (
            f"the driver image {name} is not pinned: when `lock` ran, no registry had it with this driver"
            in told
        )
        digest = push_base(registry, content("535.261.03"))
        status, told = site.run("lock", "--json")
        assert status == 0
        document = json.loads(told)
        check_document("lock-report", document)
        image = document["targets"][TARGET]["images"]["535.261.03"]
        assert (image["digest"], image["state"]) == (digest, "fresh")
        assert site.run("lock", "--check")[0] == 0
    status, told = site.run("lock")
    assert status == 0
    assert f"  535.261.03: driver image {name} stays {digest}: {registry} does not answer" in told
    assert target(site).images["535.261.03"].digest == digest


def test_a_driver_image_of_another_architecture_is_nobodys_question(site: Site) -> None:
    image = "{id: 535-image, branch: '535', version: 535.261.03, payload: image, image: '127.0.0.1:1/a:1', "
    rows = f"    drivers:\n      - {image}module_types: [open], archs: [arm64]}}\n"
    text = MATRIX.replace("    archs: [amd64]\n", "    archs: [amd64, arm64]\n")
    text = text.replace("        payload: packages\n", "        payload: packages\n        archs: [amd64]\n")
    write_matrix(site.folder, text.replace("    drivers:\n", rows))
    status, told = site.run("lock", "--select", "debian12-amd64-*")
    assert (status, "127.0.0.1:1" in told) == (0, False), told
    assert target(site).drivers


def test_a_base_image_that_no_registry_has_is_told_and_built_on_all_the_same(site: Site) -> None:
    words = ("--base", "debian12=127.0.0.1:1/local:1")
    status, told = site.run("lock", *words)
    assert status == 0
    assert "  base 127.0.0.1:1/local:1 is not pinned: 127.0.0.1:1 does not answer" in told
    assert target(site).base is None
    status, told = site.run("plan", "--select", "debian12-*-jit", *words)
    assert status == 0
    assert "1 cell: 1 build" in told
    assert "no digest of the base image 127.0.0.1:1/local:1: nobody notices when it moves" in told


def test_a_base_image_of_an_os_that_the_matrix_has_not(site: Site) -> None:
    status, told = site.run("lock", "--base", "debain12=debian:12")
    assert (status, "--base names debain12" in told) == (64, True)
