"""What NVIDIA says of its archives is read for the file that was asked for, and for no other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from driverforge_build.nvidia.published import (
    Wanted,
    checksum_of,
    common_url,
    redistributable_of,
    redistributable_url,
)
from driverforge_build.nvidia.site import check_hosts, mirrored
from driverforge_core.errors import Unavailable, UsageError

# as NVIDIA publishes them
RUNFILE = "NVIDIA-Linux-x86_64-580.159.03.run"
PUBLISHED = "32c85d99b0f640c9501f61b39ddad208fd0288d015c4fbc5fd0435c07783fa77"
PLATFORM = "linux-x86_64"


@pytest.mark.parametrize(
    "text",
    [
        f"{PUBLISHED}  {RUNFILE}\n",
        f"{PUBLISHED} *{RUNFILE}\n",
        f"{PUBLISHED}  ./{RUNFILE}\r\n",
        f"{'0' * 64}  NVIDIA-Linux-x86_64-580.159.03-no-compat32.run\n{PUBLISHED}  {RUNFILE}\n",
    ],
)
def test_the_sum_of_the_file_is_found(text: str) -> None:
    assert checksum_of(RUNFILE, text) == PUBLISHED


@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        ("", "no line of sha256sum"),
        (f"{PUBLISHED}\n", "no line of sha256sum"),
        (f"{PUBLISHED[:-1]}  {RUNFILE}\n", "no line of sha256sum"),
        (
            f"{PUBLISHED}  NVIDIA-Linux-x86_64-580.159.04.run\n",
            "about NVIDIA-Linux-x86_64-580.159.04.run",
        ),
        (f"{PUBLISHED}  {RUNFILE}.old\n", f"it is about {RUNFILE}.old"),
        ("<html><body>Please log in</body></html>", "no line of sha256sum"),
    ],
)
def test_a_sum_for_another_file_is_none(text: str, evidence: str) -> None:
    with pytest.raises(Unavailable) as told:
        checksum_of(RUNFILE, text)
    assert evidence in told.value.details[0]


def manifest(**changes: Any) -> bytes:
    entry = {
        "relative_path": f"nvidia_driver/{PLATFORM}/nvidia_driver-{PLATFORM}-580.178.04-archive.tar.xz",
        "sha256": "ab" * 32,
        "size": "393439928",
    }
    driver = {"name": "NVIDIA Linux Driver", "version": "580.178.04", PLATFORM: entry}
    for name, value in changes.items():
        (driver if name == "version" else entry)[name] = value
    return json.dumps({"release_date": "2026-09-08", "nvidia_driver": driver}).encode()


def test_a_manifest_names_the_archive_its_sum_and_its_size() -> None:
    found = redistributable_of("580.178.04", PLATFORM, manifest())
    assert (found.sha256, found.size) == ("ab" * 32, 393439928)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"<html>",
        b"[" * 100_000,
        b'{"nvidia_driver": null}',
        manifest(version="580.178.05"),
        manifest(sha256="ab"),
        manifest(sha256=7),
        manifest(size="large"),
        manifest(relative_path="../../evil.tar.xz"),
        manifest(
            relative_path=f"nvidia_driver/{PLATFORM}/../nvidia_driver-{PLATFORM}-580.178.04-archive.tar.xz"
        ),
        manifest(relative_path=f"other/nvidia_driver-{PLATFORM}-580.178.05-archive.tar.xz"),
        manifest(relative_path=f"a b/nvidia_driver-{PLATFORM}-580.178.04-archive.tar.xz"),
    ],
)
def test_a_manifest_that_is_wrong_names_nothing(body: bytes) -> None:
    with pytest.raises(Unavailable, match="does not name the driver"):
        redistributable_of("580.178.04", PLATFORM, body)


def test_another_platform_is_not_in_the_manifest() -> None:
    with pytest.raises(Unavailable, match="linux-sbsa"):
        redistributable_of("580.178.04", "linux-sbsa", manifest())


@pytest.mark.parametrize(
    ("version", "arch", "runfile", "archive"),
    [
        # siderolabs/pkgs has the archive's address and sum, 269bfbc5... and 8e55dfbe...
        ("580.178.04", "amd64", "x86_64/580.178.04/NVIDIA-Linux-x86_64-580.178.04.run", "linux-x86_64"),
        ("580.178.04", "arm64", "aarch64/580.178.04/NVIDIA-Linux-aarch64-580.178.04.run", "linux-sbsa"),
        ("580.105.08-grid", "amd64", "x86_64/580.105.08/NVIDIA-Linux-x86_64-580.105.08-grid.run", ""),
    ],
)
def test_where_nvidia_has_the_archives_of_a_driver(
    version: str, arch: str, runfile: str, archive: str
) -> None:
    wanted = Wanted(version=version, arch=arch, url="")
    assert common_url(wanted) == f"https://download.nvidia.com/XFree86/Linux-{runfile}"
    if archive:
        assert redistributable_url(wanted) == (
            "https://developer.download.nvidia.com/compute/nvidia-driver/redist/nvidia_driver/"
            f"{archive}/nvidia_driver-{archive}-{version}-archive.tar.xz"
        )


COMMON = "https://download.nvidia.com/XFree86/Linux-x86_64/580.159.03/a.run"


@pytest.mark.parametrize(
    ("url", "mirrors", "address"),
    [
        (COMMON, {}, COMMON),
        (COMMON, {"debian12": "http://m/debian"}, COMMON),
        (COMMON, {"nvidia": "http://m/nv/"}, "http://m/nv/XFree86/Linux-x86_64/580.159.03/a.run"),
        (
            COMMON,
            {"nvidia": "http://m", "nvidia/download.nvidia.com": "http://n"},
            COMMON.replace("https://download.nvidia.com", "http://n"),
        ),
        (COMMON, {"nvidia/us.download.nvidia.com": "http://n"}, COMMON),
        ("https://files.site/a.run", {"nvidia": "http://m"}, "https://files.site/a.run"),
    ],
)
def test_a_mirror_takes_the_place_of_nvidias_hosts(url: str, mirrors: dict[str, str], address: str) -> None:
    assert mirrored(url, mirrors) == address


def test_a_mirror_of_a_host_that_is_not_asked_is_refused() -> None:
    check_hosts({"nvidia": "http://m", "debian12/x": "http://m", "nvidia/docs.nvidia.com": "http://m"})
    with pytest.raises(UsageError, match=r"nvidia/nvidia\.com"):
        check_hosts({"nvidia/nvidia.com": "http://m"})
