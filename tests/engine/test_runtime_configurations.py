"""`driverctl runtime apply|revert` on the configurations of real nodes, against real daemons: Debian's
containerd 1.6, 1.7 and 2.1, containerd 2.3 and 2.4 compiled here, Debian's dockerd 26 and 28. Every run has a
choice that leaves no key of them and no package of a daemon out; with `hack/test --full` each configuration
meets all.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator

import pytest

from driverforge_core.errors import DriverforgeError
from support.machines import containerd, cripods, engine
from support.machines.runtimenode import NAMES, SELDOM, SUITES, RuntimeNode, open_node, round_trip
from support.process import missing, run
from support.samples import covering
from support.samples.configurations import CONTAINERD, DOCKER, Configuration
from support.skipping import provided

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="daemons need root"),
    pytest.mark.skipif(
        bool(missing("apt-get", "dpkg-deb", "unshare", "setsid")),
        reason="daemons are unpacked from Debian's packages",
    ),
]

FULL = pytest.mark.full(reason="every configuration with every daemon")
PROGRAMS = ("nvidia-container-runtime", "nvidia-container-runtime.cdi", "nvidia-container-runtime.legacy")


def cases(configurations: tuple[Configuration, ...]) -> list[object]:
    """Each configuration with each daemon; those that `covering` chooses in every run."""
    pairs = [(configuration, daemon) for configuration in configurations for daemon in configuration.daemons]
    often = covering.chosen([() if pair[1] in SELDOM else traits(*pair) for pair in pairs])
    return [
        pytest.param(
            configuration,
            daemon,
            id=f"{configuration.id}-{daemon}",
            marks=() if number in often else (FULL,),
        )
        for number, (configuration, daemon) in enumerate(pairs)
    ]


def traits(configuration: Configuration, daemon: str) -> frozenset[Hashable]:
    """What a run is about: the daemon, the keys of the file, and how it lies on the node."""
    return covering.keys(configuration.root) | {
        f"daemon {daemon}",
        f"no file: {configuration.root is None}",
        f"mode {configuration.mode:o}",
        f"always {daemon == configuration.always and configuration.id}",
        *(name for name in ("default", "link", "read_only", "files") if getattr(configuration, name)),
    }


def test_there_are_enough_of_them() -> None:
    assert len(CONTAINERD) + len(DOCKER) >= 40
    assert len({configuration.id for configuration in CONTAINERD}) == len(CONTAINERD)


@pytest.fixture
def node(daemon: str) -> Iterator[RuntimeNode]:
    kind, suite = SUITES[daemon]
    with provided(lambda: open_node(kind, suite)) as opened:
        yield opened


@pytest.fixture
def toolkit(node: RuntimeNode) -> dict[str, str]:
    """Handlers and their programs: fakes of NVIDIA's that hand on to runc."""
    folder = node.home / "toolkit"
    cripods.fake_toolkit(folder, containerd.programs() / "usr/sbin/runc", node.home / "calls", PROGRAMS)
    node.options += ["--toolkit-dir", str(folder)]
    return dict(zip(NAMES, (str(folder / program) for program in PROGRAMS), strict=True))


def prepare(node: RuntimeNode, configuration: Configuration) -> str | None:
    """Write the files beside the root file; the root file's text, None where there is none."""
    node.write(None, {name: text.replace("@/", f"{node.etc}/") for name, text in configuration.files.items()})
    if configuration.default:
        return run(node.program, "config", "default").stdout
    return None if configuration.root is None else configuration.root.replace("@/", f"{node.etc}/")


def a_pod_runs(node: RuntimeNode) -> None:
    """A real pod through the handler: its program is called, and the container ends with its own status."""
    view = node.effective()["plugins"]
    image = (
        view["io.containerd.grpc.v1.cri"]["sandbox_image"]
        if "io.containerd.cri.v1.images" not in view
        else view["io.containerd.cri.v1.images"]["pinned_images"]["sandbox"]
    )
    archive = cripods.image_archive(node.home / "image.tar")
    ctr = [node.prefix / "usr/bin/ctr", "--address", node.socket, "--namespace", "k8s.io"]
    run(*ctr, "images", "import", "--index-name", image, archive)
    assert cripods.Pods(node.socket, image).run("nvidia", ["/bin/busybox", "sh", "-c", "exit 7"]) == 7
    # `features` of every program is asked when containerd 2 starts
    calls = [call.split() for call in (node.home / "calls").read_text().splitlines()]
    assert {program for program, *words in calls if "create" in words} == {PROGRAMS[0]}


def a_container_runs(node: RuntimeNode) -> None:
    """The same through docker."""
    client = [engine.unpacked("sid") / "usr/bin/docker", "--host", f"unix://{node.socket}"]
    run("tar", "-C", cripods.busybox(), "-cf", node.home / "root.tar", "bin/busybox")
    run(*client, "import", node.home / "root.tar", "busybox")
    words = [
        "run",
        "--rm",
        "--network",
        "none",
        "--runtime",
        "nvidia-cdi",
        "busybox",
        "/bin/busybox",
        "sh",
        "-c",
        "exit 7",
    ]
    assert run(*client, *words, check=False).status == 7
    assert "nvidia-container-runtime.cdi " in (node.home / "calls").read_text()


@pytest.mark.parametrize(
    ("configuration", "daemon"), cases(tuple(c for c in (*CONTAINERD, *DOCKER) if not c.refused))
)
def test_it_is_changed_and_nothing_else_and_comes_back(
    node: RuntimeNode, toolkit: dict[str, str], configuration: Configuration
) -> None:
    root = prepare(node, configuration)
    if configuration.link:
        (node.home / "elsewhere").mkdir()
        node.config.symlink_to(node.home / "elsewhere" / "real.toml")
    if root is not None:
        node.write(root)
        node.config.chmod(configuration.mode)
    round_trip(
        node,
        root,
        programs=toolkit,
        meanwhile=lambda: (a_pod_runs if node.kind == "containerd" else a_container_runs)(node),
    )


@pytest.mark.parametrize(("configuration", "daemon"), cases(tuple(c for c in CONTAINERD if c.refused)))
def test_it_is_refused_and_the_node_untouched(node: RuntimeNode, configuration: Configuration) -> None:
    root = prepare(node, configuration)
    # a daemon that serves; the file is changed behind its back, so that there is something to ask
    node.start("version = 2\n")
    node.write(root)
    node.write_restart()
    files, pid = node.snapshot(), node.pid
    if configuration.read_only:
        run("mount", "--bind", node.etc, node.etc)
        run("mount", "-o", "remount,bind,ro", node.etc)
    try:
        with pytest.raises(DriverforgeError) as caught:
            node.driverctl("apply")
    finally:
        if configuration.read_only:
            run("umount", node.etc)
    assert configuration.refused.lower() in caught.value.render().lower()
    assert caught.value.resolution
    assert (node.snapshot(), node.pid, node.restarts()) == (files, pid, 0)
    assert node.answers() is not None
    assert not node.journal.exists()
