"""NVIDIA's list of releases: the newest of each branch, and a text that is no such list."""

from __future__ import annotations

import json
from typing import Any

import pytest

from driverforge_build.nvidia.releases import newest_releases
from driverforge_core.errors import Unavailable


def listed(**branches: Any) -> bytes:
    return json.dumps({name.removeprefix("r"): branch for name, branch in branches.items()}).encode()


def info(version: str, date: str = "2026-09-08") -> dict[str, str]:
    return {"release_version": version, "release_date": date}


def test_the_newest_release_of_each_branch_whatever_their_order() -> None:
    lts = [info("580.9.01"), info("580.178.04"), info("580.82.07")]
    found = newest_releases(
        listed(
            r580={"type": "lts branch", "driver_info": lts},
            r595={"type": "production branch", "driver_info": [info("595.91.07", "")]},
            r450={"type": "", "driver_info": []},
        )
    )
    assert {branch: (one.version.text, one.date, one.kind) for branch, one in found.items()} == {
        "580": ("580.178.04", "2026-09-08", "lts branch"),
        "595": ("595.91.07", "", "production branch"),
    }


def test_what_has_no_version_is_left_out() -> None:
    found = newest_releases(
        listed(r570={"type": "x", "driver_info": [info("572"), info("N/A"), info("570.86.15")]})
    )
    assert list(found) == ["570"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>moved</html>",
        b"[]",
        b"{}",
        b"7",
        b"[" * 100_000,
        listed(r580={"type": "x"}),
        listed(r580={"driver_info": ["580.178.04"]}),
        listed(r580={"driver_info": [{"version": "580.178.04"}]}),
        listed(r580=None),
    ],
)
def test_another_text_is_no_list(body: bytes) -> None:
    with pytest.raises(Unavailable, match="NVIDIA's list of releases cannot be read"):
        newest_releases(body)
