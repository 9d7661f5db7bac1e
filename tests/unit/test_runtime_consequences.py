"""What a change would mean for a daemon: what is refused before anything is written, and what is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from driverforge_core.errors import Unsupported
from driverforge_toolkit.runtime.backends import containerd, docker
from driverforge_toolkit.runtime.model import Handler, WantedHandlers
from driverforge_toolkit.runtime.transaction.consequences import (
    changed_handlers,
    check_effective,
    check_programs,
    check_servable,
    default_lines,
    effective_lines,
    lost_defaults,
    mended_fault,
)
from support.fakes.fakehost import fake_node
from support.fakes.runtimemodel import as_files, daemon

DOCKER = daemon("docker")
HANDLERS = (Handler(name="nvidia", binary="/t/nvidia"), Handler(name="gpu", binary="/t/gpu"))
WANTED = WantedHandlers(handlers=HANDLERS)
OURS: dict[str, object] = {
    "runtimes": {"nvidia": {"path": "/t/nvidia", "args": []}, "gpu": {"path": "/t/gpu", "args": []}}
}
LOST: dict[str, object] = {"default-runtime": "crun"}
FAULT = "its default runtime is crun, and its runtimes are: runc"


def without(name: str, *, program: str = "") -> dict[str, object]:
    """What docker sees where it does not see a handler of ours, or sees it with another program."""
    runtimes = OURS["runtimes"]
    assert isinstance(runtimes, dict)
    left = {key: value for key, value in runtimes.items() if key != name}
    return {"runtimes": {**left, **({name: {"path": program}} if program else {})}}


def test_a_change_of_our_handlers_alone_is_accepted() -> None:
    check_effective(docker, DOCKER, ({}, OURS), WANTED)


def test_a_change_that_would_change_a_setting_of_somebody_else_is_refused() -> None:
    with pytest.raises(Unsupported, match="docker would see other settings change too") as caught:
        check_effective(docker, DOCKER, ({"debug": True}, OURS), WANTED)
    assert caught.value.details == ("debug: True -> (not set)",)
    assert caught.value.resolution.startswith("nothing was changed")


def test_a_handler_that_the_daemon_would_not_see_is_named_with_what_it_sees() -> None:
    with pytest.raises(Unsupported, match="docker would not see the handler gpu") as caught:
        check_effective(docker, DOCKER, ({}, without("gpu")), WANTED)
    assert caught.value.details == ("gpu: not there, not /t/gpu",)
    with pytest.raises(Unsupported, match="would not see the handler nvidia") as caught:
        check_effective(docker, DOCKER, ({}, without("nvidia", program="/usr/bin/x")), WANTED)
    assert caught.value.details == ("nvidia: /usr/bin/x, not /t/nvidia",)


def test_of_several_that_it_would_not_see_the_first_is_in_the_brief_and_all_are_in_the_details() -> None:
    with pytest.raises(Unsupported, match="would not see the handler nvidia") as caught:
        check_effective(docker, DOCKER, ({}, {}), WANTED)
    assert caught.value.details == ("nvidia: not there, not /t/nvidia", "gpu: not there, not /t/gpu")


def test_crio_is_not_given_a_handler_whose_program_is_not_there(tmp_path: Path) -> None:
    host = fake_node(tmp_path, gpu=False).host
    host.node.make_dirs("/t")
    host.node.write_atomic("/t/nvidia", b"")
    with pytest.raises(Unsupported, match="leaves out a handler whose program is not there") as caught:
        check_programs(host, daemon("crio"), WANTED)
    assert caught.value.details == ("gpu: /t/gpu is not on the node",)
    check_programs(host, DOCKER, WANTED)
    host.node.write_atomic("/t/gpu", b"")
    check_programs(host, daemon("crio"), WANTED)


FILES = as_files(
    {
        "/a.toml": b'version = 2\n  default_runtime_name = "nvidia"\n# default_runtime_name = "gpu"\n',
        "/b.toml": None,
        "/c.json": b'{\n"default-runtime": "nvidia-cdi"}\n',
        "/d.conf": b"[crio.runtime]\ndefault_runtime = 'crun'\n",
    }
)


def test_each_line_that_names_a_default_is_told_with_its_place_but_no_comment() -> None:
    assert list(default_lines(FILES)) == [
        ('/a.toml:2: default_runtime_name = "nvidia"', "nvidia"),
        ('/c.json:2: "default-runtime": "nvidia-cdi"}', "nvidia-cdi"),
        ("/d.conf:2: default_runtime = 'crun'", "crun"),
    ]


def test_a_default_of_nvidias_that_nobody_has_any_more_is_lost() -> None:
    """crun is nobody's of NVIDIA's, and nvidia-cdi is there."""
    there: dict[str, object] = {"runtimes": {"nvidia-cdi": {"path": "/t/nvidia-cdi"}}}
    assert lost_defaults(docker, FILES, {**there, "default-runtime": "nvidia"}) == ("nvidia",)
    assert lost_defaults(docker, FILES, {"default-runtime": "nvidia"}) == ("nvidia", "nvidia-cdi")


def test_no_default_is_lost_where_the_daemon_serves_pods_all_the_same() -> None:
    """Another file, which is read later, names another default."""
    assert lost_defaults(docker, FILES, {"default-runtime": "runc"}) == ()


def test_a_configuration_that_serves_pods_passes_whatever_it_was_before() -> None:
    check_servable(docker, DOCKER, OURS, OURS)
    check_servable(docker, DOCKER, LOST, OURS)


def test_a_configuration_that_serves_no_pods_is_refused() -> None:
    with pytest.raises(Unsupported, match="docker could not serve pods after its next restart") as caught:
        check_servable(docker, DOCKER, OURS, LOST)
    assert caught.value.details == (FAULT,)
    assert f"add that runtime to {DOCKER.config}" in caught.value.resolution


def test_a_fault_that_is_there_without_the_change_is_told_as_such() -> None:
    before = FAULT.replace("crun", "kata")
    with pytest.raises(Unsupported, match="could not serve pods") as caught:
        check_servable(docker, DOCKER, {"default-runtime": "kata"}, LOST)
    assert caught.value.details == (
        FAULT,
        f"that is so without this change too: {before} (in the files as they are)",
    )


def test_a_fault_that_the_change_mends_is_told() -> None:
    assert mended_fault(docker, DOCKER, OURS) == ()
    assert mended_fault(docker, DOCKER, LOST) == (
        f"docker could not serve pods with the files as they are, and can with this change: {FAULT}",
    )


def test_each_key_that_the_daemon_sees_differently_is_a_line() -> None:
    assert effective_lines({"a": 1, "b": {"c": "x"}}, {"a": 2, "d": True}) == (
        "a: 1 -> 2",
        "b.c: 'x' -> (not set)",
        "d: (not set) -> True",
    )


def test_what_changes_in_a_handler_that_was_there_is_told_but_not_its_program() -> None:
    """`path` is docker's key of the program. The other runtimes and the new handler are not told of."""
    theirs = {"path": "/k", "args": ["c"]}
    before = {"runtimes": {"nvidia": {"path": "/usr/bin/x", "args": ["a"]}, "kata": theirs}, "mtu": 1}
    new = {"path": "/t/gpu", "args": ["d"]}
    after = {"runtimes": {"nvidia": {"path": "/t/nvidia", "args": ["b"]}, "gpu": new}, "mtu": 2}
    assert changed_handlers(docker, before, after, WANTED) == (
        "the handler nvidia was there already: runtimes.nvidia.args: ['a'] -> ['b']",
    )


def test_the_program_of_containerds_handler_is_known_in_any_case_of_its_letters() -> None:
    def view(**options: str) -> dict[str, object]:
        table = {"runtimes": {"nvidia": {"options": options}}}
        return {"plugins": {"io.containerd.grpc.v1.cri": {"containerd": table}}}

    before, after = view(binaryName="/usr/bin/x", Root="/a"), view(BinaryName="/t/nvidia", Root="/b")
    [line] = changed_handlers(containerd, before, after, WANTED)
    assert line.endswith("nvidia.options.Root: '/a' -> '/b'")
