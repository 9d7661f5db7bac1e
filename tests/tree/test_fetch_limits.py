"""What a mirror must not be able to do with its answers: fill the memory, or be waited for without an end."""

from __future__ import annotations

import gzip
import io
import lzma
import socket
import tarfile
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from driverforge_build.discover.apt.stanzas import read_stanzas
from driverforge_build.discover.survey import degraded
from driverforge_build.fetch.fetcher import Fetcher
from driverforge_build.fetch.headers import HEADER_LIMIT, read_members
from driverforge_build.fetch.packagefile import FILE_LIMIT, NAME_LIMIT, unpack_package
from driverforge_build.fetch.responses import DOCUMENT_LIMIT
from driverforge_core.errors import InputError, TemporaryFailure, Unavailable
from support.fakes import mirror

URL = "http://mirror.site/debian/dists/bookworm/InRelease"
PCI = "*/include/linux/pci.h"
TREE = "./usr/src/linux-headers-6.1.0-50-common"


class Endless(httpx2.SyncByteStream):
    """A body without an end; it counts what was taken."""

    def __init__(self) -> None:
        self.taken = 0

    def __iter__(self) -> Iterator[bytes]:
        while True:
            self.taken += 1 << 20
            assert self.taken <= DOCUMENT_LIMIT + (4 << 20), "it is read on and on"
            yield bytes(1 << 20)


def fetcher(folder: Path, *answers: httpx2.Response) -> Fetcher:
    left = list(answers)
    return mirror.fetcher(folder, lambda _: left.pop(0))


def test_a_document_without_an_end_is_left(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"mirror\.site sends more than 16 MiB"):
        fetcher(tmp_path, httpx2.Response(200, stream=Endless())).document(URL)


def test_a_redirects_own_page_is_not_read(tmp_path: Path) -> None:
    body = Endless()
    moved = httpx2.Response(302, headers={"location": "/elsewhere"}, stream=body)
    assert fetcher(tmp_path, moved, httpx2.Response(200, content=b"one")).document(URL) == b"one"
    assert body.taken == 0


def test_a_document_that_is_compressed_though_nobody_asked_is_refused(tmp_path: Path) -> None:
    """16 MiB of it would be 16 GiB."""
    answer = httpx2.Response(200, headers={"content-encoding": "gzip"}, stream=Endless())
    with pytest.raises(Unavailable, match=r"encoded \(gzip\)"):
        fetcher(tmp_path, answer).document(URL)


def test_a_file_that_is_larger_than_any_is_left(tmp_path: Path) -> None:
    with (tmp_path / "InRelease").open("wb") as file:
        file.truncate(DOCUMENT_LIMIT + 1)
    with pytest.raises(Unavailable, match="more than 16 MiB"):
        mirror.fetcher(tmp_path / "cache").document((tmp_path / "InRelease").as_uri())


@pytest.mark.parametrize("later", ["3600", "9" * 400, "Fri, 15 Jan 2100 08:00:10 GMT"])
def test_a_server_that_asks_for_a_long_pause_is_not_waited_for(tmp_path: Path, later: str) -> None:
    busy = httpx2.Response(429, headers={"retry-after": later})
    with pytest.raises(TemporaryFailure, match=r"mirror\.site is busy or broken \(Retry-After: ") as caught:
        fetcher(tmp_path, busy).document(URL)
    assert later[:40] in caught.value.brief


def test_each_suite_of_a_mirror_that_is_not_there_has_its_own_evidence(tmp_path: Path) -> None:
    def refused(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("[Errno 111] Connection refused")

    ours, failures = mirror.fetcher(tmp_path, refused), {}
    for suite in ("bookworm", "bookworm-updates"):
        with pytest.raises(TemporaryFailure) as caught:
            ours.document(f"https://mirror.site/dists/{suite}/InRelease")
        failures[suite] = caught.value
    told = degraded(failures)
    assert told.details == (
        "bookworm: mirror.site does not answer: [Errno 111] Connection refused",
        "GET https://mirror.site/dists/bookworm/InRelease",
        "ConnectError: [Errno 111] Connection refused",
        "bookworm-updates: mirror.site does not answer: [Errno 111] Connection refused",
        "GET https://mirror.site/dists/bookworm-updates/InRelease: the host is not asked again",
        "ConnectError: [Errno 111] Connection refused",
    )
    assert told.resolution.startswith("check the name, the network and the proxy (http_proxy, ")
    assert told.resolution.count("run the same command again later") == 1


def test_a_mirror_that_takes_the_call_and_says_nothing_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(TemporaryFailure) as caught:
            mirror.fetcher(tmp_path, timeout=0.2).document(f"http://127.0.0.1:{port}/InRelease")
    assert caught.value.brief == f"127.0.0.1:{port} accepts the connection and sends nothing for 0.2 s"


@pytest.mark.parametrize("suffix", [".xz", ".gz", ""])
def test_an_index_that_unpacks_to_more_than_any_has_is_left(tmp_path: Path, suffix: str) -> None:
    pack = {".xz": lzma.compress, ".gz": gzip.compress, "": bytes}[suffix]
    (tmp_path / "index").write_bytes(pack(bytes(4 << 20)))
    with pytest.raises(InputError, match="unpacks to more than 3145728 bytes"):
        list(read_stanzas(tmp_path / "index", suffix, limit=3 << 20))
    assert len(list(read_stanzas(tmp_path / "index", suffix, limit=4 << 20))) == 1


def test_an_index_of_one_endless_stanza_is_left_before_it_is_joined_again_and_again(tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(lzma.compress(bytes(64 << 20), preset=0))
    with pytest.raises(InputError, match="a stanza has more than 8388608 bytes"):
        list(read_stanzas(tmp_path / "index", ".xz"))


def deb_with(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    packed = lzma.compress(data.getvalue(), preset=0)
    head = f"{'data.tar.xz':<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(packed):<10}`\n".encode()
    path.write_bytes(b"!<arch>\n" + head + packed)
    return path


def test_a_header_larger_than_any_is_not_read(tmp_path: Path) -> None:
    member = tarfile.TarInfo(f"{TREE}/include/linux/pci.h")
    deb = deb_with(tmp_path / "a.deb", (member, bytes(HEADER_LIMIT + 1)))
    with pytest.raises(InputError, match=f"pci.h has {HEADER_LIMIT + 1} bytes"):
        read_members(deb, [PCI])


def test_a_package_that_unpacks_to_more_than_any_tree_is_left(tmp_path: Path) -> None:
    deb = deb_with(tmp_path / "a.deb", (tarfile.TarInfo("a"), bytes(4 << 20)), (tarfile.TarInfo("b"), b""))
    with pytest.raises(InputError, match="it unpacks to more than 1048576 bytes"):
        read_members(deb, [PCI], limit=1 << 20)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_SPARSE, tarfile.XHDTYPE, tarfile.CONTTYPE])
def test_an_entry_that_dpkg_would_not_read_is_none(tmp_path: Path, kind: bytes) -> None:
    """A sparse file's holes cost nothing to send, and all of the memory to read."""
    entry = tarfile.TarInfo(f"{TREE}/include/linux/pci.h")
    entry.type = kind
    deb = deb_with(tmp_path / "a.deb", (entry, b"x"), (tarfile.TarInfo("b"), b""))
    with pytest.raises(InputError, match=r"pci\.h is an entry of the type"):
        read_members(deb, [PCI])


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_a_long_path_is_read_and_a_longer_one_than_any_is_not(tmp_path: Path, kind: bytes) -> None:
    entry, header = tarfile.TarInfo("././@LongLink"), tarfile.TarInfo(f"{TREE}/include/linux/pci.h")
    entry.type = kind
    name = header.name.encode().ljust(NAME_LIMIT - 1, b"\0") + b"\0"
    deb = deb_with(tmp_path / "a.deb", (entry, name), (header, b"int x;"))
    assert read_members(deb, [PCI]) == {PCI: "int x;"}
    deb = deb_with(tmp_path / "a.deb", (entry, name + b"\0"), (header, b"int x;"))
    with pytest.raises(InputError, match=f"a path has {NAME_LIMIT + 1} bytes"):
        read_members(deb, [PCI])


def test_a_file_larger_than_any_kernel_is_not_unpacked(tmp_path: Path) -> None:
    rpm = rpm_with(tmp_path / "a.rpm", cpio_entry("boot/vmlinuz", size=b"%08x" % (FILE_LIMIT + 1)))
    with pytest.raises(InputError, match=f"boot/vmlinuz has {FILE_LIMIT + 1} bytes"):
        unpack_package(rpm, tmp_path / "target")


def test_a_package_whose_parts_lead_backwards_is_left(tmp_path: Path) -> None:
    """It would be read in a circle."""
    head = f"{'control.tar':<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{-60:<10}`\n".encode()
    (tmp_path / "a.deb").write_bytes(b"!<arch>\n" + head)
    with pytest.raises(InputError, match="a part of it has -60 bytes"):
        read_members(tmp_path / "a.deb", [PCI])


TABLE = b"\x8e\xad\xe8\x01" + bytes(12)
LEAD = b"\xed\xab\xee\xdb".ljust(96, b"\0")
HEADER = "./usr/src/kernels/6/include/linux/pci.h"


def cpio_entry(
    name: str, content: bytes = b"", *, mode: int = 0o100644, size: bytes = b"", magic: bytes = b"070701"
) -> bytes:
    """An entry of a cpio archive as rpm writes it; `size` in place of the content's own."""
    path = name.encode() + b"\0"
    numbers = [b"%08x" % number for number in (0, mode, 0, 0, 1, 0)]
    size = size or b"%08x" % len(content)
    head = b"".join([magic, *numbers, size, *[b"%08x" % 0] * 4, b"%08x" % len(path), b"%08x" % 0])
    return head + path + bytes(-len(head + path) % 4) + content + bytes(-len(content) % 4)


def rpm_with(path: Path, *entries: bytes, table: bytes = TABLE) -> Path:
    path.write_bytes(LEAD + TABLE + table + gzip.compress(b"".join([*entries, cpio_entry("TRAILER!!!")])))
    return path


@pytest.mark.parametrize("size", [b"-0000001", b"+0000001", b"0x000001", b"0000_001", b"       1"])
def test_a_number_of_a_cpio_archive_is_eight_digits(tmp_path: Path, size: bytes) -> None:
    """Less than nothing would be read as all there is, into the memory."""
    rpm = rpm_with(tmp_path / "a.rpm", cpio_entry(HEADER, bytes(4096), size=size))
    with pytest.raises(InputError, match="cannot be read as a package: Non-hexadecimal"):
        read_members(rpm, [PCI])


def test_an_rpm_of_nonsense_is_none(tmp_path: Path) -> None:
    entry = cpio_entry(HEADER, b"int x;")
    assert read_members(rpm_with(tmp_path / "a.rpm", entry), [PCI]) == {PCI: "int x;"}
    for rpm, why in (
        (rpm_with(tmp_path / "b.rpm", entry, table=bytes(16)), "no table of tags"),
        (rpm_with(tmp_path / "c.rpm", cpio_entry(HEADER, magic=b"070707")), "no cpio archive"),
        (rpm_with(tmp_path / "d.rpm", cpio_entry("a" * NAME_LIMIT)), f"a path has {NAME_LIMIT + 1} bytes"),
    ):
        with pytest.raises(InputError, match=why):
            read_members(rpm, [PCI])


def test_what_is_unpacked_is_plain_files_below_the_folder(tmp_path: Path) -> None:
    """A link that is followed, or a path that leads out, would write anywhere."""
    longest = "/".join(["b" * 100] * 40)[: NAME_LIMIT - 2]
    entries = [
        cpio_entry("./a", b"plain"),
        cpio_entry(f"{tmp_path}/in/absolute", b"x"),
        cpio_entry("../outside", b"x"),
        cpio_entry("link", b"/etc", mode=0o120777),
        cpio_entry("folder", mode=0o040755),
    ]
    unpack_package(rpm_with(tmp_path / "a.rpm", *entries), tmp_path / "in/target")
    assert [path.name for path in (tmp_path / "in").rglob("*")] == ["target", "a"]
    rpm = rpm_with(tmp_path / "b.rpm", cpio_entry(longest, mode=0o040755), entries[0])
    unpack_package(rpm, tmp_path / "long")


def test_a_part_of_a_package_of_odd_length_is_filled_up(tmp_path: Path) -> None:
    whole = deb_with(tmp_path / "a.deb", (tarfile.TarInfo(f"{TREE}/include/linux/pci.h"), b"int x;"))
    head = f"{'control.tar':<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{3:<10}`\n".encode()
    (tmp_path / "b.deb").write_bytes(b"!<arch>\n" + head + b"abc\n" + whole.read_bytes()[8:])
    assert read_members(tmp_path / "b.deb", [PCI]) == {PCI: "int x;"}


@pytest.mark.parametrize("size", ["many", ""])
def test_a_package_whose_parts_have_no_length(tmp_path: Path, size: str) -> None:
    head = f"{'data.tar':<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{size:<10}`\n".encode()
    (tmp_path / "a.deb").write_bytes(b"!<arch>\n" + head)
    with pytest.raises(InputError, match="cannot be read as a package"):
        read_members(tmp_path / "a.deb", [PCI])
