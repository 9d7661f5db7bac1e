"""`driverctl runtime apply|revert` on configurations that projects publish, against real daemons.

Each goes through a change that says nothing of the default handler, one that makes ours the default, and one
that gives the default up (what NVIDIA's operator asks for). Every run has a choice that leaves out no key,
and no package of a daemon with any of these; `hack/test --full` has all of them.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import pytest

from driverforge_core.errors import DriverforgeError
from support.machines import containerd, cripods
from support.machines.runtimenode import NAMES, SELDOM, SUITES, RuntimeNode, leaves, open_node, unrelated
from support.process import missing, run
from support.samples import covering
from support.samples.published import BASE_SPEC, Published, placed, published, systemd_cgroup
from support.skipping import provided

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="daemons need root"),
    pytest.mark.skipif(
        bool(missing("apt-get", "dpkg-deb", "unshare", "setsid")),
        reason="daemons are unpacked from Debian's packages",
    ),
]

FULL = pytest.mark.full(reason="every configuration with every daemon")
ALL = published()
MODES = {"as-it-is": (), "default": ("--default",), "no-default": ("--no-default",)}
PROGRAMS = ("nvidia-container-runtime", "nvidia-container-runtime.cdi", "nvidia-container-runtime.legacy")


def cases(configurations: tuple[Published, ...]) -> list[object]:
    """Each configuration with each daemon and each mode; those that `covering` chooses in every run."""
    every = [
        (configuration, daemon, mode)
        for configuration in configurations
        for mode in MODES
        for daemon in configuration.daemons
        if daemon in SUITES
    ]
    often = covering.chosen([() if one[1] in SELDOM else traits(*one) for one in every])
    return [
        pytest.param(
            configuration,
            daemon,
            mode,
            id=f"{configuration.id}-{daemon}-{mode}",
            marks=() if number in often else (FULL,),
        )
        for number, (configuration, daemon, mode) in enumerate(every)
    ]


def traits(configuration: Published, daemon: str, mode: str) -> frozenset[Hashable]:
    """What a run is about: the daemon in that mode, the keys of the file, and what lies beside it."""
    beside = {name for name in ("default", "files", "base_specs") if getattr(configuration, name)}
    # what is refused is refused before the mode has a say
    with_daemon = {daemon, mode} if configuration.refused else {f"{daemon} {mode}"}
    return covering.keys(configuration.root) | with_daemon | beside


@pytest.fixture
def node(daemon: str) -> Iterator[RuntimeNode]:
    kind, suite = SUITES[daemon]
    with provided(lambda: open_node(kind, suite)) as opened:
        yield opened


@pytest.fixture
def toolkit(node: RuntimeNode) -> dict[str, str]:
    folder = node.home / "toolkit"
    cripods.fake_toolkit(folder, containerd.programs() / "usr/sbin/runc", node.home / "calls", PROGRAMS)
    node.options += ["--toolkit-dir", str(folder)]
    return dict(zip(NAMES, (str(folder / program) for program in PROGRAMS), strict=True))


def prepare(node: RuntimeNode, configuration: Published) -> str:
    """Write the files beside the root file; the root file's text, with the node's own folders."""

    def here(text: str) -> str:
        return placed(text, str(node.etc), f"{node.home}/host")

    for path, text in {**configuration.files, **dict.fromkeys(configuration.base_specs, BASE_SPEC)}.items():
        target = node.home / here(f'"{path}"').strip('"').removeprefix(f"{node.home}/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(here(text))
    if configuration.default:
        return systemd_cgroup(run(node.program, "config", "default").stdout)
    return here(configuration.root)


def runtimes(view: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The runtimes of a daemon's view; docker's have no keys of a pod's."""
    plugins = view.get("plugins", {})
    section = plugins.get("io.containerd.cri.v1.runtime") or plugins.get("io.containerd.grpc.v1.cri") or {}
    found: dict[str, dict[str, Any]] = section.get("containerd", {}).get("runtimes", {})
    return found


def kept(table: Mapping[str, Any]) -> dict[tuple[str, ...], object]:
    """What of a runtime's table another runtime can take over: all but its program and its sandboxer.

    An option may be spelled otherwise in another runtime.
    """
    return {
        (*path[:-1], path[-1].lower()): value
        for path, value in leaves(table).items()
        if path[-1].lower() != "binaryname" and path[-1] not in ("sandboxer", "sandbox_mode")
    }


@pytest.mark.parametrize(
    ("configuration", "daemon", "mode"), cases(tuple(each for each in ALL if not each.refused))
)
def test_it_serves_with_our_handlers_and_every_byte_comes_back(
    node: RuntimeNode, toolkit: dict[str, str], configuration: Published, mode: str
) -> None:
    node.start(prepare(node, configuration))
    before, view, files = node.answers(), node.effective(), node.snapshot()
    assert before is not None
    node.options += MODES[mode]
    node.driverctl("apply")
    after, seen = node.answers(), node.effective()
    assert after is not None
    assert {name: after.handlers.get(name) for name in toolkit} == toolkit
    # 1.x calls a `default_runtime` table so, which goes where another default is asked for
    others = {name: each for name, each in before.handlers.items() if name not in ("default", *toolkit)}
    assert others.items() <= after.handlers.items()
    given_up = mode == "no-default" and before.default in toolkit
    if mode == "default":
        assert after.default == "nvidia"
    elif given_up:
        assert after.default not in toolkit
    else:
        assert after.default == before.default
    assert [
        path
        for path in unrelated(view, seen)
        if path[-1] not in ("default_runtime_name", "default-runtime")
        and not (given_up and after.default in path)
        and not (mode == "default" and "default_runtime" in path)
    ] == []
    old, new = runtimes(view), runtimes(seen)
    if node.kind == "containerd":
        pods = kept(old.get(before.default, {}))
        assert pods.items() <= kept(new.get(after.default, {})).items()
        for name in toolkit:
            assert kept(old.get(name, {})).items() <= kept(new[name]).items()
            cgroup = pods.get(CGROUP)
            assert cgroup in (None, kept(new[name]).get(CGROUP))
    marks, restarts = node.marks(), node.restarts()
    node.driverctl("apply")
    assert (node.marks(), node.restarts()) == (marks, restarts)
    node.driverctl("revert")
    assert node.snapshot() == files
    assert node.handlers() == before.handlers
    assert not node.journal.exists()


CGROUP = ("options", "systemdcgroup")


@pytest.mark.parametrize(
    ("configuration", "daemon", "mode"), cases(tuple(each for each in ALL if each.refused))
)
def test_it_is_refused_and_the_node_untouched(node: RuntimeNode, configuration: Published, mode: str) -> None:
    root = prepare(node, configuration)
    # a daemon that serves; the file is changed behind its back, so that there is something to ask
    node.start("version = 2\n")
    node.write(root)
    node.write_restart()
    files, pid = node.snapshot(), node.pid
    node.options += MODES[mode]
    with pytest.raises(DriverforgeError) as caught:
        node.driverctl("apply")
    assert configuration.refused.lower() in caught.value.render().lower()
    assert (node.snapshot(), node.pid, node.restarts()) == (files, pid, 0)
    assert node.answers() is not None
    assert not node.journal.exists()
