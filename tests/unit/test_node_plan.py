"""The plan is a function of facts: each decision of `driverctl init`, `load`, `unload` and of the way out.

D1 and the like are defects of NVIDIA's container, by their names in docs/compatibility.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from driverforge_core.errors import (
    CommandFailed,
    DriverforgeError,
    InUse,
    NotPermitted,
    StorageFailed,
    Unavailable,
    Unsupported,
)
from driverforge_driver.driver import steps
from driverforge_driver.driver.converge import forget_steps, leftovers, undo_steps
from driverforge_driver.driver.plan import DEFAULT_PARAMETERS, DefaultParameter, next_steps, parameter_texts
from driverforge_driver.driver.usage import removal_order
from driverforge_driver.state.daemons import PERSISTENCED
from driverforge_driver.state.facts import DriverFacts, Goal, RootState, WantedDriver
from driverforge_driver.state.module_sets import ModuleSource, SourcePlace
from driverforge_driver.state.network import Network
from driverforge_driver.state.records import KernelJournal, RunningDaemon
from driverforge_driver.state.variables import WantedModuleType
from driverforge_host.gpu.pci import PciDevice
from driverforge_host.ports import Holder, LoadedModule
from driverforge_host.reconcile.outcomes import Blocked, Done, Steps
from support.samples.driverfacts import (
    DIGEST,
    DRIVER,
    GPU,
    NAMES,
    RELEASE,
    facts,
    image,
    loaded,
    module,
    ready,
    source,
    wanted,
)

TRAINER = Holder(
    pid=812,
    command="python3",
    path="/dev/nvidia0",
    container="c" * 64,
    pod="6f0f3a5e-1c2d-4e5f-8a9b-0c1d2e3f4a5b",
)


def stretch(found: DriverFacts, want: WantedDriver) -> tuple[steps.Step, ...]:
    plan = next_steps(found, want)
    assert isinstance(plan, Steps), plan
    return plan.steps


def kinds(found: DriverFacts, want: WantedDriver) -> list[str]:
    return [type(step).__name__ for step in stretch(found, want)]


def refusal(found: DriverFacts, want: WantedDriver) -> DriverforgeError:
    plan = next_steps(found, want)
    assert isinstance(plan, Blocked), plan
    assert plan.error.resolution
    return plan.error


def test_a_fresh_node_is_told_not_ready_before_anything_else_and_ready_is_not_in_the_stretch_that_loads() -> (
    None
):
    names = kinds(facts(), wanted())
    assert names[0] == "SetStatus"
    assert names[1:] == [
        "FillTree",
        "SetFirmwarePath",
        "BeginLoad",
        "InsertHelpers",
        *["InsertModule"] * 3,
        "VerifyModules",
    ]
    assert steps.SetStatus(text="Ready") not in stretch(facts(), wanted())


def test_modules_are_inserted_in_order() -> None:
    found = facts(sources=(source(names=("nvidia-modeset.ko", "nvidia-uvm.ko", "nvidia.ko")),))
    assert [s.name for s in stretch(found, wanted()) if isinstance(s, steps.InsertModule)] == list(NAMES)


@pytest.mark.parametrize("place", SourcePlace)
def test_an_inserted_module_names_the_cache_entry_that_it_came_from(place: SourcePlace) -> None:
    """What the kernel refuses is removed from the cache and made anew; an image stays as it is."""
    made = source(place=place)
    inserted = [s for s in stretch(facts(sources=(made,)), wanted()) if isinstance(s, steps.InsertModule)]
    assert len(inserted) == len(NAMES)
    assert {s.entry for s in inserted} == {made.path if place is SourcePlace.CACHE else ""}


def test_daemons_that_are_down_are_started_before_ready_but_for_those_that_failed_to() -> None:
    found = ready(daemons_down=(PERSISTENCED,), daemons_status="NotReady")
    assert stretch(found, wanted()) == (steps.StartDaemon(program=PERSISTENCED),)
    for without in ((PERSISTENCED.name,), (PERSISTENCED.name, "other")):
        assert stretch(found, wanted(without=without)) == (steps.SetStatus(text="Ready"),)
    assert stretch(found, wanted(without=("other",))) == (steps.StartDaemon(program=PERSISTENCED),)


def test_a_set_that_lacks_a_wanted_module_is_refused_while_the_old_driver_serves() -> None:
    lacking = (source(names=("nvidia.ko", "nvidia-modeset.ko")),)
    for found in (facts(sources=lacking), ready(sources=lacking, loaded=loaded("535.161.08"))):
        error = refusal(found, wanted())
        assert isinstance(error, Unsupported)
        assert error.brief == f"the module set of driver {DRIVER} lacks nvidia_uvm"
        assert error.details == (f"{lacking[0].path} has nvidia-modeset.ko nvidia.ko",)


def test_a_ready_node_needs_nothing() -> None:
    assert next_steps(ready(), wanted()) == Done()


def test_a_new_container_reloads_nothing_but_fills_its_tree_and_publishes_its_root() -> None:
    found = ready(root=RootState.OTHER, stamp="", devices_missing=(("/dev/nvidiactl", 195, 255),))
    assert kinds(found, wanted()) == ["SetStatus", "UnmountRoot", "FillTree", "MakeDevices", "PublishRoot"]


@pytest.mark.parametrize(
    "change",
    [
        {"digest": "e" * 64},
        # D11: the digest alone is not enough
        {"loaded": loaded("535.161.08")},
        {"digest": "", "journal": KernelJournal(loading="e" * 64)},
        {"loaded": {**loaded(), "nvidia_uvm": module("nvidia_uvm", version="535.161.08")}},
    ],
)
def test_another_configuration_or_version_is_unloaded_first(change: dict[str, Any]) -> None:
    names = kinds(ready(**change), wanted())
    assert names[:2] == ["SetStatus", "UnmountRoot"]
    assert names[2:5] == ["RemoveModule"] * 3
    assert "InsertModule" not in names


def test_what_can_fail_is_done_while_the_old_driver_still_serves() -> None:
    old = {"loaded": loaded("535.161.08"), "stamp": "", "firmware_missing": ("gsp.bin",), "firmware_path": ""}
    names = kinds(ready(**old), wanted())
    assert names == [
        "SetStatus",
        "FillTree",
        "WriteFirmware",
        "SetFirmwarePath",
        "UnmountRoot",
        *["RemoveModule"] * 3,
        "ForgetLoad",
    ]
    to_compile = ready(**{**old, "sources": (), "image": image(sources=["open"])})
    assert kinds(to_compile, wanted()) == ["SetStatus", "Compile"]
    assert isinstance(refusal(ready(**{**old, "sources": ()}), wanted()), Unsupported)
    assert isinstance(refusal(replace(to_compile, holders=(TRAINER,)), wanted()), InUse)


def test_another_module_type_is_unloaded_first() -> None:
    proprietary = source("proprietary")
    found = ready(sources=(source(), proprietary))
    assert "RemoveModule" in kinds(found, wanted(module_type=WantedModuleType.PROPRIETARY))
    assert next_steps(found, wanted(module_type=WantedModuleType.OPEN)) == Done()


def test_a_module_that_tells_no_version_is_kept() -> None:
    mute = {**loaded(), "nvidia_uvm": module("nvidia_uvm", version="")}
    assert next_steps(ready(loaded=mute), wanted()) == Done()


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (loaded("535.161.08"), "loaded: 535.161.08, under another configuration"),
        ({"nvidia_uvm": module("nvidia_uvm")}, "loaded: parts of a driver, under another configuration"),
    ],
)
def test_the_reason_to_unload_names_what_is_loaded(before: dict[str, Any], told: str) -> None:
    plan = next_steps(ready(loaded=before), wanted())
    assert isinstance(plan, Steps)
    assert plan.reason.startswith(f"{told}; wanted: {DRIVER}")


def test_nothing_is_reloaded_is_said_of_a_load_that_was_finished_only() -> None:
    again = ready(devices_missing=(("/dev/nvidiactl", 195, 255),))
    finished, cut = (
        next_steps(found, wanted())
        for found in (again, replace(again, digest="", journal=KernelJournal(loading=DIGEST)))
    )
    assert isinstance(finished, Steps)
    assert isinstance(cut, Steps)
    assert "nothing is reloaded" in finished.reason
    assert cut.reason == ""


def test_a_kept_driver_of_unknown_type_takes_the_set_of_the_type_that_comes_first() -> None:
    both = (source("open"), source("proprietary"))
    fill = next(
        s
        for s in stretch(ready(loaded_type="", stamp="", sources=both), wanted())
        if isinstance(s, steps.FillTree)
    )
    # 535 is below 560
    assert fill.source.modules.module_type == "proprietary"


PEERMEM_SET = source(names=("nvidia.ko", "nvidia-uvm.ko", "nvidia-modeset.ko", "nvidia-peermem.ko"))
ABLE = Network(devices=("0000:5e:00.0",), ready=True)


@pytest.mark.parametrize(
    ("asked", "network", "modules", "inserted"),
    [
        (True, ABLE, PEERMEM_SET, True),
        (False, ABLE, PEERMEM_SET, False),
        (True, replace(ABLE, devices=()), PEERMEM_SET, False),
        (True, replace(ABLE, ready=False), PEERMEM_SET, False),
        (True, ABLE, source(), False),
    ],
)
def test_peermem_comes_last_and_may_fail_where_all_that_it_needs_is_there(
    asked: bool, network: Network, modules: ModuleSource, inserted: bool
) -> None:
    found = facts(network=network, sources=(modules,))
    last = stretch(found, wanted(peermem=asked))[-1]
    peermem = steps.InsertModule(name="nvidia_peermem", base=found.load_base, needed=False)
    assert (last == peermem) is inserted


def test_modules_inserted_before_a_crash_are_kept_and_the_rest_is_added() -> None:
    part = {"nvidia": module("nvidia")}
    found = ready(
        loaded=part,
        digest="",
        journal=KernelJournal(loading=DIGEST),
        root=RootState.ABSENT,
        daemons_status="NotReady",
    )
    names = [s.name for s in stretch(found, wanted()) if isinstance(s, steps.InsertModule)]
    assert names == ["nvidia_uvm", "nvidia_modeset"]
    assert not [s for s in stretch(found, wanted()) if isinstance(s, steps.BeginLoad)]


ALONE = {"nvidia": module("nvidia")}


def test_a_kept_driver_that_lacks_modules_is_completed() -> None:
    """From a set of its own type, also where another type comes first: they have to fit together."""
    found = ready(loaded=ALONE, sources=(source("proprietary"), source("open")), stamp="")
    (fill,) = [s for s in stretch(found, wanted()) if isinstance(s, steps.FillTree)]
    assert fill.source.modules.module_type == "open"
    names = [s.name for s in stretch(found, wanted()) if isinstance(s, steps.InsertModule)]
    assert names == ["nvidia_uvm", "nvidia_modeset"]


def test_a_kept_driver_that_lacks_modules_has_them_compiled() -> None:
    both = image(sources=["proprietary", "open"])
    to_compile = stretch(ready(loaded=ALONE, sources=(), image=both), wanted(jobs=2))
    assert to_compile == (
        steps.SetStatus(text="NotReady"),
        steps.Compile(release=RELEASE, driver=DRIVER, module_type="open", jobs=2),
    )


def test_a_kept_driver_that_cannot_be_completed_is_not_ready() -> None:
    error = refusal(ready(loaded=ALONE, sources=()), wanted())
    assert isinstance(error, Unsupported)
    assert f"no open modules of driver {DRIVER}" in error.brief


def test_a_whole_driver_without_a_module_set_is_kept() -> None:
    assert next_steps(ready(sources=()), wanted()) == Done()


HOSTS = {"digest": "", "root": RootState.ABSENT, "daemons_status": ""}


@pytest.mark.parametrize("version", [DRIVER, "535.161.08"])
@pytest.mark.parametrize("goal", [Goal.SERVE, Goal.LOAD, Goal.ABSENT])
def test_a_driver_of_the_host_is_left_alone(version: str, goal: Goal) -> None:
    """Upstream's container unloads it, and installs over a package that does not know."""
    found = ready(**HOSTS, loaded=loaded(version))
    error = refusal(found, wanted(goal=goal))
    assert isinstance(error, Unsupported)
    assert error.brief == f"the loaded NVIDIA driver {version} is the host's: no driver container loaded it"
    assert "--take-over" in error.resolution
    assert "nvidia.com/gpu.deploy.driver=pre-installed" in error.resolution
    removed = [
        s for s in stretch(found, wanted(goal=goal, take_over=True)) if isinstance(s, steps.RemoveModule)
    ]
    assert len(removed) == 3
    in_use = refusal(replace(found, holders=(TRAINER,)), wanted(goal=goal, take_over=True))
    assert isinstance(in_use, InUse)


def test_a_stop_leaves_a_driver_of_the_host() -> None:
    found = ready(**HOSTS)
    plan = next_steps(found, wanted(goal=Goal.STOPPED))
    assert isinstance(plan, Done)
    assert "the host's" in plan.left[0]


def test_in_use_is_found_before_anything_is_stopped() -> None:
    found = ready(
        digest="e" * 64, holders=(TRAINER,), daemons=(RunningDaemon(name="nvidia-persistenced", pid=9),)
    )
    error = refusal(found, wanted())
    assert isinstance(error, InUse)
    assert error.details == (
        (
            "process 812 (python3, container cccccccccccc, pod 6f0f3a5e-1c2d-4e5f-8a9b-0c1d2e3f4a5b) "
            "holds /dev/nvidia0"
        ),
    )


def test_our_daemons_stop_only_after_that_and_then_it_looks_again() -> None:
    daemon = RunningDaemon(name="nvidia-persistenced", pid=9)
    found = ready(digest="e" * 64, loaded=loaded(extra=1), daemons=(daemon,), daemon_references={"nvidia": 1})
    assert stretch(found, wanted()) == (
        steps.SetStatus(text="NotReady"),
        steps.StopDaemons(daemons=(daemon,)),
    )
    after = replace(found, daemons=(), daemon_references={}, daemons_status="NotReady")
    assert refusal(after, wanted()).details == (
        "module nvidia has 1 references that no visible process explains",
    )


@pytest.mark.parametrize("goal", [Goal.SERVE, Goal.ABSENT])
def test_a_reference_that_is_not_our_daemons_is_found_before_they_are_stopped(goal: Goal) -> None:
    """Upstream stops its daemons to find out, and with a fabric manager the jobs that it asks about."""
    daemon = RunningDaemon(name="nvidia-persistenced", pid=9)
    found = ready(digest="e" * 64, loaded=loaded(extra=3), daemons=(daemon,), daemon_references={"nvidia": 2})
    assert refusal(found, wanted(goal=goal)).details == (
        "module nvidia has 1 references that no visible process explains",
    )


def test_a_foreign_module_on_top_is_a_user() -> None:
    modules = {**loaded(), "gdrdrv": module("gdrdrv")}
    modules["nvidia"] = replace(
        modules["nvidia"], holders=("gdrdrv", "nvidia_modeset", "nvidia_uvm"), refcount=3
    )
    assert refusal(ready(loaded=modules), wanted(goal=Goal.ABSENT)).details == (
        "module gdrdrv depends on the driver",
    )


def test_stopping_in_use_unmounts_stops_our_daemons_and_leaves_every_module() -> None:
    daemon = RunningDaemon(name="nvidia-persistenced", pid=9)
    found = ready(holders=(TRAINER,), daemons=(daemon,))
    want = wanted(goal=Goal.STOPPED)
    assert stretch(found, want) == (steps.SetStatus(text="NotReady"), steps.StopDaemons(daemons=(daemon,)))
    stopped = replace(found, daemons=(), daemons_status="NotReady")
    assert stretch(stopped, want) == (steps.UnmountRoot(),)
    plan = next_steps(replace(stopped, root=RootState.ABSENT), want)
    assert isinstance(plan, Done)
    assert "python3" in plan.left[0]


def test_stopping_when_idle_leaves_nothing() -> None:
    found = ready(
        journal=KernelJournal(firmware_path_before="", firmware=("/lib/firmware/nvidia/1/gsp.bin",))
    )
    away = stretch(found, wanted(goal=Goal.STOPPED))
    assert [type(s).__name__ for s in away] == [
        *("SetStatus", "UnmountRoot"),
        *["RemoveModule"] * 3,
        "ForgetLoad",
        "RestoreFirmwarePath",
        "RemoveFirmware",
    ]
    gone = facts(state_left=True, daemons_status="NotReady")
    assert stretch(gone, wanted(goal=Goal.STOPPED)) == (steps.RemoveState(),)
    assert next_steps(facts(), wanted(goal=Goal.STOPPED)) == Done()


def test_load_publishes_nothing_and_leaves_the_status_alone() -> None:
    want = wanted(goal=Goal.LOAD)
    assert "SetStatus" not in kinds(facts(), want)
    found = ready(root=RootState.ABSENT, daemons_status="", digest="", journal=KernelJournal(loading=DIGEST))
    assert stretch(found, want) == (steps.RecordDigest(digest=DIGEST),)
    assert next_steps(ready(root=RootState.ABSENT, daemons_status=""), want) == Done()


@pytest.mark.parametrize(
    ("change", "want", "error", "says"),
    [
        ({"user": 1000}, {}, NotPermitted, "needs root"),
        ({"image": None}, {}, Unsupported, "not a driver image"),
        ({}, {"driver": "550.163.01"}, Unsupported, "the image holds driver 535.261.03"),
        ({"modular": False}, {}, Unsupported, "loads no modules"),
        ({}, {"kernel": "6.12.0-1"}, Unsupported, f"the kernel {RELEASE} runs, and --kernel names 6.12.0-1"),
        ({"gpus": ()}, {}, Unavailable, "no NVIDIA GPU"),
        (
            {"gpus": (replace(GPU, driver="vfio-pci"),)},
            {},
            Unsupported,
            "belongs to another driver: vfio-pci",
        ),
        ({"enforced": "module.sig_enforce is on"}, {}, NotPermitted, "the modules for it are unsigned"),
        (
            {"enforced": "module.sig_enforce is on", "sources": (), "image": image(sources=["open"])},
            {},
            NotPermitted,
            "are unsigned",
        ),
        ({"free": 1 << 20}, {}, StorageFailed, "not enough free space"),
        (
            {"sources": (), "image_kernels": ("5.14.0-427.el9.x86_64",)},
            {},
            Unsupported,
            f"running kernel {RELEASE}",
        ),
        (
            {"sources": (), "image": image(sources=["open"])},
            {"may_build": False},
            Unsupported,
            f"running kernel {RELEASE}",
        ),
        ({"user": 1000}, {"goal": Goal.ABSENT}, NotPermitted, "needs root"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_touched(
    change: dict[str, Any], want: dict[str, Any], error: type[DriverforgeError], says: str
) -> None:
    found = refusal(facts(**change), wanted(**want))
    assert type(found) is error
    assert says in found.brief


def test_space_matters_only_where_modules_have_to_be_written() -> None:
    full = {"free": 10 << 20}
    assert next_steps(ready(**full), wanted()) == Done()
    assert isinstance(next_steps(ready(**full, holders=(TRAINER,)), wanted()), Done)
    # a new container has an empty load tree
    assert isinstance(refusal(ready(**full, stamp=""), wanted()), StorageFailed)
    # the set that is chosen counts, not the largest
    sources = (source(), source("proprietary", size=4 << 30))
    open_only = wanted(module_type=WantedModuleType.OPEN)
    assert isinstance(next_steps(facts(sources=sources, free=50 << 20), open_only), Steps)
    # before anything is unloaded for it
    assert isinstance(refusal(ready(**full, stamp="", loaded=loaded("535.161.08")), wanted()), StorageFailed)


def test_no_gpu_exits_69() -> None:
    assert refusal(facts(gpus=()), wanted()).exit_code == 69


def test_one_free_gpu_is_enough() -> None:
    other = PciDevice(
        address="0000:5e:00.0", vendor=0x10DE, device=0x20B0, class_code=0x030200, driver="vfio-pci"
    )
    assert isinstance(next_steps(facts(gpus=(GPU, other)), wanted()), Steps)


def test_a_loaded_driver_is_kept_where_signatures_came_to_be_enforced_later() -> None:
    assert next_steps(ready(enforced="kernel lockdown is in mode 'integrity'"), wanted()) == Done()


def test_signed_modules_pass_where_signatures_are_enforced() -> None:
    signed, unsigned = source(signer="Example key"), source("proprietary")
    found = facts(
        enforced="kernel lockdown is in mode 'integrity'",
        sources=(unsigned, signed),
        image=image(sources=["proprietary"]),
    )
    assert next(s for s in stretch(found, wanted()) if isinstance(s, steps.FillTree)).source == signed


def test_the_image_comes_before_the_cache_before_a_compilation() -> None:
    cached = source(place=SourcePlace.CACHE)
    jit = image(sources=["open"])
    for sources, place in (((source(), cached), SourcePlace.IMAGE), ((cached,), SourcePlace.CACHE)):
        fill = next(
            s for s in stretch(facts(sources=sources, image=jit), wanted()) if isinstance(s, steps.FillTree)
        )
        assert fill.source.place == place
    plan = next_steps(facts(sources=(), image=jit), wanted(jobs=3))
    assert isinstance(plan, Steps)
    assert plan.steps[-1] == steps.Compile(release=RELEASE, driver=DRIVER, module_type="open", jobs=3)
    assert plan.unknown
    assert "compiling here" in plan.reason


def test_auto_goes_by_the_branch_and_takes_what_there_is() -> None:
    both = (source("open"), source("proprietary"))

    def chosen(sources: tuple[Any, ...], **want: Any) -> str:
        fill = next(
            s for s in stretch(facts(sources=sources), wanted(**want)) if isinstance(s, steps.FillTree)
        )
        return fill.source.modules.module_type

    assert chosen(both) == "proprietary"  # 535 is below 560
    assert chosen((source("open"),)) == "open"
    assert chosen(both, module_type=WantedModuleType.OPEN) == "open"


def test_auto_leaves_out_what_cannot_drive_a_gpu_of_this_node() -> None:
    both = (source("open"), source("proprietary"))
    blackwell = replace(GPU, device=0x2901)
    fill = next(
        s
        for s in stretch(facts(sources=both, gpus=(GPU, blackwell)), wanted())
        if isinstance(s, steps.FillTree)
    )
    assert fill.source.modules.module_type == "open"
    # with a branch below 560, which prefers the proprietary modules
    grace_hopper = facts(sources=both, gpus=(replace(GPU, device=0x2342),))
    fill = next(s for s in stretch(grace_hopper, wanted()) if isinstance(s, steps.FillTree))
    assert fill.source.modules.module_type == "open"
    pascal = replace(GPU, device=0x15F8)
    error = refusal(facts(sources=(source("open"),), gpus=(pascal,)), wanted())
    assert "no proprietary modules" in error.brief


def test_coherent_memory_is_set_only_for_a_driver_that_has_the_parameter_and_the_user_has_the_last_word() -> (
    None
):
    want = wanted(
        parameters={"nvidia": ("NVreg_CoherentGPUMemoryMode=numa",), "nvidia_uvm": ("uvm_disable_hmm=1",)}
    )
    plain = parameter_texts(want, source())
    assert plain["nvidia.conf"] == "options nvidia NVreg_CoherentGPUMemoryMode=numa\n"
    assert plain["nvidia-uvm.conf"] == "options nvidia-uvm uvm_disable_hmm=1\n"
    assert plain["nvidia-modeset.conf"] == ""
    able = parameter_texts(want, source(parameters=["NVreg_CoherentGPUMemoryMode"]))
    assert (
        able["nvidia.conf"]
        == "options nvidia NVreg_CoherentGPUMemoryMode=driver NVreg_CoherentGPUMemoryMode=numa\n"
    )
    two = wanted(parameters={"nvidia": ("NVreg_CoherentGPUMemoryMode=numa", "NVreg_Last=1")})
    words = parameter_texts(two, source(parameters=["NVreg_CoherentGPUMemoryMode"]))["nvidia.conf"].split()
    assert words.index("NVreg_CoherentGPUMemoryMode=driver") < words.index("NVreg_CoherentGPUMemoryMode=numa")


def test_a_row_is_all_that_a_parameter_by_default_takes() -> None:
    row = DefaultParameter(
        module="nvidia_uvm",
        parameter="uvm_disable_hmm",
        value="1",
        when=lambda source: source.modules.module_type == "open",
        why="an example",
    )
    table = (*DEFAULT_PARAMETERS, row)
    able = ["NVreg_CoherentGPUMemoryMode"]
    texts = parameter_texts(wanted(), source("open", parameters=able), table)
    assert texts["nvidia-uvm.conf"] == "options nvidia-uvm uvm_disable_hmm=1\n"
    assert texts["nvidia.conf"] == "options nvidia NVreg_CoherentGPUMemoryMode=driver\n"
    assert parameter_texts(wanted(), source("proprietary"), table)["nvidia-uvm.conf"] == ""
    assert parameter_texts(wanted(), None, table)["nvidia-uvm.conf"] == ""
    set_by_user = wanted(parameters={"nvidia_uvm": ("uvm_disable_hmm=0",)})
    text = parameter_texts(set_by_user, source("open"), table)["nvidia-uvm.conf"]
    assert text == "options nvidia-uvm uvm_disable_hmm=1 uvm_disable_hmm=0\n"


def test_parameters_by_default_are_planned() -> None:
    found = facts(sources=(source(parameters=[row.parameter for row in DEFAULT_PARAMETERS]),))
    texts = {s.name: s.text for s in stretch(found, wanted()) if isinstance(s, steps.WriteParameters)}
    for row in DEFAULT_PARAMETERS:
        assert f" {row.parameter}={row.value}" in texts[f"{row.module.replace('_', '-')}.conf"]


def test_what_a_kill_left_at_the_stage_goes() -> None:
    assert stretch(ready(stage_left=True), wanted()) == (steps.SetStatus(text="NotReady"), steps.ClearStage())
    # publishing begins with clearing the stage
    assert stretch(ready(stage_left=True, root=RootState.ABSENT), wanted())[-1] == steps.PublishRoot()
    assert steps.ClearStage() in stretch(
        ready(stage_left=True, root=RootState.ABSENT), wanted(goal=Goal.STOPPED)
    )
    assert undo_steps(ready(), ready(stage_left=True)) == (steps.ClearStage(),)


def test_a_firmware_path_of_somebody_else_stays() -> None:
    assert "SetFirmwarePath" not in kinds(facts(firmware_path="/srv/firmware"), wanted())
    assert "SetFirmwarePath" not in kinds(facts(firmware_path=None), wanted())
    assert "SetFirmwarePath" not in kinds(
        facts(), wanted(parameters={"nvidia": ("NVreg_EnableGpuFirmware=0",)})
    )


def test_a_loaded_module_without_its_device_is_no_success() -> None:
    error = refusal(ready(majors={}, daemons_status="NotReady"), wanted())
    assert isinstance(error, CommandFailed)
    assert "no NVIDIA character device" in error.brief
    assert error.details[1] == "it has: none of NVIDIA"
    others = refusal(ready(majors={"nvidia-uvm": 511}), wanted())
    assert others.details[1] == "it has: {'nvidia-uvm': 511}"


DIGESTS = st.sampled_from(["", DIGEST, "e" * 64])


@st.composite
def any_modules(draw: st.DrawFn) -> dict[str, LoadedModule]:
    names = draw(st.sets(st.sampled_from(NAMES)))
    version = draw(st.sampled_from([DRIVER, "535.161.08"]))
    modules = {name: module(name, version=version) for name in names | ({"nvidia"} if names else set())}
    if "nvidia" in modules:
        above = tuple(sorted(n for n in modules if n != "nvidia"))
        # a reference more than modules explain: a process that we do not see
        count = len(above) + draw(st.sampled_from([0, 1]))
        modules["nvidia"] = module("nvidia", refcount=count, holders=above, version=version)
    return modules


ANY: dict[str, st.SearchStrategy[Any]] = {
    "loaded": any_modules(),
    "loaded_type": st.sampled_from(["open", ""]),
    "sources": st.sampled_from([(), (source(),), (source(names=("nvidia.ko",)),)]),
    "image": st.sampled_from([image(), image(sources=["open"])]),
    "root": st.sampled_from(RootState),
    "stage_left": st.booleans(),
    "digest": DIGESTS,
    "journal": st.builds(KernelJournal, loading=DIGESTS, firmware_path_before=st.sampled_from([None, ""])),
    "daemons_status": st.sampled_from(["", "NotReady", "Ready"]),
    "stamp": st.sampled_from(["", ready().stamp]),
    "majors": st.sampled_from([{}, {"nvidia": 195}]),
    "holders": st.sampled_from([(), (TRAINER,)]),
    "daemons": st.sampled_from([(), (RunningDaemon(name="nvidia-persistenced", pid=9),)]),
    "daemon_references": st.sampled_from([{}, {"nvidia": 1}]),
}


@st.composite
def any_facts(draw: st.DrawFn) -> DriverFacts:
    """A ready node with a few things that are otherwise: what is nearly so is the danger."""
    changed = draw(st.sets(st.sampled_from(sorted(ANY)), max_size=5))
    return ready(**{name: draw(ANY[name]) for name in sorted(changed)})


@given(found=any_facts(), goal=st.sampled_from(Goal))
@example(found=ready(loaded=ALONE, sources=()), goal=Goal.SERVE)
@example(found=ready(loaded=ALONE, sources=(source(names=("nvidia.ko",)),)), goal=Goal.SERVE)
def test_ready_is_only_ever_said_of_a_driver_that_was_seen_loaded_and_published(
    found: DriverFacts, goal: Goal
) -> None:
    """D1: upstream writes Ready after every modprobe failed."""
    plan = next_steps(found, wanted(goal=goal))
    says_ready = isinstance(plan, Steps) and steps.SetStatus(text="Ready") in plan.steps
    done = isinstance(plan, Done) and goal is Goal.SERVE
    if says_ready or done:
        assert set(NAMES) <= set(found.loaded)
        assert {m.version for m in found.loaded.values()} == {DRIVER}
        assert 195 in found.majors.values()
        assert found.root is RootState.OURS
        assert found.digest == DIGEST
    if done:
        assert found.daemons_status == "Ready"


@given(found=any_facts(), goal=st.sampled_from(Goal))
def test_nothing_in_use_is_ever_removed_and_no_daemon_is_stopped_to_find_out(
    found: DriverFacts, goal: Goal
) -> None:
    plan = next_steps(found, wanted(goal=goal))
    # with nothing loaded, an open device file holds nothing
    if isinstance(plan, Steps) and found.holders and found.loaded:
        assert not [s for s in plan.steps if isinstance(s, steps.RemoveModule)]
        if goal is not Goal.STOPPED:
            assert not [s for s in plan.steps if isinstance(s, steps.StopDaemons)]


@given(found=any_facts(), goal=st.sampled_from(Goal))
def test_what_no_driver_container_loaded_is_never_removed(found: DriverFacts, goal: Goal) -> None:
    plan = next_steps(found, wanted(goal=goal))
    if isinstance(plan, Steps) and not (found.digest or found.journal.loading):
        assert not [s for s in plan.steps if isinstance(s, steps.RemoveModule)]


@given(found=any_facts(), goal=st.sampled_from(Goal))
def test_references_that_nobody_explains_keep_the_modules(found: DriverFacts, goal: Goal) -> None:
    plan = next_steps(found, wanted(goal=goal))
    nvidia, ours = found.loaded.get("nvidia"), found.daemon_references.get("nvidia", 0)
    if isinstance(plan, Steps) and nvidia and nvidia.refcount > len(nvidia.holders) + ours:
        assert not [s for s in plan.steps if isinstance(s, steps.RemoveModule)]
        if goal is not Goal.STOPPED:
            assert not [s for s in plan.steps if isinstance(s, steps.StopDaemons)]


@given(found=any_facts(), goal=st.sampled_from(Goal))
def test_every_step_says_what_it_does(found: DriverFacts, goal: Goal) -> None:
    plan = next_steps(found, wanted(goal=goal))
    if isinstance(plan, Steps):
        assert plan.steps
        assert all(step.describe() for step in plan.steps)
        assert len({step.describe() for step in plan.steps}) == len(plan.steps)


@given(st.data())
def test_a_module_goes_after_all_that_depend_on_it(data: st.DataObject) -> None:
    """D3: the order is the kernel's graph, whatever it looks like, not a list of names."""
    names = data.draw(st.lists(st.sampled_from([f"m{n}" for n in range(12)]), unique=True, min_size=1))
    holders = {
        name: data.draw(st.sets(st.sampled_from(names[:n]))) if n else set() for n, name in enumerate(names)
    }
    order = removal_order({name: module(name, holders=sorted(holders[name])) for name in names})
    assert sorted(order) == sorted(names)
    for name in names:
        assert all(order.index(holder) < order.index(name) for holder in holders[name])


def test_undo_takes_back_what_this_run_did_and_nothing_else() -> None:
    before = facts(daemons_status="", firmware_path="")
    now = ready(journal=KernelJournal(loading=DIGEST, firmware_path_before=""), digest="")
    assert [type(s).__name__ for s in undo_steps(before, now)] == ["UnmountRoot", *["RemoveModule"] * 3]
    assert forget_steps(before, replace(now, loaded={})) == (
        steps.ForgetLoad(),
        steps.RestoreFirmwarePath(value=""),
        steps.RemoveState(),
    )
    working = ready(root=RootState.ABSENT)
    assert undo_steps(working, ready()) == (steps.UnmountRoot(),)
    assert forget_steps(working, ready()) == ()


def test_undo_removes_the_modules_of_another_version_that_this_run_loaded() -> None:
    before = ready(loaded=loaded("535.161.08"))
    assert undo_steps(before, ready()) == tuple(
        steps.RemoveModule(name=name) for name in ("nvidia_modeset", "nvidia_uvm", "nvidia")
    )
    assert undo_steps(before, before) == ()


def test_modules_that_stay_after_a_failed_start_are_still_known_as_ours() -> None:
    """Somebody opened a GPU meanwhile, and rmmod refused: the next start has to keep them."""
    now = ready(journal=KernelJournal(loading=DIGEST, firmware_path_before=""), digest="")
    assert forget_steps(facts(firmware_path=""), now) == ()


def test_what_is_left_is_said() -> None:
    assert leftovers(ready(), ready()) == ()
    lines = leftovers(ready(loaded=loaded("535.161.08")), ready(loaded={}, root=RootState.ABSENT))
    assert "module nvidia 535.161.08 was loaded before and is not now" in lines
    assert f"module nvidia is version {DRIVER} and was 535.161.08" in leftovers(
        ready(loaded=loaded("535.161.08")), ready()
    )
    assert "/run/nvidia/driver is absent and was ours" in lines
