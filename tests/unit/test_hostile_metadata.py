"""What a repository, NVIDIA or a guest may send that means nothing: an error of ours, and no pin of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from driverforge_build.discover.apt import release_file
from driverforge_build.discover.apt.stanzas import DebianOrder, add_stanzas, new_index
from driverforge_build.discover.offered import PackageIndex
from driverforge_build.discover.rpm.repomd import parse_repomd
from driverforge_build.nvidia.published import redistributable_of
from driverforge_build.nvidia.releases import newest_releases
from driverforge_build.verify.guest import read_transcript
from driverforge_core import debversion, rpmversion
from driverforge_core.driverversion import DriverVersion
from driverforge_core.errors import DriverforgeError, InputError, Unavailable
from support.samples.locks import pins_by_sha256

MANY = "9" * 5000
"""More digits than Python makes a number of."""
SHA = "ab" * 32
OUTSIDE = ("./" * 32)[: 64 - len("../../x")] + "../../x"
"""A path of 64 characters."""
REPOMD = f"""<repomd xmlns="http://linux.duke.edu/metadata/repo"><data type="primary">
<checksum type="sha256">{SHA}</checksum><location href="repodata/a.xml.gz"/>
<timestamp>1700000000</timestamp><size>5</size></data></repomd>"""
STANZA = f"""Package: a
Version: 1
Architecture: amd64
Filename: pool/a.deb
SHA256: {SHA}
Size: 5"""


def test_what_these_tests_change_is_read_as_it_is() -> None:
    made, parts = parse_repomd(REPOMD.encode(), name="r")
    assert (made is not None, str(parts["primary"].sum)) == (True, f"sha256 {SHA}")
    assert pinned(STANZA.encode()) == "a=1"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("1700000000", "1e300"),
        ("1700000000", "inf"),
        ("1700000000", "nan"),
        (f'<checksum type="sha256">{SHA}</checksum>', ""),
        ('<location href="repodata/a.xml.gz"/>', ""),
        (SHA, OUTSIDE),
        (SHA, "g" * 64),
        ('"sha256"', '"sha512"'),
        ('"sha256"', '"sha1"'),
        ("<size>5", "<size>-5"),
        ("<size>5", f"<size>{MANY}"),
        ("<repomd", '<?xml version="1.0" encoding="hex"?><repomd'),
        ("<repomd", '<?xml version="1.0" encoding="none"?><repomd'),
    ],
)
def test_a_repomd_of_nonsense(old: str, new: str) -> None:
    assert old in REPOMD
    with pytest.raises(InputError, match=r"cannot read repomd.xml of own"):
        parse_repomd(REPOMD.replace(old, new).encode(), name="repomd.xml of own")


@pytest.mark.parametrize(
    "line",
    [f"{OUTSIDE} 5 main/Packages", f"{'g' * 64} 5 main/Packages", f"{SHA} {MANY} main/Packages", f"{SHA} 5"],
)
def test_a_release_files_digest_is_one(line: str) -> None:
    text = f"Date: Fri, 20 Nov 2026 12:00:00 UTC\nSHA256:\n {line}\n"
    with pytest.raises(InputError, match="not a digest, a size and a path"):
        release_file.parse(text, name="InRelease")


@pytest.mark.parametrize("date", ["Fri, 20 Nov 99999999999 12:00:00 UTC", "Fri, 31 Dec 9999 23:59:59 -2359"])
def test_a_date_that_no_clock_has(date: str) -> None:
    with pytest.raises(InputError, match="is not a date"):
        release_file.parse(f"Date: {date}\nSHA256:\n {SHA} 5 Packages\n", name="InRelease")


def pinned(stanza: bytes) -> str:
    index = new_index()
    add_stanzas(index, [stanza], suite="s")
    packages = [one for name in index.names("") for one in index.versions(name)]
    return ", ".join(one.key for one in pins_by_sha256(packages).values())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (SHA, OUTSIDE),
        (SHA, SHA.upper()),
        ("pool/a.deb", "../../../../etc/passwd"),
        ("pool/a.deb", "pool/a b.deb"),
        ("pool/a.deb", "pool/$(id).deb"),
        ("Package: a", "Package: a\0b"),
        ("Architecture: amd64", "Architecture: a;b"),
        ("Size: 5", "Size: -5"),
    ],
)
def test_what_no_lock_can_hold_is_not_pinned(old: str, new: str) -> None:
    """It would be written, and the file not be read again; a digest becomes a file's name in the cache."""
    assert old in STANZA
    with pytest.raises(InputError, match="the index of s has a package that cannot be pinned"):
        pinned(STANZA.replace(old, new).encode())


@pytest.mark.parametrize(
    "stanza",
    [
        STANZA.replace("Version: 1", f"Version: {MANY}").encode(),
        STANZA.replace("Size: 5", f"Size: {MANY}").encode(),
        STANZA.encode() + b"\nProvides: \xff\xfe",
        STANZA.encode().replace(b"Package: a", b"Package: \xff"),
        STANZA.encode() + b"\nDepends: !",
    ],
)
def test_a_stanza_of_nonsense(stanza: bytes) -> None:
    with pytest.raises(InputError):
        pinned(stanza)


def test_more_packages_than_any_system_has_are_left() -> None:
    index = PackageIndex(DebianOrder(), limit=2)
    add_stanzas(index, [STANZA.encode()] * 2, suite="s")
    with pytest.raises(InputError, match="more than 2 packages"):
        add_stanzas(index, [STANZA.encode()], suite="s")


def manifest(size: str, sha256: str = SHA) -> bytes:
    path = "nvidia_driver/linux-x86_64/nvidia_driver-linux-x86_64-580.1.1-archive.tar.xz"
    entry = f'{{"relative_path": "{path}", "sha256": "{sha256}", "size": {size}}}'
    return f'{{"nvidia_driver": {{"version": "580.1.1", "linux-x86_64": {entry}}}}}'.encode()


@pytest.mark.parametrize("size", ["Infinity", "1e999", "-5", "NaN", "null", MANY])
def test_a_manifest_with_a_size_that_is_none(size: str) -> None:
    assert redistributable_of("580.1.1", "linux-x86_64", manifest("5")).size == 5
    with pytest.raises(Unavailable, match="the manifest does not name"):
        redistributable_of("580.1.1", "linux-x86_64", manifest(size))


@pytest.mark.parametrize("sha256", [OUTSIDE, "AB" * 32, ""])
def test_a_manifest_with_a_digest_that_is_none(sha256: str) -> None:
    with pytest.raises(Unavailable, match="the manifest does not name"):
        redistributable_of("580.1.1", "linux-x86_64", manifest("5", sha256))


@pytest.mark.parametrize("parse", [DriverVersion, debversion.key, lambda text: rpmversion.compare(text, "1")])
@pytest.mark.parametrize("version", [f"{MANY}.1", f"1.{MANY}"])
def test_versions_of_thousands_of_digits_are_none(parse: Callable[[str], object], version: str) -> None:
    with pytest.raises(DriverforgeError, match="is not a") as told:
        parse(version)
    assert len(told.value.brief) < 600


def test_a_release_with_thousands_of_digits_is_none_of_nvidias() -> None:
    one = '{"release_version": "580.1.1"}'
    body = f'{{"a": {{"driver_info": [{{"release_version": "{MANY}.1"}}, {one}]}}}}'.encode()
    assert list(newest_releases(body)) == ["580"]


@pytest.mark.parametrize("status", [MANY, "99999999999", "-1", "²", ""])
def test_a_status_that_is_no_errno_says_nothing(status: str) -> None:
    told = read_transcript(["begin a", f"end a {status} x"])
    assert not told.answers
    assert told.trying == "a"
