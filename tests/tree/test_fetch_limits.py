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
from driverforge_build.fetch.fetcher import DOCUMENT_LIMIT, Fetcher
from driverforge_build.fetch.headers import HEADER_LIMIT, read_members
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
    """A member's name may be as long as its maker says, and is read whole."""
    long_name = tarfile.TarInfo("././@LongLink")
    long_name.type = tarfile.GNUTYPE_LONGNAME
    deb = deb_with(tmp_path / "a.deb", (long_name, b"a" * (4 << 20)), (tarfile.TarInfo("b"), b""))
    with pytest.raises(InputError, match="it unpacks to more than 1048576 bytes"):
        read_members(deb, [PCI], limit=1 << 20)


@pytest.mark.parametrize("size", ["many", ""])
def test_a_package_whose_parts_have_no_length(tmp_path: Path, size: str) -> None:
    head = f"{'data.tar':<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{size:<10}`\n".encode()
    (tmp_path / "a.deb").write_bytes(b"!<arch>\n" + head)
    with pytest.raises(InputError, match="cannot be read as a package"):
        read_members(tmp_path / "a.deb", [PCI])
