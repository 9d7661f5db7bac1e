"""Text from elsewhere is shown, not acted on, whatever it holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driverforge_core.errors import CommandFailed
from driverforge_core.printable import printable


@given(st.text(st.characters(exclude_categories=())))
def test_nothing_is_left_that_a_terminal_acts_on(text: str) -> None:
    shown = printable(text)
    assert all(char.isprintable() or char in "\n\t" for char in shown)
    assert printable(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("héllo → wörld\n\tdone", "héllo → wörld\n\tdone"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x9b2J", r"\x9b2J"),
        ("50%\rdone", r"50%\rdone"),
        ("safe\u202egnp.exe", r"safe\u202egnp.exe"),
        ("\udcff", r"\udcff"),
        ("", ""),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_an_errors_evidence_is_no_command_to_a_terminal() -> None:
    error = CommandFailed("gcc\x1b[8m", details=["a.c:1: \x1b]0;owned\x07error"], resolution="read \x1bc it")
    assert error.render() == (
        "error: gcc\\x1b[8m\n  | a.c:1: \\x1b]0;owned\\x07error\n  next: read \\x1bc it"
    )
