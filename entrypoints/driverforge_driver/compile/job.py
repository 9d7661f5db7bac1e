"""Compile this image's driver for a kernel release.

The steps, in this order:

* headers, and the header probes on them
* the compiler
* free space
* compile each module type
* strip, check the vermagic
* publish all at once

Nothing appears under the output before every module type is complete.

As many compilers run at once as there are processors that this process may use, but no more than its cgroup
pays for: nproc knows nothing of a container's `resources.limits.cpu`, and a node of 128 processors would
start 128 compilers in a container of two.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from driverforge_core import log
from driverforge_core.errors import TemporaryFailure, Unavailable, Unsupported
from driverforge_core.image import ImageFacts
from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsRelease, parse_os_release
from driverforge_driver.compile import cache, publish
from driverforge_driver.compile.compiler import Ways, check_compiler, compile_modules
from driverforge_driver.compile.headers import (
    KernelHeaders,
    check_header_probes,
    signature_digests,
    unpack_headers,
)
from driverforge_driver.compile.space import require_space
from driverforge_driver.state import network, paths, variables
from driverforge_driver.state.network import NetworkBuildFiles
from driverforge_host.ports import Files, Host, text_of
from driverforge_host.ports.mounts import under

# Needs room for 1.5 GiB, which /tmp does not have where it lies in memory.
WORK = "/var/tmp/driverforge"  # noqa: S108
LOGS = "/var/log/driverforge"
TOOLS = ("make", "ld", "objdump", "awk", "strip")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """What to compile, and where."""

    image: ImageFacts
    # the image's OS: its package manager and its compiler are used
    release: OsRelease
    kernel: KernelRelease
    module_types: tuple[str, ...]
    # compilers to run at once
    jobs: int
    # what nvidia-peermem is compiled against; None: the kernel's own symbols
    network: NetworkBuildFiles | None = None
    # folder with the header packages; '': fetch them
    headers: str = ""
    # modules appear below <output>/opt/lib/modules
    output: str = "/"
    work: str = WORK
    logs: str = LOGS
    # SOURCE_DATE_EPOCH: the time stamp of published files, in seconds since 1970; None: the present time
    epoch: int | None = None
    # with NVIDIA's own conftest, and every object from its source
    plain: bool = False
    # for a real-time kernel, too
    realtime: bool = False

    @property
    def built_against(self) -> str:
        """The identity of the network driver's build files, '' without them."""
        return self.network.identity if self.network else ""


class Origin(Enum):
    """Where a published module set came from."""

    COMPILED = "compiled"
    NODE_CACHE = "node cache"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltSet:
    """A published module set."""

    module_type: str
    path: str
    origin: Origin


def request_for(
    host: Host,
    *,
    image: ImageFacts,
    kernel: str,
    module_types: tuple[str, ...],
    jobs: int = 0,
    network: NetworkBuildFiles | None = None,
    headers: str = "",
    output: str = "/",
    work: str = "",
    logs: str = "",
    epoch: int | None = None,
) -> BuildRequest:
    """A request for the OS that we run in.

    '' and 0 stand for the defaults. Raises InputError where `kernel` is no release.
    """
    settings = variables.parse(host.environ)
    return BuildRequest(
        image=image,
        release=parse_os_release(host.files.read_text("/etc/os-release")),
        kernel=KernelRelease.parse(kernel),
        module_types=module_types,
        jobs=jobs or processors(host),
        network=network,
        headers=headers,
        output=output,
        work=work or WORK,
        logs=logs or LOGS,
        epoch=epoch,
        plain=settings.plain_compile,
        realtime=settings.realtime,
    )


def describe(request: BuildRequest) -> tuple[str, ...]:
    """What a build will do, a line each, for --plan."""
    folder = f"{request.work}/{request.image.driver}-{request.kernel}"
    get = (
        f"unpack the packages of {request.headers}"
        if request.headers
        else f"fetch and unpack the header packages of {request.kernel}"
    )
    compiles = [
        f"compile {request.image.sources[kind]} ({kind}) with make -j{request.jobs} in {folder}/{kind}, "
        "unless the node's cache has it"
        for kind in request.module_types
    ]
    against = (
        (f"compile nvidia-peermem against the network driver in {request.network.folder}",)
        if request.network
        else ()
    )
    places = ", ".join(
        f"{publish.sets_folder(request.output, request.kernel)}/{kind}" for kind in request.module_types
    )
    return (
        f"{get} in {folder}",
        "check header probes, compiler and free space",
        *compiles,
        *against,
        "strip debug information, check the vermagic of each module",
        f"publish {places}",
        f"remove {folder}",
    )


def check_sources(image: ImageFacts, module_types: tuple[str, ...]) -> None:
    """Raises Unsupported where the image cannot compile what is asked for."""
    for kind in module_types:
        if kind not in image.sources:
            raise Unsupported(
                f"this image has no sources of the {kind} kernel modules of driver {image.driver}",
                details=[
                    (
                        f"variant: {image.variant}, "
                        f"module types with sources: {', '.join(image.sources) or 'none'}"
                    )
                ],
                resolution="use the JIT image of this driver, or a precompiled image for this kernel",
            )


def build(host: Host, request: BuildRequest) -> tuple[BuiltSet, ...]:
    """Compile and publish every module type of `request`.

    Raises Unsupported (headers, compiler or kernel do not fit), Unavailable (mirror), StorageFailed (disk
    full), CommandFailed (with what the compiler said), TemporaryFailure (another build of the same, or a stop
    signal). Nothing is published then, and the work folder is removed.
    """
    check_sources(request.image, request.module_types)
    folder = f"{request.work}/{request.image.driver}-{request.kernel}"
    with _work_folder(host, folder):
        with log.step("headers"):
            headers = unpack_headers(
                host, request.release, request.kernel, given=request.headers, folder=folder
            )
        check_header_probes(
            host.files,
            headers.tree,
            request.image,
            request.module_types,
            request.kernel,
            realtime=request.realtime,
        )
        compiler = check_compiler(host.commands, headers.compiler, request.kernel)
        if request.network:
            network.link_build_files(host, request.network, str(request.kernel))
        staged = []
        for kind in request.module_types:
            key = cache.CacheKey(
                driver=str(request.image.driver),
                module_type=kind,
                kernel=str(request.kernel),
                sources=request.image.source_digests.get(kind, ""),
                headers=headers.version,
                compiler=compiler,
                network=request.built_against,
            )
            stage = f"{folder}/stage-{kind}"
            if cache.restore(host, key, stage):
                log.info("took modules from the node's cache", module_type=kind)
                staged.append((kind, stage, key, Origin.NODE_CACHE))
                continue
            _compile(host, request, kind, headers=headers, folder=folder, stage=stage, compiler=compiler)
            staged.append((kind, stage, key, Origin.COMPILED))
        published = publish.publish(
            host,
            [(kind, stage) for kind, stage, _, _ in staged],
            output=request.output,
            kernel=request.kernel,
            epoch=request.epoch,
        )
        for kind, _, key, origin in staged:
            if origin is Origin.COMPILED:
                cache.store(host, key, published[kind])
    return tuple(
        BuiltSet(module_type=kind, path=published[kind], origin=origin) for kind, _, _, origin in staged
    )


def _compile(
    host: Host,
    request: BuildRequest,
    kind: str,
    *,
    headers: KernelHeaders,
    folder: str,
    stage: str,
    compiler: str,
) -> None:
    missing = [tool for tool in TOOLS if host.commands.find(tool) is None]
    if missing:
        raise Unsupported(
            f"build tools missing: {', '.join(missing)}",
            resolution="use the JIT image of this driver; it has make, binutils and the compilers",
        )
    source = request.image.sources[kind]
    require_space(host, source, folder)
    log_path = f"{request.logs}/build-{request.image.driver}-{kind}-{request.kernel}.log"
    with log.step(f"compile {kind}"):
        work = compile_modules(
            host,
            headers,
            source=source,
            work=f"{folder}/{kind}",
            jobs=request.jobs,
            log_path=log_path,
            epoch=request.epoch,
            ways=Ways(
                plain=request.plain,
                kept=paths.COMPILE_CACHE if cache.reachable(host, paths.COMPILE_CACHE) else "",
                realtime=request.realtime,
            ),
        )
    publish.stage_modules(
        host,
        work,
        stage,
        image=request.image,
        module_type=kind,
        kernel=request.kernel,
        compiler=compiler,
        network=request.built_against,
        signature_digests=signature_digests(host.files.read_text(f"{headers.tree.output}/.config")),
    )
    host.files.remove_tree(work)


@contextmanager
def _work_folder(host: Host, folder: str) -> Iterator[None]:
    """An empty folder that is ours alone, by a lock beside it, and that is removed whatever happens.

    On a host anybody may write to /var/tmp, and what lies in this folder becomes part of the kernel. A folder
    that was given is taken as it is: a pod's volume may be open to all.
    """
    parent = folder.rpartition("/")[0]
    if parent == WORK or not host.files.exists(parent):
        host.files.make_private_dir(parent)
    with host.files.lock(f"{folder}.lock", text="driverctl build\n") as ours:
        if not ours:
            raise TemporaryFailure(
                f"another build works in {folder}",
                resolution="wait for it to end, or name another folder with --work-dir",
            )
        host.files.remove_tree(folder)
        host.files.make_private_dir(folder)
        try:
            yield
        finally:
            host.files.remove_tree(folder)


def processors(host: Host) -> int:
    """At least one. Raises Unavailable without nproc."""
    result = host.commands.run(["nproc"], check=False)
    if not result.ok:
        raise Unavailable("nproc failed", details=[result.stderr.strip()], resolution="give -j")
    limits = (processor_limit(host.files, folder) for folder in cgroup_folders(host))
    return min([int(result.stdout), *(limit for limit in limits if limit is not None)])


def cgroup_folders(host: Host) -> Iterator[str]:
    """Our own cgroups and all above them, as far as we see them. The limits of each one count."""
    own = {}
    for line in text_of(host.files, "/proc/self/cgroup").splitlines():
        # cgroups(7): 'ID:CONTROLLERS:PATH', without controllers in version 2
        _, controllers, path = line.split(":", 2)
        if not controllers:
            own["cgroup2"] = path
        elif "cpu" in controllers.split(","):
            own["cgroup"] = path
    for mount in host.mounts.table():
        if mount.fs_type in own:
            # Nothing of our path is below a mount that shows our own cgroup as its root.
            rest = under(own[mount.fs_type], mount.root) or ""
            while rest.strip("/"):
                yield mount.target + rest
                rest = rest.rpartition("/")[0]
            yield mount.target


def processor_limit(files: Files, folder: str) -> int | None:
    """How many processors a cgroup's quota is worth, rounded up; None where it has none.

    cpu.max of version 2 is 'QUOTA PERIOD' with 'max' for no limit
    (Documentation/admin-guide/cgroup-v2.rst), and version 1 has two files with -1 for none
    (Documentation/scheduler/sched-bwc.rst), in microseconds.
    """
    quota, _, period = text_of(files, f"{folder}/cpu.max").strip().partition(" ")
    if not quota:
        quota = text_of(files, f"{folder}/cpu.cfs_quota_us").strip()
        period = text_of(files, f"{folder}/cpu.cfs_period_us").strip()
    if not quota.isdecimal() or not period.isdecimal():
        return None
    return max(1, -(-int(quota) // int(period)))
