"""`driverforge-operator run --listen`: where its pages are."""

from __future__ import annotations

import click
import pytest

from driverforge_operator.commands.run import run_command


def listens(*words: str) -> tuple[str, int]:
    found: tuple[str, int] = run_command.make_context("run", ["--namespace", "n", *words]).params["listen"]
    return found


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:80", ("127.0.0.1", 80)), ("[::1]:0", ("::1", 0)), (":8080", ("", 8080))],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert listens("--listen", text) == address


def test_all_addresses_are_listened_at_where_none_is_given() -> None:
    assert listens() == ("", 8080)


@pytest.mark.parametrize("text", ["", "8080x", "localhost", "::", ":70000", ":８０８０"])
def test_a_text_without_a_port_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"write \[ADDRESS\]:PORT"):
        listens("--listen", text)
