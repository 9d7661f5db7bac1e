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
from driverforge_build.lock.pins import HeaderFact, Lock, LockedPackage
from driverforge_core.errors import InputError
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
