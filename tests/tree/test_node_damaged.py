"""`driverctl` among damaged files and odd command lines: one message, a documented exit status.

The next start goes on.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from driverforge_core.errors import InputError
from driverforge_core.image import MODULE_SET_NAME, ImageFacts
from driverforge_driver.commands import init, status, unload
from driverforge_driver.driver.converge import converge
from driverforge_driver.state import paths
from driverforge_driver.state.facts import Goal
from driverforge_driver.state.module_sets import SourcePlace
from driverforge_driver.state.observe import observe
from driverforge_driver.state.wanted_driver import read_wanted
from support.fakes.fakehost import DRIVER, NODE, RELEASE, FakeNode, fake_node
from support.samples.arguments import arguments

ENTRYPOINTS = Path(__file__).resolve().parents[2] / "entrypoints"
JSON_OF_ANOTHER_SHAPE = [
    "[]",
    "null",
    "5",
    '"x"',
    "[1, 2]",
    "NaN",
    "[" * 100_000,
    '[{"name": "a"}]',
    '[{"name": 1, "pid": "x"}]',
]


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    made = fake_node(tmp_path)
    made.clock.stop_at = made.clock.time + 5
    return made


def put(node: FakeNode, path: str, text: str) -> None:
    node.files.make_dirs(path.rpartition("/")[0])
    node.files.write_atomic(path, text.encode())


@pytest.mark.parametrize("path", [paths.JOURNAL, paths.DAEMONS])
@pytest.mark.parametrize(
    "text",
    [
        *JSON_OF_ANOTHER_SHAPE,
        '{"loading": 5, "firmware": 7}',
        '{"loading": null, "firmware": null, "firmware_path_before": [1]}',
    ],
)
def test_a_foreign_journal_or_list_of_daemons_counts_as_none(node: FakeNode, path: str, text: str) -> None:
    put(node, path, text)
    assert status.run(arguments(), node.host) == 0
    assert init.run(arguments(), node.host) == 0
    node.clock.stop_at = None
    converge(node.host, read_wanted(node.host, Goal.SERVE))
    put(node, path, text)
    assert unload.run(arguments(), node.host) == 0


def test_a_journal_with_firmware_that_is_no_text_removes_nothing_by_it(node: FakeNode) -> None:
    put(node, paths.JOURNAL, '{"loading": "abc", "firmware": [1, 2]}')
    facts = observe(node.host, read_wanted(node.host, Goal.SERVE))
    assert facts.journal.loading == "abc"
    assert facts.journal.firmware == ()


@pytest.mark.parametrize("text", ["\0\1", "[]", "[" * 100_000, '{"schema": 99}'])
def test_a_damaged_set_in_the_nodes_cache_is_none(node: FakeNode, text: str) -> None:
    put(node, f"{NODE}{paths.CACHE}/{DRIVER}/{RELEASE}/open/{MODULE_SET_NAME}", text)
    facts = observe(node.host, read_wanted(node.host, Goal.SERVE))
    assert {source.place for source in facts.sources} == {SourcePlace.IMAGE}


def test_a_set_of_the_image_without_its_module_names_the_file(node: FakeNode) -> None:
    path = f"{paths.MODULE_SETS}/{RELEASE}/open/nvidia.ko"
    node.files.remove(path)
    with pytest.raises(InputError, match=f"{path} is missing"):
        observe(node.host, read_wanted(node.host, Goal.SERVE))
    put(node, path, "no module")
    with pytest.raises(InputError, match=f"{path}: not a kernel module") as told:
        observe(node.host, read_wanted(node.host, Goal.SERVE))
    assert told.value.resolution


def test_a_document_nested_too_deep_is_not_json() -> None:
    with pytest.raises(InputError, match="is not JSON"):
        ImageFacts.from_json("[" * 100_000)


def run(program: str, *words: str, shell: str = 'exec "$@"') -> subprocess.CompletedProcess[str]:
    code = (
        f"import sys; sys.path.insert(0, {str(ENTRYPOINTS)!r}); sys.argv[0] = {program!r}; from "
        "driverctl.cli import main; main()"
    )
    return subprocess.run(
        ["sh", "-c", shell, "sh", sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("words", [(), ("init", "--jobs", "x"), ("status", "--nosuch"), ("nosuch",)])
def test_a_wrong_command_line_is_a_usage_error(words: tuple[str, ...]) -> None:
    result = run("driverctl", *words)
    assert result.returncode == 64
    assert result.stderr.startswith("error: ")
    assert "next: " in result.stderr


@pytest.mark.parametrize("words", [(), ("init", "--nosuch"), ("update",), ("status", "--nosuch")])
def test_nvidia_driver_exits_1_with_one_message(words: tuple[str, ...]) -> None:
    result = run("/usr/local/bin/nvidia-driver", *words)
    assert result.returncode == 1
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr


def test_a_full_standard_output_is_one_message() -> None:
    result = run("driverctl", "status", shell='exec "$@" >/dev/full')
    assert result.returncode == 74
    assert result.stderr.startswith("error: ")
    assert "No space left on device" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_reader_that_went_away_is_no_message() -> None:
    result = run("driverctl", "status", shell='{ "$@"; echo "$?" >&2; } | :')
    assert result.stderr == "141\n"
