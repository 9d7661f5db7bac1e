"""The next stretch of steps from facts to what is wanted. Pure: no step runs here, and the same facts give the same plan.

A stretch ends where the plan needs to look again (what a compilation gave, which device numbers the kernel handed out,
whether anybody still uses a module after our daemons stopped). Every step is planned because an observed fact differs from
what is wanted, so a plan made after a crash at any point goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass

from driverforge_core.errors import CommandFailed, DriverforgeError
from driverforge_core.names import NVIDIA_MODULES, PEERMEM, normalise
from driverforge_node.driver import steps, tree, use
from driverforge_node.driver.facts import Facts, Journal, Source, Wanted
from driverforge_node.driver.observe import FRONTEND_MAJOR
from driverforge_node.driver.preflight import not_root, preflight, signature_problem
from driverforge_node.driver.source import Choice, choose, type_order
from driverforge_node.driver.steps import Step

COHERENT = "NVreg_CoherentGPUMemoryMode"
NO_FIRMWARE = "NVreg_EnableGpuFirmware=0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What can be decided now. `unknown` names what has to be seen before the rest can be; `reason` is why this way."""

    steps: tuple[Step, ...]
    unknown: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The node is as wanted; `left` names what was left on purpose (a driver in use), `reasons` why it went the way it did,
    `warnings` what somebody may miss."""

    left: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """There is no way on from here."""

    error: DriverforgeError


Plan = Steps | Done | Blocked


def next_steps(facts: Facts, wanted: Wanted) -> Plan:
    """The next stretch towards `wanted`."""
    if wanted.goal in ("absent", "stopped"):
        return Blocked(error=not_root(facts.user)) if facts.user != 0 else _towards_absent(facts, wanted)
    if error := preflight(facts, wanted):
        return Blocked(error=error)
    if facts.loaded and kept(facts, wanted):
        return _towards_loaded(facts, wanted, _kept_choice(facts, wanted))
    if error := signature_problem(facts, wanted) or use.in_use(facts):
        return Blocked(error=error)
    try:
        choice = choose(facts, wanted)
    except DriverforgeError as error:
        return Blocked(error=error)
    if choice.source is None:
        return _towards_modules(facts, wanted, choice)
    return (
        _towards_unloaded(facts, wanted, choice) if facts.loaded else _towards_loaded(facts, wanted, choice)
    )


def kept(facts: Facts, wanted: Wanted) -> bool:
    """Whether what is loaded is what is wanted: the configuration digest and the loaded versions agree (either alone is not enough)."""
    versions = {module.version for name, module in facts.loaded.items() if name in NVIDIA_MODULES}
    ours = facts.digest or facts.journal.loading
    fits = wanted.module_type in ("auto", facts.loaded_type)
    return "nvidia" in facts.loaded and versions <= {wanted.driver, ""} and ours == wanted.digest and fits


# --- going away


def _towards_modules(facts: Facts, wanted: Wanted, choice: Choice) -> Plan:
    """Compile first, with a driver that is loaded still serving: a compilation that fails leaves it alone."""
    compile_ = steps.Compile(
        release=facts.release,
        driver=wanted.driver,
        module_type=choice.module_type,
        jobs=wanted.jobs,
        headers=wanted.headers,
        work=wanted.work,
        network=facts.network.build_files,
    )
    unknown = ("the modules that the compilation gives", "the steps to load them")
    return Steps(steps=(*_status(facts, wanted, "NotReady"), compile_), unknown=unknown, reason=choice.reason)


def _towards_unloaded(facts: Facts, wanted: Wanted, choice: Choice) -> Plan:
    """Another driver, or this one under another configuration, has to go. All that can fail without it is done before."""
    before = (*_status(facts, wanted, "NotReady"), *_prepare(facts, wanted, choice.source))
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
    away = (*before, *_unmount(facts), *_unload(facts))
    return Steps(steps=away, unknown=("the steps to load, once the modules are gone",), reason=reason)


def _towards_absent(facts: Facts, wanted: Wanted) -> Plan:
    error = use.in_use(facts)
    if error and wanted.goal == "absent":
        return Blocked(error=error)
    not_ready = (steps.SetStatus(text="NotReady"),) if facts.daemons_status not in ("", "NotReady") else ()
    if facts.daemons:
        still = "whether anything still uses the modules once our daemons are stopped"
        return Steps(steps=(*not_ready, steps.StopDaemons(daemons=facts.daemons)), unknown=(still,))
    if error:
        away = (*not_ready, *_unmount(facts))
        return Steps(steps=away) if away else Done(left=use.evidence(facts))
    away = (*not_ready, *_unmount(facts), *_unload(facts), *restore_firmware(facts.journal))
    if away:
        return Steps(steps=away, unknown=("whether all that holds",))
    return Steps(steps=(steps.RemoveState(),)) if facts.state_left else Done()


def restore_firmware(journal: Journal) -> tuple[Step, ...]:
    """Back to the kernel's own search path, and without the files that we wrote."""
    before = journal.firmware_path_before
    restore = (steps.RestoreFirmwarePath(value=before),) if before is not None else ()
    return (*restore, *((steps.RemoveFirmware(files=journal.firmware),) if journal.firmware else ()))


def _unmount(facts: Facts) -> tuple[Step, ...]:
    stage = (steps.ClearStage(),) if facts.stage_left else ()
    return (*stage, *((steps.UnmountRoot(),) if facts.root != "absent" else ()))


def _unload(facts: Facts) -> tuple[Step, ...]:
    """The configuration is forgotten last: a process may open the GPU between our look and rmmod, and what stays is kept by it then."""
    forget = (steps.ForgetLoad(),) if facts.digest or facts.journal.loading else ()
    return (*(steps.RemoveModule(name=name) for name in use.removal_order(facts.loaded)), *forget)


def _status(facts: Facts, wanted: Wanted, text: str) -> tuple[Step, ...]:
    """The daemons' status is the word of `init` alone; `load` leaves it."""
    return (steps.SetStatus(text=text),) if wanted.goal == "serve" and facts.daemons_status != text else ()


# --- coming


def _towards_loaded(facts: Facts, wanted: Wanted, choice: Choice) -> Plan:
    not_ready = _status(facts, wanted, "NotReady")
    names = _names(wanted, choice.source)
    prepare = (*_unmount_stale(facts), *_prepare(facts, wanted, choice.source))
    missing = tuple(
        name for name in (*names, *_peermem(facts, wanted, choice.source)) if name not in facts.loaded
    )
    if missing:
        load = (*not_ready, *prepare, *_insert(facts, wanted, missing, names))
        return Steps(
            steps=load, unknown=("device numbers", "the steps to publish the driver"), reason=choice.reason
        )
    if FRONTEND_MAJOR not in facts.majors.values():
        return Blocked(error=_no_device(facts))
    rest = (*prepare, *_publish(facts, wanted))
    if rest:
        return Steps(steps=(*not_ready, *rest), unknown=("whether all that holds",), reason=choice.reason)
    ready = _status(facts, wanted, "Ready")
    return Steps(steps=ready) if ready else Done()


def _kept_choice(facts: Facts, wanted: Wanted) -> Choice:
    """A driver that is loaded as wanted needs a module set for its load tree only: nothing is compiled for that."""
    module_type = facts.loaded_type or type_order(wanted)[0]
    source = next((s for s in facts.sources if s.modules.module_type == module_type), None)
    # without a recorded digest, this run or one that was killed has inserted modules and is not done: that is no reason for anything
    reason = "loaded already with this version and configuration: nothing is reloaded" if facts.digest else ""
    return Choice(module_type=module_type, source=source, reason=reason)


def _names(wanted: Wanted, source: Source | None) -> tuple[str, ...]:
    """Wanted modules that the set has: some kernels and branches give no nvidia-uvm."""
    have = {normalise(name) for name in source.modules.modules} if source else set()
    return tuple(name for name in wanted.names if name in have)


def _peermem(facts: Facts, wanted: Wanted, source: Source | None) -> tuple[str, ...]:
    """Only behind the network driver's own modules: modprobe would load the kernel's in their place."""
    able = (
        wanted.peermem
        and facts.network.devices
        and facts.network.ready
        and source
        and "nvidia-peermem.ko" in source.modules.modules
    )
    return (PEERMEM,) if able else ()


def _unmount_stale(facts: Facts) -> tuple[Step, ...]:
    return (steps.UnmountRoot(),) if facts.root == "other" else ()


def _prepare(facts: Facts, wanted: Wanted, source: Source | None) -> tuple[Step, ...]:
    """Everything that modprobe and the driver read from files."""
    found: list[Step] = []
    if source and facts.stamp != tree.stamp(source, facts.node_modules):
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
    if facts.firmware_path == "" and NO_FIRMWARE not in wanted.parameters.get("nvidia", ()):
        found.append(steps.SetFirmwarePath())
    return tuple(found)


def parameter_texts(wanted: Wanted, source: Source | None) -> dict[str, str]:
    """modprobe.d file → text. Coherent GPU memory is kept out of the node's NUMA memory, as upstream, where the driver can do it."""
    texts = {}
    for name in NVIDIA_MODULES:
        words = list(wanted.parameters.get(name, ()))
        if name == "nvidia" and source and COHERENT in source.parameters:
            words.insert(0, f"{COHERENT}=driver")
        file = f"{name.replace('_', '-')}.conf"
        texts[file] = f"options {name.replace('_', '-')} {' '.join(words)}\n" if words else ""
    return texts


def _insert(
    facts: Facts, wanted: Wanted, missing: tuple[str, ...], names: tuple[str, ...]
) -> tuple[Step, ...]:
    begin = () if facts.loaded else (steps.BeginLoad(digest=wanted.digest),)
    insert = (steps.InsertModule(name=name, base=facts.load_base) for name in missing if name != PEERMEM)
    verify = steps.VerifyModules(names=names, version=wanted.driver)
    # last, when all that the node needs holds already: this one may fail
    peermem = (
        (steps.InsertModule(name=PEERMEM, base=facts.load_base, needed=False),) if PEERMEM in missing else ()
    )
    return (*begin, steps.InsertHelpers(base=facts.load_base), *insert, verify, *peermem)


def _publish(facts: Facts, wanted: Wanted) -> tuple[Step, ...]:
    devices = (steps.MakeDevices(devices=facts.devices_missing),) if facts.devices_missing else ()
    publish = wanted.goal == "serve" and facts.root != "ours"
    root: tuple[Step, ...] = (
        (steps.PublishRoot(),) if publish else (steps.ClearStage(),) if facts.stage_left else ()
    )
    digest = (steps.RecordDigest(digest=wanted.digest),) if facts.digest != wanted.digest else ()
    return (*devices, *root, *digest)


def _no_device(facts: Facts) -> CommandFailed:
    return CommandFailed(
        "the nvidia module is loaded, but the kernel has no NVIDIA character device",
        details=[
            f"/proc/devices has no major {FRONTEND_MAJOR}",
            f"it has: {dict(facts.majors) or 'none of NVIDIA'}",
        ],
        resolution="look at `dmesg` for lines of NVRM; unload the driver and start again",
    )
