"""The order of RPM versions, against a package that has librpm's rules."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from rpm_version import evr_compare

from driverforge_core import rpmversion

rpm = st.from_regex(r"([0-9]:)?[a-cA0-2._+~^]{1,6}(-[a-cA0-2._+~^]{1,4})?", fullmatch=True)


@settings(max_examples=500)
@given(rpm, rpm)
def test_it_is_rpms(a: str, b: str) -> None:
    assert rpmversion.compare(a, b) == evr_compare(a, b)
