"""Signers and verifiers as programs: what they are given, and what becomes of one that misbehaves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from driverforge_build.engine.userprograms import CommandSigner, CommandVerifier
from driverforge_core.errors import CommandFailed, TemporaryFailure, Unavailable
from support.fakes.mockpath import MockPath

SAYS = b"DSSEv1 28 application/vnd.in-toto+json 2 {}"


def sign(*argv: str, patience: float = 30.0, content: bytes = SAYS) -> bytes:
    return CommandSigner(argv=argv, patience=patience).sign(content, image="driver@sha256:1", predicate="p")


def test_bytes_on_standard_output_are_the_signature_as_they_are() -> None:
    assert sign("cat", content=b"\xff\0\n" * 20) == b"\xff\0\n" * 20


def test_base64_in_lines_is_the_signature_decoded() -> None:
    assert sign("base64", content=b"\xff\0\n" * 40) == b"\xff\0\n" * 40


def test_a_signer_need_not_read_all_that_it_is_given() -> None:
    assert sign("printf", r"\377%064d", content=b"x" * (1 << 20)) == b"\xff" + b"0" * 64


def test_a_signer_that_hangs_is_stopped_and_the_next_step_is_told() -> None:
    with pytest.raises(TemporaryFailure, match=r"sleep of --signer did not end in 0.2 s") as told:
        sign("sleep", "600", patience=0.2)
    assert "password" in told.value.resolution


def test_only_the_end_of_what_a_failing_signer_says_is_told(tmp_path: Path) -> None:
    mock = MockPath(tmp_path)
    mock.add("signer", "seq 1000 >&2; exit 1")
    with pytest.raises(CommandFailed, match="exited 1") as told:
        sign(str(mock.folder / "signer"), "--pin", "1234")
    assert told.value.details == ("it was to sign p of driver@sha256:1", *map(str, range(981, 1001)))
    # a CI log is read by more people than a list of processes
    assert "1234" not in told.value.render()


def test_status_75_is_worth_another_attempt(tmp_path: Path) -> None:
    with pytest.raises(TemporaryFailure):
        sign(sys.executable, "-c", "import sys; sys.exit(75)")


def test_a_verifier_gets_the_signature_in_a_file_and_the_rest_on_standard_input(tmp_path: Path) -> None:
    mock = MockPath(tmp_path)
    mock.add("verifier", f'cat >{tmp_path}/given; cp "$2" {tmp_path}/signature; test "$1" = --key')
    verifier = CommandVerifier(argv=(str(mock.folder / "verifier"), "--key"))
    assert verifier.objection(SAYS, b"\xff\0") == ""
    assert (tmp_path / "given").read_bytes() == SAYS
    assert (tmp_path / "signature").read_bytes() == b"\xff\0"


def test_a_verifiers_last_words_are_the_reason(tmp_path: Path) -> None:
    mock = MockPath(tmp_path)
    mock.add("verifier", "echo one >&2; echo Verification failure >&2; exit 1")
    program = str(mock.folder / "verifier")
    assert (
        CommandVerifier(argv=(program,)).objection(SAYS, b"") == f"{program} exited 1: Verification failure"
    )


def test_a_verifier_that_does_not_exist_refuses_nothing_it_is_an_error() -> None:
    with pytest.raises(Unavailable, match="no-such-verifier of --verifier cannot be started"):
        CommandVerifier(argv=("no-such-verifier",)).objection(SAYS, b"")
