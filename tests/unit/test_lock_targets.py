"""Which targets `--select` means, before any kernel is known."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driverforge_build.discover.targets import may_match, wanted_targets
from driverforge_core.errors import UsageError
from support.samples.sampledebian import MATRIX, sample_matrix

texts = st.text("ab-1", max_size=8)
globs = st.text("ab-1*?", max_size=8)


@given(globs, texts, texts)
def test_a_glob_that_matches_may_match(glob: str, beginning: str, rest: str) -> None:
    if fnmatch.fnmatchcase(beginning + rest, glob):
        assert may_match(glob, beginning)


@given(globs, st.text("ab-1", max_size=4))
def test_a_glob_that_may_match_has_an_end_that_does(glob: str, beginning: str) -> None:
    tails = [glob[start:].replace("*", "").replace("?", "a") for start in range(len(glob) + 1)]
    assert may_match(glob, beginning) == any(fnmatch.fnmatchcase(beginning + tail, glob) for tail in tails)


@pytest.mark.parametrize(
    ("select", "skip", "expected"),
    [
        ((), (), ["debian12-amd64", "ubuntu24.04-amd64"]),
        (("debian12-*",), (), ["debian12-amd64"]),
        (("debian12-amd64-535*",), (), ["debian12-amd64"]),
        (("*-6.1.0-5[0-9]-cloud-amd64",), (), ["debian12-amd64", "ubuntu24.04-amd64"]),
        (("{rhel9,debian12}-amd64-535.261.03-jit",), (), ["debian12-amd64"]),
        ((), ("ubuntu*",), ["debian12-amd64"]),
        ((), ("*-jit",), ["debian12-amd64", "ubuntu24.04-amd64"]),
    ],
)
def test_targets(select: tuple[str, ...], skip: tuple[str, ...], expected: list[str]) -> None:
    found = wanted_targets(sample_matrix(), select=select, skip=skip)
    assert [f"{row.id}-{arch}" for row, arch in found] == expected


def test_a_toolkit_image_needs_the_packages_of_its_system() -> None:
    """`generate --select 'toolkit-*'` without a lock names this command."""
    matrix = sample_matrix(MATRIX + 'toolkits:\n- {id: "1.20.1", system: debian12, archs: [amd64]}\n')
    for select in (("toolkit-*",), ("toolkit-*-amd64",), ("toolkit-1.20.1-amd64",)):
        assert [f"{row.id}-{arch}" for row, arch in wanted_targets(matrix, select=select, skip=())] == [
            "debian12-amd64"
        ]
    for select, skip in ((("toolkit-*-arm64",), ()), (("toolkit-*",), ("toolkit-*-amd64",))):
        with pytest.raises(UsageError, match="leaves nothing"):
            wanted_targets(matrix, select=select, skip=skip)


@pytest.mark.parametrize(
    ("select", "skip"),
    [(("rhel9-*",), ()), (("debian12-arm64-*",), ()), (("debian12-amd64-550*",), ()), ((), ("*",))],
)
def test_nothing_left_is_a_usage_error(select: tuple[str, ...], skip: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="leaves nothing"):
        wanted_targets(sample_matrix(), select=select, skip=skip)
