"""Kernel releases of every distribution, taken apart and put in order."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driverforge_core.errors import InputError
from driverforge_core.kernel import KernelRelease

KNOWN = [
    # text, version, abi, flavour, variant, machine
    ("6.1.0-50-cloud-amd64", (6, 1, 0), "50", "cloud-amd64", "", "x86_64"),
    ("6.1.0-50-rt-amd64", (6, 1, 0), "50", "rt-amd64", "rt", "x86_64"),
    ("6.1.0-50-arm64", (6, 1, 0), "50", "arm64", "", "aarch64"),
    ("6.1.0-0.deb11.13-amd64", (6, 1, 0), "0.deb11.13", "amd64", "", "x86_64"),
    ("6.12.94+deb13-cloud-amd64", (6, 12, 94), "deb13", "cloud-amd64", "", "x86_64"),
    ("6.12.94+deb13.1-amd64", (6, 12, 94), "deb13.1", "amd64", "", "x86_64"),
    ("6.12.94+deb13-arm64-16k", (6, 12, 94), "deb13", "arm64-16k", "", "aarch64"),
    ("6.12.9+bpo-amd64", (6, 12, 9), "bpo", "amd64", "", "x86_64"),
    ("6.16-rc6-amd64", (6, 16), "rc6", "amd64", "", "x86_64"),
    ("6.8.0-45-generic", (6, 8, 0), "45", "generic", "", ""),
    ("6.8.0-1046-azure-fde", (6, 8, 0), "1046", "azure-fde", "", ""),
    ("6.8.0-1013-nvidia-64k", (6, 8, 0), "1013", "nvidia-64k", "64k", ""),
    ("6.8.1-1015-realtime", (6, 8, 1), "1015", "realtime", "rt", ""),
    ("6.8.0-2013-raspi-realtime", (6, 8, 0), "2013", "raspi-realtime", "rt", ""),
    ("6.4.0-150700.7.10-rt_debug", (6, 4, 0), "150700.7.10", "rt_debug", "rt", ""),
    ("5.14.0-427.el9.x86_64", (5, 14, 0), "427.el9", "", "", "x86_64"),
    ("5.14.0-427.el9.aarch64+64k", (5, 14, 0), "427.el9", "", "64k", "aarch64"),
    ("5.14.0-284.54.1.el9_2.aarch64+64k", (5, 14, 0), "284.54.1.el9_2", "", "64k", "aarch64"),
    ("5.14.0-503.11.1.el9_5.x86_64+rt", (5, 14, 0), "503.11.1.el9_5", "", "rt", "x86_64"),
    ("6.12.0-55.el10_0.aarch64+rt-64k", (6, 12, 0), "55.el10_0", "", "rt-64k", "aarch64"),
    ("4.18.0-553.rt7.342.el8_10.x86_64", (4, 18, 0), "553.rt7.342.el8_10", "", "rt", "x86_64"),
    ("5.15.0-302.167.6.el9uek.x86_64", (5, 15, 0), "302.167.6.el9uek", "uek", "", "x86_64"),
    ("6.1.166-197.305.amzn2023.x86_64", (6, 1, 166), "197.305.amzn2023", "", "", "x86_64"),
    ("6.4.0-150700.53.19-default", (6, 4, 0), "150700.53.19", "default", "", ""),
    ("6.4.0-150700.53.19-64kb", (6, 4, 0), "150700.53.19", "64kb", "64k", ""),
    ("6.18.5-talos", (6, 18, 5), "", "", "", ""),
    ("6.12.94", (6, 12, 94), "", "", "", ""),
    ("my-kernel", (), "", "", "", ""),
]

legal = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,63}", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "version", "abi", "flavour", "variant", "machine"), KNOWN, ids=[row[0] for row in KNOWN]
)
def test_the_shapes_of_all_distributions(
    text: str, version: tuple[int, ...], abi: str, flavour: str, variant: str, machine: str
) -> None:
    release = KernelRelease.parse(text)
    assert release == KernelRelease(text=text, version=version, abi=abi, flavour=flavour, variant=variant)
    assert release.machine == machine


@pytest.mark.parametrize(
    ("text", "el"),
    [
        ("5.14.0-427.el9.x86_64", (9,)),
        ("5.14.0-284.54.1.el9_2.aarch64+64k", (9, 2)),
        ("4.18.0-553.rt7.342.el8_10.x86_64", (8, 10)),
        ("6.1.0-50-amd64", ()),
    ],
)
def test_the_release_of_rhel_that_a_kernel_belongs_to(text: str, el: tuple[int, ...]) -> None:
    assert KernelRelease.parse(text).el == el


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("6.12.0-211.51.1.el10_2.x86_64", "6.12.0-211.51.1"),
        ("5.14.0-284.54.1.el9_2.aarch64+64k", "5.14.0-284.54.1"),
        ("4.18.0-553.el8_10.x86_64", "4.18.0-553"),
        ("5.14.0-427.el9.x86_64", "5.14.0-427"),
        ("6.8.0-45-generic", "6.8.0-45-generic"),
        ("6.1.0-50.elsewhere", "6.1.0-50.elsewhere"),
    ],
)
def test_what_red_hats_packages_for_one_kernel_are_named_after(text: str, named: str) -> None:
    assert KernelRelease.parse(text).without_dist == named


@pytest.mark.parametrize("text", ["", " 6.1.0", "6.1.0\n", "../6.1.0", "6.1.0/..", "-6", ".", "é", "a" * 65])
def test_what_no_kernel_is_called_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a kernel release") as caught:
        KernelRelease.parse(text)
    assert "uname -r" in caught.value.resolution


@given(legal)
def test_any_legal_release_keeps_its_text(text: str) -> None:
    assert str(KernelRelease.parse(text)) == text


@pytest.mark.parametrize(
    "ordered",
    [
        ["6.1.0-9-amd64", "6.1.0-47-amd64", "6.1.0-50-amd64", "6.12.94+deb13-amd64", "6.12.107+deb13-amd64"],
        ["6.8.0-45-generic", "6.8.0-106-generic", "6.8.0-1046-generic", "7.0.0-3-generic"],
        [
            "5.14.0-284.54.1.el9_2.x86_64",
            "5.14.0-427.el9.x86_64",
            "5.14.0-427.13.1.el9_4.x86_64",
            "5.14.0-503.el9.x86_64",
        ],
        ["6.4.0-150600.23.7-default", "6.4.0-150700.9.1-default", "6.4.0-150700.53.19-default"],
        ["6.16-rc6-amd64", "6.16-rc10-amd64", "6.16-1-amd64", "6.16.1-1-amd64"],
        ["6.12.1+deb13~1-amd64", "6.12.1+deb13-amd64", "6.12.1+deb13+1-amd64"],
    ],
)
def test_releases_sort_as_they_came_out(ordered: list[str]) -> None:
    releases = [KernelRelease.parse(text) for text in ordered]
    shuffled = releases[:]
    random.Random(1).shuffle(shuffled)
    assert sorted(shuffled, key=lambda release: release.sort_key) == releases


@given(legal, legal)
def test_the_order_is_total_and_agrees_with_equality(one: str, two: str) -> None:
    left, right = KernelRelease.parse(one).sort_key, KernelRelease.parse(two).sort_key
    assert (left == right) == (one == two)
    assert left <= right or right <= left


@pytest.mark.parametrize("row", KNOWN, ids=[row[0] for row in KNOWN])
def test_a_kernel_is_real_time_by_its_variant_whatever_else_it_has(row: tuple[str, ...]) -> None:
    assert KernelRelease.parse(row[0]).realtime is (row[4] in ("rt", "rt-64k"))
