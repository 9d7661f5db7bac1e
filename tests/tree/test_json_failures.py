"""`--json` gives a document on failure too, for every command that has it and every way to fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from driverforge_build.cli import cli, run
from driverforge_build.lock.file import dump_lock
from driverforge_build.lock.pins import Lock
from support.jsonschemas import check_document
from support.samples.locks import sample_driver, target
from support.samples.sampledebian import write_matrix

ROOT = Path(__file__).parents[2]
PACKAGES = os.pathsep.join(str(ROOT / name) for name in ("builder", "entrypoints"))


def commands() -> Iterator[tuple[str, ...]]:
    """The words of each command that has --json, with something for all that it must be given."""
    with click.Context(cli) as context:
        for name in cli.list_commands(context):
            command = cli.get_command(context, name)
            inner = command.commands if isinstance(command, click.Group) else {"": command}
            for word, one in inner.items():
                if one is not None and any(option.name == "as_json" for option in one.params):
                    yield (name, *([word] if word else []), *needed(one))


def wrong_input(words: tuple[str, ...]) -> tuple[str, ...]:
    """What makes a command's input wrong; that of `attestations` is wrong already: it names no tag."""
    if words[0] == "attestations":
        return ()
    if words in (("mirror", "copy"), ("mirror", "prune"), ("mirror", "verify")):
        return ("--to", "registry.site", "--mirror-lock", "nowhere.json")
    return ("--chart" if words == ("mirror", "lock") else "--matrix", "nowhere.yaml")


def needed(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        if parameter.required:
            yield from parameter.opts[:1] if isinstance(parameter, click.Option) else ()
            yield "registry.site/x"


def test_the_commands_were_found() -> None:
    assert len(list(commands())) >= 7


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
@pytest.mark.parametrize(
    ("spoilt", "status"), [(wrong_input, 65), (lambda _: ("--nonsense",), 64)], ids=("input", "usage")
)
def test_a_failure_is_a_document(
    words: tuple[str, ...],
    spoilt: Callable[[tuple[str, ...]], tuple[str, ...]],
    status: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong = spoilt(words)
    assert run([*words, "--json", *wrong]) == status
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert list(document) == ["error"]
    check_document("failure", document)
    error = document["error"]
    assert list(error) == ["brief", "details", "resolution", "exit_status"]
    assert error["exit_status"] == status
    assert (*words, *wrong)[-1] in error["brief"]
    assert error["resolution"]
    assert error["brief"] in captured.err
    assert run([*words, *wrong]) == status
    assert capsys.readouterr().out == ""


def test_a_word_behind_the_dashes_is_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "--matrix", "nowhere.yaml", "--", "--json"]) == 65
    assert capsys.readouterr().out == ""


def test_a_folder_that_cannot_be_written_leaves_the_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_matrix(tmp_path)
    lock = Lock(targets={"debian12-amd64": target(drivers={"535.261.03": sample_driver()})})
    (tmp_path / "l.json").write_text(dump_lock(lock))
    (tmp_path / "file").touch()
    given = ["--matrix", str(tmp_path / "site.yaml"), "--lock", str(tmp_path / "l.json")]
    assert run(["generate", "--json", *given, "--output", str(tmp_path / "file/out")]) == 74
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["exit_status"], error["resolution"]) == (74, "give another --output")


def test_an_interrupted_command_says_so(tmp_path: Path) -> None:
    """A lock file that never ends to be read: the command waits for it when the signal comes."""
    fifo = tmp_path / "l.json"
    os.mkfifo(fifo)
    # a test run in the background of a shell ignores the signal, and so would its children
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from driverforge_build.cli import main; main()"
    )
    with (
        subprocess.Popen(
            [sys.executable, "-c", program, "plan", "--json", "--lock", fifo],
            env={**os.environ, "PYTHONPATH": PACKAGES},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as child,
        fifo.open("w"),
    ):  # returns when the child has opened it too
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    assert json.loads(out)["error"]["exit_status"] == 130


def test_an_installation_without_the_builder_says_so_in_json_too() -> None:
    hide = "import sys; sys.modules['click'] = None; sys.argv = ['driverforge', 'plan', '--json']"
    script = f"{hide}; from driverforge_build.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": PACKAGES},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 78
    assert json.loads(done.stdout)["error"]["brief"] == "this installation has no builder"
