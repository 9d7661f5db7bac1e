"""Package version order: the examples of the manuals, and the laws of an order. tests/tree/ asks dpkg and rpm
themselves.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driverforge_core import debversion, rpmversion
from driverforge_core.errors import InputError

DEB = [
    ("1.0", "1.0", 0),
    ("0:1.0", "1.0", 0),
    ("1.0-0", "1.0", 0),
    ("1.00", "1.0", 0),
    ("1.", "1.0", 0),
    ("1:1.0", "2.0", 1),
    ("1.10", "1.9", 1),
    ("1.0~rc1", "1.0", -1),
    ("1.0~~", "1.0~", -1),
    ("1.0-1~deb12u1", "1.0-1", -1),
    ("1.0-1", "1.0-1+b1", -1),
    ("1.0a", "1.0+", -1),
    ("1.0+dfsg-1", "1.0-1", 1),
    ("6.1.148-1", "6.1.153-1", -1),
    ("535.261.03-1~deb12u1", "535.216.03-1~deb12u1", 1),
    ("1.0-1-2", "1.0-2", 1),
]

RPM = [
    ("1.0", "1.0", 0),
    ("1.0", "1.0.", 0),
    ("1_0", "1.0", 0),
    ("0:1.0-1", "1.0-1", 0),
    ("1:1.0-1", "2.0-1", 1),
    ("1.10", "1.9", 1),
    ("1.05", "1.5", 0),
    ("1.0~rc1", "1.0", -1),
    ("1.0^git1", "1.0", 1),
    ("1.0^git1", "1.0.1", -1),
    ("1.0^git1~pre", "1.0^git1", -1),
    ("1.0a", "1.0", 1),
    ("1.0a", "1.0.1", -1),
    ("1.0-1", "1.0", 1),
    ("5.14.0-427.13.1.el9_4", "5.14.0-427.el9", 1),
    ("5.14.0-503.el9", "5.14.0-427.13.1.el9_4", 1),
]

deb = st.from_regex(r"([0-9]{1,2}:)?[0-9][A-Za-z0-9.+~]{0,8}(-[A-Za-z0-9.+~]{1,6})?", fullmatch=True)
rpm = st.from_regex(r"([0-9]:)?[A-Za-z0-9._+~^]{1,8}(-[A-Za-z0-9._+~^]{1,6})?", fullmatch=True)


@pytest.mark.parametrize(("a", "b", "expected"), DEB)
def test_deb_versions_in_order(a: str, b: str, expected: int) -> None:
    assert debversion.compare(a, b) == expected
    assert debversion.compare(b, a) == -expected


@pytest.mark.parametrize(("a", "b", "expected"), RPM)
def test_rpm_versions_in_order(a: str, b: str, expected: int) -> None:
    assert rpmversion.compare(a, b) == expected
    assert rpmversion.compare(b, a) == -expected


@given(deb, deb, deb)
def test_deb_order_is_transitive(a: str, b: str, c: str) -> None:
    first, second, third = sorted((a, b, c), key=debversion.key)
    assert debversion.compare(first, third) == max(
        -1, min(debversion.compare(first, second), debversion.compare(second, third))
    )


@given(rpm, rpm, rpm)
def test_rpm_order_is_transitive(a: str, b: str, c: str) -> None:
    first, second, third = sorted((a, b, c), key=rpmversion.key)
    assert rpmversion.compare(first, third) == max(
        -1, min(rpmversion.compare(first, second), rpmversion.compare(second, third))
    )


@pytest.mark.parametrize("text", ["", "a1", ":1", "x:1", "1.0 ", "1.0-", "1_0", "1.0\n"])
def test_what_is_no_deb_version_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a Debian version"):
        debversion.key(text)


@pytest.mark.parametrize("text", ["", "x:1", "1.0 ", "1.0-", "1-2-3", "1.0\n"])
def test_what_is_no_rpm_version_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not an RPM version"):
        rpmversion.compare(text, "1")
