"""driverctl runtime against real docker 26 and 28: reload where that is enough, restart where it is not."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from driverctl import cli
from driverforge_core.errors import InputError, Unsupported
from driverforge_host.adapters.real import real_host
from support.machines.runtimenode import NAMES, PROGRAMS, RuntimeNode, open_node, round_trip
from support.process import missing, run, until
from support.skipping import provided

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="docker needs root"),
    pytest.mark.skipif(
        bool(missing("apt-get", "dpkg-deb", "unshare", "setsid")),
        reason="docker is unpacked from Debian's packages",
    ),
]


@pytest.fixture(params=["trixie", "sid"], ids=["26", "28"])
def node(request: pytest.FixtureRequest) -> Iterator[RuntimeNode]:
    with provided(lambda: open_node("docker", request.param)) as opened:
        yield opened


def test_apply_reloads_and_revert_gives_every_byte_back(node: RuntimeNode) -> None:
    round_trip(node, '{\n  "log-level": "warn",\n  "runtimes": {"x": {"path": "/usr/bin/x"}}\n}\n')
    assert node.restarts() == 0


def test_the_default_runtime_comes_and_goes(node: RuntimeNode) -> None:
    """docker does not forget a default runtime by a reload: the file without it needs a restart."""
    node.start("{}\n")
    node.driverctl("apply", "--default", "--cdi")
    seen = node.answers()
    assert seen is not None
    assert (seen.default, {name: seen.handlers[name] for name in NAMES}) == ("nvidia", PROGRAMS)
    assert json.loads(node.config.read_text())["features"] == {"cdi": True}
    node.driverctl("revert")
    seen = node.answers()
    assert seen is not None
    assert (seen.default, set(seen.handlers) & set(NAMES)) == ("runc", set())
    assert node.config.read_text() == "{}\n"


def start_with(node: RuntimeNode, options: str) -> None:
    """Have it run with more options, as a drop-in of its unit gives them."""
    node.start("{}\n")
    node.stop()
    (node.home / "pid").unlink()
    script = node.home / "restart"
    script.write_text(script.read_text().replace("--bridge none", f"--bridge none {options}"))
    run(script)
    until(lambda: node.answers() is not None, "docker", timeout=60, log=node.log)
    (node.home / "restarts").unlink()


@pytest.mark.parametrize("node", ["sid"], ids=["28"], indirect=True)
def test_runtimes_of_the_command_line_stay_since_it_restarts(node: RuntimeNode) -> None:
    """A reload with runtimes in the file loses those of the command line."""
    start_with(node, "--add-runtime foreign=/usr/bin/foreign --add-runtime=nvidia=/usr/bin/theirs")
    before = node.handlers()
    assert (before["foreign"], before["nvidia"]) == ("/usr/bin/foreign", "/usr/bin/theirs")
    node.driverctl("apply")
    assert (node.handlers(), node.restarts()) == ({**before, **PROGRAMS}, 1)
    node.driverctl("apply")
    assert node.restarts() == 1
    node.driverctl("revert")
    assert (node.handlers(), node.config.read_text()) == (before, "{}\n")


@pytest.mark.parametrize("node", ["sid"], ids=["28"], indirect=True)
def test_what_nobody_could_revert_is_refused_before(node: RuntimeNode) -> None:
    """It takes handlers over at a reload, and does not forget them by one."""
    node.start("{}\n")
    before = node.snapshot()
    words = [
        word for word in node.words("apply") if word not in ("--restart-command", f"{node.home}/restart")
    ]
    with pytest.raises(Unsupported, match="does not know how to restart it") as caught:
        cli.run(words, real_host)
    assert caught.value.details[0] == "a revert of this change needs a restart of docker"
    assert (node.snapshot(), node.journal.exists()) == (before, False)
    assert set(NAMES).isdisjoint(node.handlers())


def test_an_option_of_the_command_line_that_forbids_the_change_is_seen_before(node: RuntimeNode) -> None:
    """docker does not start with a key that is in the file and an option as well: its own program says so
    before anything is written.
    """
    start_with(node, "--default-runtime runc")
    before = node.snapshot()
    with pytest.raises(InputError) as caught:
        node.driverctl("apply", "--default")
    assert "default-runtime" in caught.value.render()
    assert (node.snapshot(), node.journal.exists()) == (before, False)
    node.driverctl("apply")
    assert set(NAMES) <= set(node.handlers())


def test_a_default_runtime_that_docker_does_not_have_is_refused_since_it_would_not_start(
    node: RuntimeNode,
) -> None:
    """`dockerd --validate` says nothing of it."""
    node.start("{}\n")
    node.write('{"default-runtime": "ALREADY_SET"}\n')
    before = node.snapshot()
    with pytest.raises(Unsupported, match="docker could not serve pods after its next restart") as caught:
        node.driverctl("apply")
    assert caught.value.details[0].startswith("its default runtime is ALREADY_SET, and its runtimes are: ")
    assert (node.snapshot(), node.journal.exists()) == (before, False)
    run(node.home / "restart")
    says = "specified default runtime 'ALREADY_SET' does not exist"
    until(lambda: says in node.log.read_text(), "docker's refusal", timeout=60, log=node.log)
    assert node.answers() is None


@pytest.mark.parametrize(
    "text", ['{"a": 1} trailing', '{"runtimes": []}', "// comment\n{}", '{"a": 1, "a": 2}', "[]"]
)
def test_a_file_that_cannot_be_right_is_one_message(text: str) -> None:
    with provided(lambda: open_node("docker", "sid")) as node:
        node.start("{}")
        node.config.write_text(text)
        with pytest.raises(InputError) as caught:
            node.driverctl("apply")
        assert str(node.config) in caught.value.render()
        assert node.config.read_text() == text
