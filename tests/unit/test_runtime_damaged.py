"""A containerd configuration that no parser takes is one message."""

from __future__ import annotations

import pytest

from driverforge_core.errors import DriverforgeError, InputError, Unsupported
from driverforge_node.runtime.inplace import nvidia_handlers, patched

HANDLERS = nvidia_handlers("/usr/local/nvidia/toolkit")


@pytest.mark.parametrize("data", [b"a = " + b"[" * 100_000, b"a = " + b"{b=" * 3000, b"version = 2\nx = " + b"9" * 6000 + b"\n"])
def test_what_the_parser_gives_up_on_is_not_valid_toml(data: bytes) -> None:
    with pytest.raises(InputError, match=r"config\.toml is not valid TOML"):
        patched(data, {}, HANDLERS, "config.toml")


def test_keys_nested_very_deep_are_refused_or_kept_and_never_lost() -> None:
    """How deep an interpreter can look differs: 3.11 gives up on this one, 3.13 does not."""
    before = b"version = 2\n[" + b".".join([b"a"] * 3000) + b"]\n"
    outcome = attempt(before)
    if isinstance(outcome, DriverforgeError):
        assert "config.toml" in outcome.brief
    else:
        assert b".".join([b"a"] * 3000) in outcome
        assert b"nvidia-cdi" in outcome


def attempt(data: bytes) -> bytes | DriverforgeError:
    try:
        return patched(data, {}, HANDLERS, "config.toml")
    except DriverforgeError as error:
        return error


def test_a_version_that_is_a_text_is_shown_as_one() -> None:
    with pytest.raises(Unsupported, match="version '2' configuration"):
        patched(b'version = "2"\n', {}, HANDLERS, "config.toml")
