"""The next stretch of steps from the facts to what is wanted. Pure: the same facts give the same plan.

A stretch ends where the plan has to look again: which modules a compilation gave, which device numbers the
kernel handed out, whether anybody still uses a module after our daemons stopped.

Every step is planned because an observed fact differs from what is wanted. So a plan that is made after a
crash, at any point, goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from driverforge_core.errors import CommandFailed, DriverforgeError
from driverforge_core.names import NVIDIA_MODULES, PEERMEM
from driverforge_driver.driver import steps, usage
from driverforge_driver.driver.choice import ModuleChoice, choose_modules, type_order
from driverforge_driver.driver.preflight import not_root_error, preflight, signature_problem, space_problem
from driverforge_driver.state import loadtree, paths
from driverforge_driver.state.facts import DriverFacts, Goal, RootState, WantedDriver
from driverforge_driver.state.module_sets import ModuleSource, SourcePlace
from driverforge_driver.state.records import KernelJournal
from driverforge_driver.state.variables import WantedModuleType
from driverforge_host.gpu.device_files import FRONTEND_MAJOR
from driverforge_host.reconcile.outcomes import Blocked, Done, Outcome, Step, Steps

NO_FIRMWARE = "NVreg_EnableGpuFirmware=0"


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultParameter:
    """A parameter that a kernel module gets by default. What the operator sets comes after it, and wins."""

    # a word of NVIDIA_MODULES
    module: str
    parameter: str
    value: str
    # whether this module set gets it; the kernel logs a parameter that its module does not have
    when: Callable[[ModuleSource], bool]
    # what it does for the node, and whose default it is
    why: str


DEFAULT_PARAMETERS = (
    DefaultParameter(
        module="nvidia",
        parameter="NVreg_CoherentGPUMemoryMode",
        value="driver",
        when=lambda source: "NVreg_CoherentGPUMemoryMode" in source.parameters,
        why="keeps coherent GPU memory out of the node's NUMA memory, as NVIDIA's driver container does",
    ),
)


def next_steps(facts: DriverFacts, wanted: WantedDriver) -> Outcome:
    """The next stretch towards `wanted`: Steps, Done, or Blocked with the error to raise.

    Going away needs root only. Coming, in this order: preflight; keep what is loaded as wanted, and complete
    it; refuse where modules could not be loaded, the loaded driver is not ours or in use; compile where no
    module set is there; unload what is in the way; load and publish.
    """
    if not wanted.goal.loads:
        return Blocked(error=not_root_error(facts.user)) if facts.user != 0 else _go_away(facts, wanted)
    if error := preflight(facts, wanted):
        return Blocked(error=error)
    if facts.loaded and stays_loaded(facts, wanted):
        return _keep(facts, wanted)
    if error := _host_driver(facts, wanted) or signature_problem(facts, wanted) or usage.in_use_error(facts):
        return Blocked(error=error)
    try:
        choice = choose_modules(facts, wanted)
    except DriverforgeError as error:
        return Blocked(error=error)
    if choice.source is None:
        return _compile_first(facts, wanted, choice)
    return _make_room(facts, wanted, choice) if facts.loaded else _load_and_publish(facts, wanted, choice)


def _to_fill(facts: DriverFacts, source: ModuleSource | None) -> bool:
    return source is not None and facts.stamp != loadtree.stamp(source, facts.node_modules)


def _no_space(facts: DriverFacts, choice: ModuleChoice) -> DriverforgeError | None:
    return space_problem(facts, choice.source) if choice.source and _to_fill(facts, choice.source) else None


def _host_driver(facts: DriverFacts, wanted: WantedDriver) -> DriverforgeError | None:
    return None if wanted.take_over else usage.host_driver_error(facts)


def stays_loaded(facts: DriverFacts, wanted: WantedDriver) -> bool:
    """Whether what is loaded is what is wanted: configuration digest, versions and module type agree.

    The digest alone is not enough: it says what was asked for, not what is loaded (D11 in
    docs/compatibility.md).
    """
    versions = {module.version for name, module in facts.loaded.items() if name in NVIDIA_MODULES}
    ours = facts.digest or facts.journal.loading
    fits = wanted.module_type.accepts(facts.loaded_type)
    return "nvidia" in facts.loaded and versions <= {wanted.driver, ""} and ours == wanted.digest and fits


# --- on the way: nothing that is loaded is touched


def _keep(facts: DriverFacts, wanted: WantedDriver) -> Outcome:
    """Go on with the loaded driver.

    Where it lacks modules, they come from a set of its own type, which may have to be compiled.
    """
    if all(name in facts.loaded for name in wanted.names):
        return _load_and_publish(facts, wanted, _choice_for_loaded(facts, wanted))
    loaded_type = WantedModuleType(facts.loaded_type) if facts.loaded_type else wanted.module_type
    try:
        choice = choose_modules(facts, replace(wanted, module_type=loaded_type))
    except DriverforgeError as error:
        return Blocked(error=error)
    return (_load_and_publish if choice.source else _compile_first)(facts, wanted, choice)


def _compile_first(facts: DriverFacts, wanted: WantedDriver, choice: ModuleChoice) -> Outcome:
    """Compile. A driver that is loaded still serves meanwhile, and goes on where the compilation fails."""
    compile_ = steps.Compile(
        release=facts.release,
        driver=wanted.driver,
        module_type=choice.module_type,
        jobs=wanted.jobs,
        headers=wanted.headers,
        work=wanted.work,
        network=facts.network.build_files,
    )
    unknown = ("which modules the compilation yields", "the steps to load them")
    return Steps(
        steps=(*_status_steps(facts, wanted, "NotReady"), compile_), unknown=unknown, reason=choice.reason
    )


# --- going away


def _make_room(facts: DriverFacts, wanted: WantedDriver, choice: ModuleChoice) -> Outcome:
    """Unload another driver, or this one under another configuration.

    All that can fail while it is still loaded is done before. Our daemons use it as well, so who else does is
    only seen once they have stopped: the stretch ends there.
    """
    if error := _no_space(facts, choice):
        return Blocked(error=error)
    before = (*_status_steps(facts, wanted, "NotReady"), *_file_steps(facts, wanted, choice.source))
    version = facts.loaded["nvidia"].version if "nvidia" in facts.loaded else "parts of a driver"
    reason = f"loaded: {version}, under another configuration; wanted: {wanted.driver}; {choice.reason}"
    if facts.daemons:
        unknown = (
            "whether anything still uses the modules once our daemons are stopped",
            "the steps after that",
        )
        return Steps(
            steps=(*before, steps.StopDaemons(daemons=facts.daemons)), unknown=unknown, reason=reason
        )
    away = (*before, *_unmount_steps(facts), *_unload_steps(facts))
    return Steps(steps=away, unknown=("the steps to load, once the modules are gone",), reason=reason)


def _go_away(facts: DriverFacts, wanted: WantedDriver) -> Outcome:
    """Take the driver away.

    One in use stays, and so does one of the host's: that is an error for `unload`, and how it should be at
    the end of `init`.
    """
    error = _host_driver(facts, wanted) or usage.in_use_error(facts)
    if error and wanted.goal is Goal.ABSENT:
        return Blocked(error=error)
    not_ready = (steps.SetStatus(text="NotReady"),) if facts.daemons_status not in ("", "NotReady") else ()
    if facts.daemons:
        still = "whether anything still uses the modules once our daemons are stopped"
        return Steps(steps=(*not_ready, steps.StopDaemons(daemons=facts.daemons)), unknown=(still,))
    if error:
        away = (*not_ready, *_unmount_steps(facts))
        return Steps(steps=away) if away else Done(left=usage.describe_use(facts) or (error.brief,))
    away = (*not_ready, *_unmount_steps(facts), *_unload_steps(facts), *restore_firmware(facts.journal))
    if away:
        return Steps(steps=away, unknown=("whether these steps had their effect",))
    return Steps(steps=(steps.RemoveState(),)) if facts.state_left else Done()


def restore_firmware(journal: KernelJournal) -> tuple[Step, ...]:
    """The steps back to the kernel's own firmware search path, without the files that we wrote."""
    before = journal.firmware_path_before
    restore = (steps.RestoreFirmwarePath(value=before),) if before is not None else ()
    return (*restore, *((steps.RemoveFirmware(files=journal.firmware),) if journal.firmware else ()))


def _unmount_steps(facts: DriverFacts) -> tuple[Step, ...]:
    stage = (steps.ClearStage(),) if facts.stage_left else ()
    return (*stage, *((steps.UnmountRoot(),) if facts.root is not RootState.ABSENT else ()))


def _unload_steps(facts: DriverFacts) -> tuple[Step, ...]:
    """Remove the modules, then forget the configuration.

    In this order, since a process may open the GPU between our look and rmmod. The driver stays then, and the
    next start keeps it by the configuration that is still recorded.
    """
    forget = (steps.ForgetLoad(),) if facts.digest or facts.journal.loading else ()
    return (*(steps.RemoveModule(name=name) for name in usage.removal_order(facts.loaded)), *forget)


def _status_steps(facts: DriverFacts, wanted: WantedDriver, text: str) -> tuple[Step, ...]:
    """Write the daemons' status where it is another. Only `init` does: `load` serves nobody."""
    return (steps.SetStatus(text=text),) if wanted.goal is Goal.SERVE and facts.daemons_status != text else ()


# --- coming


def _load_and_publish(facts: DriverFacts, wanted: WantedDriver, choice: ModuleChoice) -> Outcome:
    """Insert what is missing, then publish.

    Ready is written last, in a stretch of its own: after devices, root and digest were seen to hold, and the
    daemons were started.
    """
    if error := _no_space(facts, choice):
        return Blocked(error=error)
    not_ready = _status_steps(facts, wanted, "NotReady")
    prepare = (*_unmount_other_root(facts), *_file_steps(facts, wanted, choice.source))
    peermem = _peermem_names(facts, wanted, choice.source)
    missing = tuple(name for name in (*wanted.names, *peermem) if name not in facts.loaded)
    if missing:
        load = (*not_ready, *prepare, *_insert_steps(facts, wanted, missing, choice.source))
        return Steps(
            steps=load, unknown=("device numbers", "the steps to publish the driver"), reason=choice.reason
        )
    if FRONTEND_MAJOR not in facts.majors.values():
        return Blocked(error=_no_device_error(facts))
    rest = (*prepare, *_publish_steps(facts, wanted))
    if rest:
        return Steps(
            steps=(*not_ready, *rest), unknown=("whether these steps had their effect",), reason=choice.reason
        )
    ready = _status_steps(facts, wanted, "Ready")
    if not ready:
        return Done()
    starts = tuple(
        steps.StartDaemon(program=program)
        for program in facts.daemons_down
        if program.name not in wanted.without
    )
    return Steps(steps=starts, unknown=("whether they run",)) if starts else Steps(steps=ready)


def _choice_for_loaded(facts: DriverFacts, wanted: WantedDriver) -> ModuleChoice:
    """The module set of a driver that is loaded as wanted.

    It is for the load tree only: nothing is compiled for that.
    """
    module_type = facts.loaded_type or type_order(wanted)[0]
    source = next((s for s in facts.sources if s.modules.module_type == module_type), None)
    # Without a recorded digest, modules were inserted in this run, or in one that was killed: there is
    # nothing to tell.
    reason = "loaded already with this version and configuration: nothing is reloaded" if facts.digest else ""
    return ModuleChoice(module_type=module_type, source=source, reason=reason)


def _peermem_names(facts: DriverFacts, wanted: WantedDriver, source: ModuleSource | None) -> tuple[str, ...]:
    """nvidia-peermem, where it is wanted, the set has it, and the network driver's modules are loaded.

    Before them it must not be loaded: modprobe would load the kernel's own ib_core for it, which keeps
    MOFED's out.
    """
    able = (
        wanted.peermem
        and facts.network.devices
        and facts.network.ready
        and source
        and "nvidia-peermem.ko" in source.modules.modules
    )
    return (PEERMEM,) if able else ()


def _unmount_other_root(facts: DriverFacts) -> tuple[Step, ...]:
    return (steps.UnmountRoot(),) if facts.root is RootState.OTHER else ()


def _file_steps(facts: DriverFacts, wanted: WantedDriver, source: ModuleSource | None) -> tuple[Step, ...]:
    """Write what modprobe and the driver read from files: load tree, parameters, firmware."""
    found: list[Step] = []
    if source and _to_fill(facts, source):
        found.append(
            steps.FillTree(
                base=facts.load_base, release=facts.release, source=source, node_modules=facts.node_modules
            )
        )
    texts = parameter_texts(wanted, source)
    found += [
        steps.WriteParameters(name=name, text=text)
        for name, text in texts.items()
        if facts.parameter_files.get(name, "") != text
    ]
    if facts.image and facts.firmware_missing:
        folder = f"{facts.image.firmware}/nvidia/{wanted.driver}"
        found.append(steps.WriteFirmware(source=folder, driver=wanted.driver, names=facts.firmware_missing))
    if facts.firmware_path == "" and not disables_firmware(wanted):
        found.append(steps.SetFirmwarePath())
    return tuple(found)


def disables_firmware(wanted: WantedDriver) -> bool:
    """Whether a parameter keeps the driver from loading GSP firmware."""
    return NO_FIRMWARE in wanted.parameters.get("nvidia", ())


def parameter_texts(
    wanted: WantedDriver,
    source: ModuleSource | None,
    defaults: Sequence[DefaultParameter] = DEFAULT_PARAMETERS,
) -> dict[str, str]:
    """Texts for /etc/modprobe.d by file name; '' for a module without parameters."""
    texts = {}
    for name in NVIDIA_MODULES:
        by_default = [
            f"{row.parameter}={row.value}"
            for row in defaults
            if row.module == name and source and row.when(source)
        ]
        # modprobe hands the words over in order, and the kernel takes the last one of a parameter
        words = (*by_default, *wanted.parameters.get(name, ()))
        file = f"{name.replace('_', '-')}.conf"
        texts[file] = f"options {name.replace('_', '-')} {' '.join(words)}\n" if words else ""
    return texts


def _insert_steps(
    facts: DriverFacts, wanted: WantedDriver, missing: tuple[str, ...], source: ModuleSource | None
) -> tuple[Step, ...]:
    entry = source.path if source and source.place is SourcePlace.CACHE else ""
    begin = () if facts.loaded else (steps.BeginLoad(digest=wanted.digest),)
    insert = (
        steps.InsertModule(name=name, base=facts.load_base, entry=entry)
        for name in missing
        if name != PEERMEM
    )
    verify = steps.VerifyModules(names=wanted.names, version=wanted.driver)
    # Last, after all that the node needs holds: this one may fail.
    peermem = (
        (steps.InsertModule(name=PEERMEM, base=facts.load_base, needed=False),) if PEERMEM in missing else ()
    )
    return (*begin, steps.InsertHelpers(base=facts.load_base), *insert, verify, *peermem)


def _publish_steps(facts: DriverFacts, wanted: WantedDriver) -> tuple[Step, ...]:
    devices = (steps.MakeDevices(devices=facts.devices_missing),) if facts.devices_missing else ()
    publish = wanted.goal is Goal.SERVE and facts.root is not RootState.OURS
    root: tuple[Step, ...] = (
        (steps.PublishRoot(),) if publish else (steps.ClearStage(),) if facts.stage_left else ()
    )
    relabel = wanted.goal is Goal.SERVE and facts.lacks_label and not wanted.unlabelled
    label: tuple[Step, ...] = (steps.LabelDevices(),) if relabel else ()
    digest = (steps.RecordDigest(digest=wanted.digest),) if facts.digest != wanted.digest else ()
    return (*devices, *root, *label, *_old_firmware_steps(facts, wanted), *digest)


def _old_firmware_steps(facts: DriverFacts, wanted: WantedDriver) -> tuple[Step, ...]:
    """Remove the firmware of drivers before this one: in NVIDIA's pod it lies in memory."""
    ours = f"{paths.FIRMWARE}/{wanted.driver}/"
    old = tuple(path for path in facts.journal.firmware if not path.startswith(ours))
    return (steps.RemoveFirmware(files=old),) if old else ()


def _no_device_error(facts: DriverFacts) -> CommandFailed:
    return CommandFailed(
        "the nvidia module is loaded, but the kernel has no NVIDIA character device",
        details=[
            f"/proc/devices has no major {FRONTEND_MAJOR}",
            f"it has: {dict(facts.majors) or 'none of NVIDIA'}",
        ],
        resolution="look at `dmesg` for lines of NVRM; unload the driver and start again",
    )
