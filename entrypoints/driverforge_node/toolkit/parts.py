"""What a run does beside the installation: the CDI specification, and the container runtime by the transaction of `driverctl runtime`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeVar

from driverforge_core.errors import DriverforgeError, InputError
from driverforge_node import log
from driverforge_node.cdi.generate import generate_management
from driverforge_node.cdi.roots import Roots, read, view
from driverforge_node.devices import nodes
from driverforge_node.driver.observe import device_majors
from driverforge_node.host.ports import Host
from driverforge_node.runtime import change, configure, discover, hook, journal, report
from driverforge_node.runtime import request as asked
from driverforge_node.runtime.change import Plan, System
from driverforge_node.runtime.effective import effective
from driverforge_node.runtime.lock import exclusive
from driverforge_node.runtime.model import Handler
from driverforge_node.runtime.ports import Sockets
from driverforge_node.toolkit.layout import Layout
from driverforge_node.toolkit.lifetime import Parts
from driverforge_node.toolkit.settings import Settings
from driverforge_node.toolkit.wanted import layout_of
from driverforge_node.watch import serve as watch

WordT = TypeVar("WordT", bound=str)


def parts_of(host: Host, sockets: Sockets, settings: Settings) -> Parts:
    """The parts of a run. Raises UsageError, InputError for values that the runtime's half refuses."""
    layout = layout_of(settings)
    system = System(host=host, sockets=sockets, request=request_of(host, settings, layout))
    watch.policy_of(settings)  # a window that cannot be read is told now
    by_hook = settings.runtime == "crio" and settings.config_mode == "hook"

    def cdi() -> None:
        write_cdi(host, settings, layout)

    return Parts(
        low_level=lambda: low_level(system),
        cdi=cdi,
        apply=(lambda: put_hook(host, settings, layout)) if by_hook else (lambda: apply(system)),
        watch=lambda: watch.serve(
            system, settings, roots_of(settings), apply=lambda: apply(system), regenerate=cdi
        ),
        revert=(lambda: remove_hook(host, settings, layout)) if by_hook else (lambda: revert(system)),
    )


def watch_alone(host: Host, sockets: Sockets, settings: Settings) -> str:
    """The watch of what somebody else applied, until a stop signal; its name. Raises as `parts_of`, and TemporaryFailure."""
    layout = layout_of(settings)
    system = System(host=host, sockets=sockets, request=request_of(host, settings, layout))
    return watch.serve(
        system,
        settings,
        roots_of(settings),
        apply=lambda: reapply(system),
        regenerate=lambda: write_cdi(host, settings, layout),
    )


def request_of(host: Host, settings: Settings, layout: Layout) -> asked.Request:
    """The settings as `driverctl runtime` has them: paths of this container's mounts become the node's."""

    def path(text: str) -> str:
        return asked.node_path(host, text) if text else ""

    return asked.Request(
        wanted=asked.wanted(
            folder=layout.toolkit, name=settings.runtime_name, default=settings.set_as_default, cdi=settings.enable_cdi_in_runtime,
            prefixes=settings.cdi_annotation_prefixes, runtime_type=settings.runtime_type, override=settings.config_override,
        ),
        runtime=_one_of(settings.runtime, asked.KINDS),
        socket=path(settings.socket),
        config=path(settings.config),
        drop_in=settings.drop_in_host_path or path(settings.drop_in),
        binary=settings.executable_path,
        restart_mode=_one_of(settings.restart_mode, asked.MODES),
        restart_command=settings.restart_command,
    )  # fmt: skip


def _one_of(text: str, known: tuple[WordT, ...]) -> WordT | Literal[""]:
    return next((word for word in known if word == text), "")


def low_level(system: System) -> Sequence[str]:
    """Low-level runtimes that the runtime's configuration names, without what we wrote into it; none where it cannot be asked."""
    host = system.host
    try:
        daemon = discover.choose(host, system.sockets, system.request)
        seen = configure.observe(system, daemon)
        return seen.edit.low_level_runtimes(effective(host, daemon, seen.base, seen.disk))
    except DriverforgeError as error:
        log.warning(
            "the runtime does not say what runs its containers; taken to be runc or crun", why=error.brief
        )
        return ()


def roots_of(settings: Settings) -> Roots:
    return Roots(
        driver=settings.driver_root, driver_here=settings.driver_root_ctr_path,
        dev=settings.dev_root or settings.driver_root,
        dev_here=settings.dev_root_ctr_path or settings.driver_root_ctr_path,
    )  # fmt: skip


def write_cdi(host: Host, settings: Settings, layout: Layout) -> None:
    """Control device nodes, where asked for, and the management specification. Raises Unavailable without a driver or its devices."""
    roots = roots_of(settings)
    if settings.create_device_nodes == "control":
        seen = view(host, roots)
        makings = nodes.plan(seen.dev, nodes.control_nodes(device_majors(read(seen.system, "/proc/devices"))))
        nodes.make(seen.dev, makings)
        for making in makings:
            log.info(making.describe())
    generate_management(
        host, driver_root=roots.driver, driver_root_ctr=roots.driver_here, dev_root=roots.dev, dev_root_ctr=roots.dev_here,
        output_dir=settings.cdi_output_dir, kind=settings.cdi_kind, hook_path=f"{layout.toolkit}/nvidia-cdi-hook",
    )  # fmt: skip


def apply(system: System) -> bool:
    """Whether the runtime was restarted."""
    with exclusive(system.host):
        configure.settle(system)
        plan = configure.apply_plan(system)
        report.warn_missing(system.host, plan)
        _carry_out(plan, system)
    return plan.activation == "restart" and system.request.restart_mode != "none"


def reapply(system: System) -> None:
    """What is in the journal, again: with the runtime, files, handlers and default that it has, whatever the options say."""
    for entry in journal.entries(system.host):
        apply(replace(system, request=again(system.request, entry)))


def again(request: asked.Request, entry: journal.Entry) -> asked.Request:
    """The request that made `entry`. What an earlier release did not write down comes from `request`."""
    made = (
        entry if entry.handlers or entry.earlier is None else entry.earlier
    )  # one of a revert has no handlers
    handlers = (
        tuple(Handler(name=name, binary=program) for name, program in made.handlers)
        or request.wanted.handlers
    )
    known = made.wanted or replace(request.wanted, handlers=handlers, release_default=False)
    wanted = replace(known, default=made.default)
    return replace(
        request,
        wanted=wanted,
        runtime=entry.kind,
        socket=entry.socket,
        config=entry.config,
        drop_in=entry.drop_in,
    )


def revert(system: System) -> None:
    with exclusive(system.host):
        configure.settle(system)
        plan = configure.revert_plan(system)
        if plan is None:
            log.info("nothing to revert: driverctl has not changed this node's container runtime")
        else:
            _carry_out(plan, system)


def _carry_out(plan: Plan, system: System) -> None:
    for note in plan.notes:
        log.warning(note)
    change.carry_out(plan, system)
    log.info(report.summary(plan, system))


def put_hook(host: Host, settings: Settings, layout: Layout) -> bool:
    """CRI-O's legacy OCI hook. CRI-O watches the folder: False, nothing was restarted. Raises InputError for another's of that name."""
    path = asked.node_path(host, f"{settings.hooks_dir.rstrip('/')}/{settings.hook_filename}")
    wanted, current = hook.rendered(f"{layout.toolkit}/nvidia-container-runtime-hook"), _hook(host, path)
    if current == wanted:
        return False
    if hook.stripped(current, path) is not None:
        raise InputError(
            f"{path} is a hook of somebody else",
            resolution="move it, or give another --hook-filename; nothing was changed",
        )
    host.node.make_dirs(path.rpartition("/")[0])
    host.node.write_atomic(path, wanted)
    log.warning(
        "wrote the OCI hook; CRI-O's handlers (CRIO_CONFIG_MODE=config) are what upstream recommends",
        file=path,
    )
    return False


def remove_hook(host: Host, settings: Settings, layout: Layout) -> None:
    """Take our hook away; one that somebody else wrote since stays."""
    path = asked.node_path(host, f"{settings.hooks_dir.rstrip('/')}/{settings.hook_filename}")
    current = _hook(host, path)
    left = hook.undone(
        original=None,
        written=hook.rendered(f"{layout.toolkit}/nvidia-container-runtime-hook"),
        current=current,
    )
    if current is not None and left.data is None:
        host.node.remove(path)
        log.info("removed the OCI hook", file=path)


def _hook(host: Host, path: str) -> bytes | None:
    try:
        return host.node.read_bytes(path)
    except FileNotFoundError:
        return None
