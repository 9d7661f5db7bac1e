"""The lock file: the same pins give the same bytes, a damaged file says what to do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driverforge_build.advice import Given
from driverforge_build.lock.file import dump_lock, load_lock, merge_lock, parse_lock
from driverforge_build.lock.pins import HeaderFact, Lock, LockedArchive, LockedPackage, Origin
from driverforge_build.lock.sound import sound_package
from driverforge_core.errors import InputError
from driverforge_core.headertree import HeaderDigests
from support.samples.locks import kernel, package, target

names = st.text("abc1+.-", min_size=1, max_size=6)
packages = st.builds(
    LockedPackage,
    name=names,
    version=st.integers(0, 99).map("1:{}-1".format),
    arch=st.sampled_from(["amd64", "all"]),
    path=names,
    sha256=st.integers(0, 2**256 - 1).map("{:064x}".format),
    size=st.integers(0, 10**9),
    suite=names,
)


def test_reads_what_it_writes() -> None:
    vendor = replace(kernel("6.1.0-51"), vendor={"535.261.03": (package("linux-modules-nvidia"),)})
    lock = Lock(
        targets={
            "debian12-amd64": target(kernel("6.1.0-50"), vendor),
            "debian12-arm64": target(arch="arm64"),
        }
    )
    again = parse_lock(dump_lock(lock))
    assert again.targets["debian12-amd64"].kernels == lock.targets["debian12-amd64"].kernels
    assert again.targets["debian12-amd64"].header_facts == lock.targets["debian12-amd64"].header_facts
    assert again.targets["debian12-amd64"].repositories == lock.targets["debian12-amd64"].repositories
    assert again.target("debian12", "arm64") is not None
    assert dump_lock(again) == dump_lock(lock)


def _open_and_entitled() -> tuple[LockedPackage, LockedPackage]:
    """UBI has the very kernel-headers of the newest kernel, for its compiler; so has RHEL's own."""
    ours = replace(package("kernel-headers", suite="ubi-9-appstream-rpms"), path="k/kernel-headers.rpm")
    return ours, replace(ours, suite="rhel-9-for-x86_64-appstream-rpms", path="Packages/k/kernel-headers.rpm")


def test_what_a_driver_takes_from_an_open_repository_stays_from_there() -> None:
    ours, theirs = _open_and_entitled()
    devel = replace(package("kernel-devel"), suite=theirs.suite)
    found = target(kernel("5.14.0-1", devel, theirs), drivers={"535.261.03": {"toolchain": (ours,)}})
    (again,) = parse_lock(dump_lock(Lock(targets={found.key: found}))).targets.values()
    assert again.drivers == found.drivers
    assert again.kernels["5.14.0-1"].headers == (devel, ours)


def test_two_files_of_one_name_and_version_are_refused() -> None:
    ours, theirs = _open_and_entitled()
    other = replace(theirs, sha256="cd" * 32)
    found = target(kernel("5.14.0-1", other), drivers={"535.261.03": {"toolchain": (ours,)}})
    with pytest.raises(InputError, match="two different packages are called kernel-headers=1-1") as told:
        dump_lock(Lock(targets={found.key: found}))
    assert [line.split(":")[0] for line in told.value.details] == [ours.suite, other.suite]


def test_a_file_of_the_former_version_is_read_and_is_up_to_date(tmp_path: Path) -> None:
    """It had a key more for each target, which was false."""
    path, found = tmp_path / "site.json", target(kernel("6.1.0-50"))
    former = dump_lock(Lock(targets={found.key: found})).replace(
        '"without_headers"', '"synthetic": false,\n   "without_headers"'
    )
    assert "synthetic" in former
    path.write_text(former)
    assert load_lock(path).targets == parse_lock(dump_lock(Lock(targets={found.key: found}))).targets
    assert not merge_lock(path, [found], writing=True)
    assert path.read_text() == former
    assert merge_lock(path, [target(kernel("6.1.0-56"))], writing=True)
    assert "synthetic" not in path.read_text()


@settings(max_examples=40)
@given(st.lists(packages, unique_by=lambda one: one.key, max_size=6), st.randoms())
def test_bytes_do_not_depend_on_order(pins: list[LockedPackage], random: object) -> None:
    shuffled = list(pins)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    texts = {
        dump_lock(Lock(targets={"debian12-amd64": target(drivers={"535.1": {"userspace": tuple(order)}})}))
        for order in (pins, shuffled)
    }
    assert len(texts) == 1
    assert {one.key for one in pins} == set(json.loads(texts.pop())["targets"]["debian12-amd64"]["packages"])


ARCHIVE = LockedArchive(
    version="580.105.08-grid",
    arch="arm64",
    url="https://files.site/NVIDIA-Linux-aarch64-580.105.08-grid.run",
    sha256="ab" * 32,
    size=7,
    origin=Origin.FIRST_USE,
    source="there",
    date="2026-11-22",
    accepted="it is right",
)


@pytest.mark.parametrize("name", ["--root=etc", "-oDebug::NoLocking=1"])
def test_no_word_of_a_lock_is_an_option_of_a_program(name: str) -> None:
    with pytest.raises(ValueError, match="is no word"):
        sound_package(package(name))


@pytest.mark.parametrize("archive", [ARCHIVE, replace(ARCHIVE, date="", accepted="", origin=Origin.MANIFEST)])
def test_reads_the_archives_that_it_writes(archive: LockedArchive) -> None:
    lock = Lock().with_archives([archive])
    assert parse_lock(dump_lock(lock)) == lock
    assert lock.archive("580.105.08-grid", "arm64") == archive
    assert lock.archive("580.105.08-grid", "amd64") is None


def test_merging_keeps_the_archives_of_others(tmp_path: Path) -> None:
    path, other = tmp_path / "l.json", replace(ARCHIVE, arch="amd64")
    assert merge_lock(path, [], [ARCHIVE], writing=True)
    assert merge_lock(path, [target()], [other], writing=True)
    assert not merge_lock(path, [], [other], writing=True)
    found = load_lock(path)
    assert found.archives == {ARCHIVE.key: ARCHIVE, other.key: other}
    assert list(found.targets) == ["debian12-amd64"]
    assert found.with_targets([]).archives == found.archives


@pytest.mark.parametrize(
    ("changes", "evidence"),
    [
        ({"url": "file:///etc/passwd"}, "no web address"),
        ({"url": "https://a/b c"}, "no word"),
        ({"url": "https://a/$(id)"}, "no word"),
        ({"sha256": "ab"}, "64 hexadecimal digits"),
        ({"size": -1}, "less than nothing"),
        ({"origin": "a friend"}, "a friend"),
        ({"date": "yesterday"}, "yesterday"),
    ],
)
def test_a_damaged_archive_is_told(changes: dict[str, object], evidence: str) -> None:
    document = json.loads(dump_lock(Lock().with_archives([ARCHIVE])))
    document["archives"][ARCHIVE.key] |= changes
    with pytest.raises(InputError) as told:
        parse_lock(json.dumps(document))
    assert evidence in told.value.render()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("without_headers", "6.1.0-50"),
        ("without_headers", [5]),
        ("kernels 6.1.0-50 flavour", ["cloud"]),
        ("kernels 6.1.0-50 headers", ""),
        ("drivers 535.261.03 userspace", ""),
        ("header_facts linux-headers=1 q breaks", "no"),
        ("header_facts linux-headers=1 q breaks", 0),
        ("header_facts linux-headers=1 q found", None),
        ("header_digests linux-headers=1 files", 5),
        ("header_digests linux-headers=1 symvers", "ab"),
        ("repositories 0 date", None),
        ("repositories 0 date", []),
        ("repositories 0 signed_by", "ABCD"),
        ("repositories 0 components", "main"),
        ("repositories 0 indexes", {"main": 5}),
    ],
)
def test_a_value_of_another_kind_is_damage(path: str, value: object) -> None:
    """A text for a list would be its letters, "no" would be true, and null fails when it is compared."""
    facts = {"linux-headers=1": {"q": HeaderFact(breaks=False, found="a.h:1: x")}}
    digests = {"linux-headers=1": HeaderDigests(files="ab" * 32, config="cd" * 32, symvers="ef" * 32)}
    one = target(kernel("6.1.0-50"), header_facts=facts, header_digests=digests)
    document = json.loads(dump_lock(Lock(targets={one.key: one})))
    *above, last = path.split()
    at = document["targets"][one.key]
    for key in above:
        at = at[int(key) if isinstance(at, list) else key]
    assert last in at
    at[last] = value
    with pytest.raises(InputError, match="is damaged"):
        parse_lock(json.dumps(document))


def test_a_kernel_without_headers_is_damage() -> None:
    one = target(kernel("6.1.0-50"))
    document = json.loads(dump_lock(Lock(targets={one.key: one})))
    document["targets"][one.key]["kernels"]["6.1.0-50"]["headers"] = []
    with pytest.raises(InputError, match="is damaged") as told:
        parse_lock(json.dumps(document))
    assert "it has no headers" in told.value.render()


def test_a_target_that_stands_twice_is_told() -> None:
    """Both sides of a merge conflict were kept: the first one would be gone with the next `lock`."""
    text = dump_lock(Lock(targets={"debian12-amd64": target(), "debian13-amd64": target()}))
    with pytest.raises(InputError, match="is damaged") as told:
        parse_lock(text.replace("debian13-amd64", "debian12-amd64"))
    assert "'debian12-amd64' stands twice" in told.value.render()


def test_bytes_that_are_no_text_are_written_and_read_again(tmp_path: Path) -> None:
    """What a user typed as a reason, and the name of a file, may hold some."""
    path = tmp_path / "site.json"
    odd = replace(ARCHIVE, accepted="I looked \udcff", source="\udcfe.run")
    assert merge_lock(path, [], [odd], writing=True)
    assert load_lock(path).archives == {odd.key: odd}
    assert not merge_lock(path, [], [odd], writing=True)


def test_a_long_name_of_many_bytes_can_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / f"{'😀' * 62}.json"
    assert merge_lock(path, [target()], writing=True)
    assert list(load_lock(path).targets) == ["debian12-amd64"]


def test_a_package_is_one_line() -> None:
    text = dump_lock(Lock(targets={"debian12-amd64": target(kernel("6.1.0-50"))}))
    assert sum('"sha256": "abab' in line for line in text.splitlines()) == 4
    assert text.endswith("}\n")


def test_replaces_single_targets() -> None:
    lock = Lock(
        targets={"debian12-amd64": target(kernel("6.1.0-50")), "debian12-arm64": target(arch="arm64")}
    )
    merged = lock.with_targets([target(kernel("6.1.0-56"))])
    assert list(merged.targets["debian12-amd64"].kernels) == ["6.1.0-56"]
    assert merged.targets["debian12-arm64"] == lock.targets["debian12-arm64"]


def test_facts_are_those_of_the_kernels_own_headers() -> None:
    facts = {
        "common=1": {"q": HeaderFact(breaks=True, found="a.h:1: x")},
        "other=1": {"q": HeaderFact(breaks=False, found="")},
    }
    one = kernel("6.1.0-50", package("linux-headers-6.1.0-50"), package("common", "1"))
    assert target(one, header_facts=facts).facts(one) == {"q": HeaderFact(breaks=True, found="a.h:1: x")}


def test_a_missing_file_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(InputError) as told:
        load_lock(tmp_path / "site.lock.json")
    assert f"driverforge lock --lock {tmp_path / 'site.lock.json'}" in told.value.resolution


@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        ('{\n "schema": 1,\n', "site.json:3"),
        ('{"schema": 99, "targets": {}}', "schema 99"),
        ('{"targets": {}}', "schema"),
        ('{"schema": 1, "targets": {"debian12-amd64": {}}}', "packages"),
        ("[]", "list indices"),
    ],
)
def test_a_damaged_file_says_where(text: str, evidence: str) -> None:
    with pytest.raises(InputError) as told:
        parse_lock(text, Given(matrix=Path("site.yaml"), lock=Path("site.json")))
    assert evidence in told.value.render()
    assert told.value.resolution.endswith(
        "or remove it and run: driverforge lock --matrix site.yaml --lock site.json"
    )


@pytest.mark.parametrize("digest", ["", "ab", "g" * 64, "AB" * 32])
def test_a_digest_that_is_none_is_refused(digest: str) -> None:
    text = dump_lock(Lock(targets={"debian12-amd64": target(kernel("6.1.0-50"))})).replace("ab" * 32, digest)
    with pytest.raises(InputError, match="damaged"):
        parse_lock(text)


def test_a_pin_that_is_not_in_the_table_is_refused() -> None:
    text = dump_lock(Lock(targets={"debian12-amd64": target()})).replace(
        '["libc6=1-1", "libcuda1=1-1"]', '["libc6=2-1"]'
    )
    with pytest.raises(InputError, match="damaged"):
        parse_lock(text)
