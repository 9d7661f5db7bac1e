"""primary.xml and repomd.xml as nobody publishes them: what is refused, at the very place that refuses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from driverforge_build.discover.rpm.primary import FIELD_LIMIT, read_primary
from driverforge_build.discover.rpm.repomd import read_repository
from driverforge_build.discover.settings import Nowhere
from driverforge_build.discover.signature import Untrusted
from driverforge_build.ports import DatedDocument, LastRead, NotThere
from driverforge_core.errors import InputError

SHA = "ab" * 32
PRIMARY = f"""<metadata xmlns="http://linux.duke.edu/metadata/common" xmlns:rpm="urn:rpm"><package type="rpm">
<name>a</name><arch>x86_64</arch><version epoch="0" ver="1" rel="2"/>
<checksum type="sha256" pkgid="YES">{SHA}</checksum><size package="5"/>
<location href="Packages/a.rpm"/><format><rpm:sourcerpm>a.src.rpm</rpm:sourcerpm>
<rpm:requires><rpm:entry name="b" flags="GE" epoch="0" ver="1"/></rpm:requires>
<file>/usr/bin/a</file></format></package></metadata>"""
REPOMD = f"""<repomd xmlns="http://linux.duke.edu/metadata/repo"><data type="primary">
<checksum type="sha256">{SHA}</checksum><location href="repodata/a.xml.gz"/><size>5</size></data></repomd>"""


def names(folder: Path, text: str, *, limit: int = 1 << 24) -> list[str]:
    (path := folder / "primary.xml").write_text(text)
    return [record.name for record in read_primary(path, "", archs=frozenset({"x86_64"}), limit=limit)]


def test_what_these_tests_change_is_read_as_it_is(tmp_path: Path) -> None:
    assert names(tmp_path, PRIMARY) == ["a"]
    assert names(tmp_path, PRIMARY, limit=len(PRIMARY)) == ["a"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('href="Packages/a.rpm"', 'href="../a.rpm"', "does not lie below"),
        ('href="Packages/a.rpm"', 'href="Packages/../../a.rpm"', "does not lie below"),
        ('href="Packages/a.rpm"', 'href="/a.rpm"', "does not lie below"),
        ('href="Packages/a.rpm"', 'href="https://elsewhere.site/a.rpm"', "does not lie below"),
        ('href="Packages/a.rpm"', 'href="a.rpm" xml:base="https://elsewhere.site"', "does not lie below"),
        ('href="Packages/a.rpm"', "", "href"),
        (SHA, "../" * 21 + "x", "is not 64 hexadecimal digits"),
        (SHA, "", "is not 64 hexadecimal digits"),
        ('type="sha256"', 'type="sha"', "a is known by its sha alone"),
        ('type="sha256"', 'type="md5"', "a is known by its md5 alone"),
        ('type="sha256"', "", "a is known by its sum of no kind alone"),
        ('type="sha256"', 'type="sha384"', "a: sha384 .* is not 96 hexadecimal digits"),
        ('type="sha256"', 'type="sha512"', "a: sha512 .* is not 128 hexadecimal digits"),
        (f'<checksum type="sha256" pkgid="YES">{SHA}</checksum>', "", "is not whole"),
        ("<name>a</name>", "", "is not whole"),
        ('<version epoch="0" ver="1" rel="2"/>', "", "is not whole"),
        ('<location href="Packages/a.rpm"/>', "", "is not whole"),
        ('<size package="5"/>', "", "is not whole"),
        ('package="5"', 'package="5x"', "invalid literal"),
        ("<name>a", f"<name>{'a' * (FIELD_LIMIT + 1)}", "has more than"),
        ("<metadata", '<!DOCTYPE m [<!ENTITY a "b">]><metadata', "declaration"),
        ("<metadata", '<?xml version="1.0" encoding="hex"?><metadata', "encoding"),
        ("</metadata>", "", "no element found"),
        ("</metadata>", "</meta>", "mismatched tag"),
    ],
)
def test_an_entry_of_nonsense(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in PRIMARY
    with pytest.raises(InputError, match=f"cannot read the index .*{told}"):
        names(tmp_path, PRIMARY.replace(old, new))


def test_an_index_that_unpacks_to_more_than_any(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"unpacks to more than {len(PRIMARY) - 1} bytes"):
        names(tmp_path, PRIMARY, limit=len(PRIMARY) - 1)


def test_more_entries_than_any_are_left(tmp_path: Path) -> None:
    """They are small where they are packed, and a hundred bytes each where they are kept."""
    (path := tmp_path / "primary.xml").write_text(PRIMARY)
    archs = frozenset({"x86_64"})
    assert [one.name for one in read_primary(path, "", archs=archs, entries=2)] == ["a"]
    with pytest.raises(InputError, match="need and provide more than"):
        list(read_primary(path, "", archs=archs, entries=1))


def test_another_document_is_no_index(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ends in the middle"):
        names(tmp_path, "<html></html>")


class Served:
    """What stands at the addresses of a repository."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def document(self, url: str) -> bytes:
        return self.dated_document(url).body

    def dated_document(self, url: str) -> DatedDocument:
        if url.rpartition("/")[2] not in self._names:
            raise NotThere("gone")
        return DatedDocument(body=REPOMD.encode(), last_read=LastRead(fresh=True, time=""))


@pytest.mark.parametrize("scheme", ["https", "file", "http"])
def test_an_index_that_has_to_be_signed_is_nothing_without_keys(scheme: str) -> None:
    """However safely its bytes came."""
    served = Served("repomd.xml", "repomd.xml.asc")
    with pytest.raises(Nowhere, match="nothing says who may sign repomd"):
        read_repository(served, "r", f"{scheme}://m.site/r", keyrings=(), must_be_signed=True)
    with pytest.raises(Untrusted, match="is not signed, and its distribution signs it"):
        read_repository(Served("repomd.xml"), "r", f"{scheme}://m.site/r", keyrings=(), must_be_signed=True)


@pytest.mark.parametrize("signature", [(), ("repomd.xml.asc",)], ids=["none", "one that nobody can check"])
def test_an_index_without_signature_counts_where_it_came_safely(signature: tuple[str, ...]) -> None:
    served = Served("repomd.xml", *signature)
    for scheme in ("https", "file"):
        found = read_repository(served, "r", f"{scheme}://m.site/r", keyrings=(), must_be_signed=False)
        assert found.fingerprints == ()
    with pytest.raises(Untrusted, match="nobody vouches for repomd"):
        read_repository(served, "r", "http://m.site/r", keyrings=(), must_be_signed=False)
