"""One option in two spellings: what containerd takes, what is written, and what is shown.

What it takes is measured: a pod was run for each row. See `formats.spelling`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from driverforge_core.errors import Unsupported
from driverforge_toolkit.doctor import runtime_files
from driverforge_toolkit.doctor.evidence import RuntimeEvidence
from driverforge_toolkit.runtime.backends import containerd, template
from driverforge_toolkit.runtime.backends.containerd_config import CRI_V2, CRI_V3, RUNTIMES
from driverforge_toolkit.runtime.formats import spelling
from driverforge_toolkit.runtime.formats.values import lookup
from driverforge_toolkit.runtime.model import RUNC, RuntimeDaemon, WantedHandlers
from driverforge_toolkit.runtime.nvidia_handlers import nvidia_handlers
from support.fakes.runtimemodel import CONTAINERD, Files, daemon, effective

OLD, NEW = daemon(version=(1, 7, 24)), daemon(version=(2, 1, 9))
NAME = ("/t/nvidia-container-runtime", "/usr/local/bin/runc")
CRI2 = 'plugins."io.containerd.grpc.v1.cri"'


@pytest.mark.parametrize(
    ("options", "older", "newer"),
    [
        ({"BinaryName": "a", "binaryName": "b"}, "a", "b"),
        ({"binaryName": "b", "BinaryName": "a"}, "a", "b"),
        ({"BINARYNAME": "b", "BinaryName": "a"}, "a", "a"),
        ({"binaryname": "a", "binaryName": "b", "BINARYNAME": "c"}, "a", "a"),
        ({"bINARYnAME": "b"}, "", "b"),
        ({"binaryName": "b"}, "b", "b"),
        ({}, "", ""),
    ],
)
def test_the_spelling_that_a_pod_gets(options: dict[str, object], older: str, newer: str) -> None:
    for where, value in ((OLD, older), (NEW, newer)):
        any_case = spelling.takes_any_case(where.version)
        key = spelling.counting(options, spelling.PROGRAM, any_case=any_case)
        assert options.get(key, "") == value
        assert spelling.settled(options, any_case=any_case) == ({"BinaryName": value} if value else {})


def test_an_option_that_nobody_here_knows_keeps_its_name() -> None:
    assert spelling.settled({"someThing": 1}, any_case=False) == {"someThing": 1}
    assert spelling.settled({"someThing": 1, "SomeThing": 2}, any_case=True)["someThing"] == 1


def kubespray(*programs: str, handler: str = "nvidia", cgroup: str = "true") -> str:
    """A handler that a tool has put BinaryName into, beside what was there."""
    lines = "".join(
        f'{key} = "{program}"\n' for key, program in zip(("BinaryName", "binaryName"), programs, strict=False)
    )
    return (
        f'[{CRI2}.containerd.runtimes.{handler}]\nruntime_type = "{RUNC}"\n'
        f"[{CRI2}.containerd.runtimes.{handler}.options]\n{lines}systemdCgroup = {cgroup}\n"
    )


def after(where: RuntimeDaemon, root: str, wanted: WantedHandlers) -> dict[str, object]:
    files: Files = {where.drop_in: None, where.config: f"version = 2\n{root}".encode()}
    before = effective(where, files)
    view = effective(where, {**files, **CONTAINERD.patched(where, files, before, wanted)})
    assert containerd.foreign(before, view, wanted) == {}
    return view


def options_in(view: dict[str, object], runtime: str) -> dict[str, object]:
    found = [lookup(view, (*section, *RUNTIMES, runtime, "options")) for section in (CRI_V2, CRI_V3)]
    return next(options for options in found if isinstance(options, dict))


WANTED = WantedHandlers(handlers=nvidia_handlers("/t"), options={"systemdCgroup": False})


def test_every_spelling_that_stays_is_set() -> None:
    """From 2.1 on ours is merged over the handler that is there, and can take nothing away."""
    root = kubespray("/usr/bin/nvidia-container-runtime", "/usr/local/bin/runc")
    options = options_in(after(NEW, root, WANTED), "nvidia")
    assert options == {"BinaryName": NAME[0], "binaryName": NAME[0], "systemdCgroup": False}
    assert options_in(after(NEW, root, WANTED), "nvidia-cdi") == {
        "BinaryName": f"{NAME[0]}.cdi",
        "SystemdCgroup": False,
    }


def test_every_spelling_but_one_is_dropped_where_ours_replaces_it() -> None:
    root = kubespray("/usr/bin/nvidia-container-runtime", "/usr/local/bin/runc")
    assert options_in(after(OLD, root, WANTED), "nvidia") == {"BinaryName": NAME[0], "SystemdCgroup": False}


def test_the_value_that_counts_is_taken_over() -> None:
    runc = kubespray("/usr/local/bin/runc", handler="runc", cgroup="false\nSystemdCgroup = true")
    wanted = replace(WANTED, options={})
    assert options_in(after(OLD, runc, wanted), "nvidia")["SystemdCgroup"] is True
    assert options_in(after(NEW, runc, wanted), "nvidia")["SystemdCgroup"] is False


@pytest.mark.parametrize("where", [OLD, NEW], ids=["1.7", "2.1"])
def test_who_takes_over_as_the_default_gets_it_in_every_spelling(where: RuntimeDaemon) -> None:
    root = f'[{CRI2}.containerd]\ndefault_runtime_name = "nvidia"\n'
    root += kubespray("/usr/bin/nvidia-container-runtime") + kubespray(handler="runc", cgroup="false")
    wanted = replace(WANTED, options={}, release_default=True)
    options = options_in(after(where, root, wanted), "runc")
    any_case = spelling.takes_any_case(where.version)
    assert spelling.settled(options, any_case=any_case)["SystemdCgroup"] is True


def test_views_and_low_level_runtimes_go_by_what_counts() -> None:
    root = kubespray(*NAME) + kubespray("/opt/runc", "/opt/another", handler="runc")
    files: Files = {OLD.config: f"version = 2\n{root}".encode()}
    for where, nvidia, runc in ((OLD, NAME[0], "/opt/runc"), (NEW, NAME[1], "/opt/another")):
        view = effective(where, files)
        assert containerd.handlers(view) == {"nvidia": nvidia, "runc": runc}
        assert containerd.low_level_runtimes(view)[:1] == (runc,)


def test_the_doctor_goes_by_the_containerd_that_it_sees() -> None:
    options = {"BinaryName": NAME[0], "binaryName": NAME[1], "SystemdCgroup": True, "systemdCgroup": False}
    table = {"plugins": {CRI_V2[1]: {"containerd": {"runtimes": {"nvidia": {"options": options}}}}}}
    for version, program, systemd in (((1, 7, 24), NAME[0], True), ((2, 1, 9), NAME[1], False)):
        seen = RuntimeEvidence(
            kind="containerd", config="/c", version=version, documents={"/c": {"version": 2, **table}}
        )
        assert runtime_files.handlers(seen) == {"nvidia": program}
        assert runtime_files.systemd_cgroups(seen) is systemd


def test_a_template_with_two_spellings_of_a_program_is_the_admins_to_mend() -> None:
    handler = kubespray(*NAME).encode()
    with pytest.raises(Unsupported, match="runtimes of these names already: nvidia") as caught:
        template.patched(
            handler, "config.toml.tmpl", WantedHandlers(handlers=nvidia_handlers("/t")), version=2
        )
    assert "one line BinaryName" in caught.value.details[0]
