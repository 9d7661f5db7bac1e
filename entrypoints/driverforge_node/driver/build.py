"""Compile this image's driver for a kernel release: at image build and on the node, the same steps.

headers → header probes → compiler → space → compile each module type → strip, check vermagic → publish all at once.
Nothing appears under the output before every module type is complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from driverforge_core.errors import TemporaryFailure, Unavailable, Unsupported
from driverforge_core.image import ImageFacts
from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsRelease
from driverforge_node import log
from driverforge_node.driver import (
    build_cache,
    build_compile,
    build_headers,
    build_probes,
    build_publish,
    network,
)
from driverforge_node.driver.facts import BuildFiles
from driverforge_node.host.ports import Host

WORK = "/var/tmp/driverforge"  # noqa: S108 -- a folder of our own with room for 1.5 GiB, which /tmp (often in memory) has not
LOGS = "/var/log/driverforge"
TOOLS = ("make", "ld", "objdump", "awk", "strip")
# measured: sources with debug information grow threefold while they are linked (192 to 594 MB, 241 to 715 MB), and headers unpack to 60 MB
GROWTH = 4
HEADERS_KIB = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """What to compile, and where."""

    image: ImageFacts
    release: OsRelease  # of the image, whose package manager and compiler are used
    kernel: KernelRelease
    module_types: tuple[str, ...]
    jobs: int
    network: BuildFiles | None = None  # the network driver's, that nvidia-peermem is compiled against
    headers: str = ""  # folder with the header packages; '' to fetch them
    output: str = "/"
    work: str = WORK
    logs: str = LOGS
    epoch: int | None = None  # SOURCE_DATE_EPOCH: the time that published files carry, in seconds

    @property
    def built_against(self) -> str:
        """The identity of the network driver's build files, '' without them."""
        return self.network.identity if self.network else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltSet:
    """A published module set."""

    module_type: str
    path: str
    origin: str  # 'compiled' or 'node cache'


def steps(request: BuildRequest) -> tuple[str, ...]:
    """What a build will do, for --plan."""
    folder = f"{request.work}/{request.image.driver}-{request.kernel}"
    get = (
        f"unpack the packages of {request.headers}"
        if request.headers
        else f"fetch and unpack the header packages of {request.kernel}"
    )
    compiles = [
        f"compile {request.image.sources[kind]} ({kind}) with make -j{request.jobs} in {folder}/{kind}, unless the node's cache has it"
        for kind in request.module_types
    ]
    against = (
        (f"compile nvidia-peermem against the network driver in {request.network.folder}",)
        if request.network
        else ()
    )
    places = ", ".join(
        f"{build_publish.folder(request.output, request.kernel)}/{kind}" for kind in request.module_types
    )
    return (
        f"{get} in {folder}", "check header probes, compiler and free space", *compiles, *against,
        "strip debug information, check the vermagic of each module", f"publish {places}", f"remove {folder}",
    )  # fmt: skip


def check_sources(image: ImageFacts, module_types: tuple[str, ...]) -> None:
    """Raises Unsupported when this image cannot compile what is asked."""
    for kind in module_types:
        if kind not in image.sources:
            raise Unsupported(
                f"this image has no sources of the {kind} kernel modules of driver {image.driver}",
                details=[
                    f"variant: {image.variant}, module types with sources: {', '.join(image.sources) or 'none'}"
                ],
                resolution="use the JIT image of this driver, or a precompiled image for this kernel",
            )


def build(host: Host, request: BuildRequest) -> tuple[BuiltSet, ...]:
    """Compile and publish every module type of `request`.

    Raises Unsupported (headers, compiler or kernel do not fit), Unavailable (mirror), StorageFailed (disk full), CommandFailed (what the
    compiler said), TemporaryFailure (another build of the same, or stopped); nothing is published then, and the work folder is removed.
    """
    check_sources(request.image, request.module_types)
    folder = f"{request.work}/{request.image.driver}-{request.kernel}"
    with _work_folder(host, folder):
        with log.step("headers"):
            headers = build_headers.prepare(
                host, request.release, request.kernel, given=request.headers, folder=folder
            )
        build_probes.check(host.files, headers.tree, request.image, request.module_types, request.kernel)
        compiler = build_compile.check_compiler(host.commands, headers.compiler, request.kernel)
        if request.network:
            network.link(host, request.network, str(request.kernel))
        staged = []
        for kind in request.module_types:
            key = build_cache.Key(
                driver=str(request.image.driver), module_type=kind, kernel=str(request.kernel), headers=headers.version, compiler=compiler,
                network=request.built_against,
            )  # fmt: skip
            stage = f"{folder}/stage-{kind}"
            if build_cache.restore(host, key, stage):
                log.info("took modules from the node's cache", module_type=kind)
                staged.append((kind, stage, key, "node cache"))
                continue
            _compile(host, request, kind, headers=headers, folder=folder, stage=stage, compiler=compiler)
            staged.append((kind, stage, key, "compiled"))
        published = build_publish.publish(
            host,
            [(kind, stage) for kind, stage, _, _ in staged],
            output=request.output,
            kernel=request.kernel,
            epoch=request.epoch,
        )
        for kind, _, key, origin in staged:
            if origin == "compiled":
                build_cache.store(host, key, published[kind])
    return tuple(
        BuiltSet(module_type=kind, path=published[kind], origin=origin) for kind, _, _, origin in staged
    )


def _compile(
    host: Host,
    request: BuildRequest,
    kind: str,
    *,
    headers: build_headers.Headers,
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
        work = build_compile.compile_modules(
            host,
            headers,
            source=source,
            work=f"{folder}/{kind}",
            jobs=request.jobs,
            log_path=log_path,
            epoch=request.epoch,
        )
    build_publish.stage_modules(
        host,
        work,
        stage,
        image=request.image,
        module_type=kind,
        kernel=request.kernel,
        compiler=compiler,
        network=request.built_against,
    )
    host.files.remove_tree(work)


def require_space(host: Host, source: str, folder: str) -> None:
    """Raises StorageFailed before a compilation that would fill the disk."""
    from driverforge_core.errors import StorageFailed

    listed = host.commands.run(["du", "--summarize", "--block-size=1024", "--dereference-args", source])
    needed = (int(listed.stdout.split()[0]) * GROWTH + HEADERS_KIB) * 1024
    free = host.files.free_bytes(folder)
    if free < needed:
        raise StorageFailed(
            f"not enough space to compile: {free >> 20} MiB free, about {needed >> 20} MiB needed",
            details=[f"work folder: {folder}", f"sources: {source}"],
            resolution="free space there (df -h), or give another place with --work-dir",
        )


@contextmanager
def _work_folder(host: Host, folder: str) -> Iterator[None]:
    """An empty folder that is ours alone and goes away whatever happens."""
    parent = folder.rpartition("/")[0]
    host.files.make_dirs(parent)
    with host.files.lock(f"{folder}.lock", text="driverctl build\n") as ours:
        if not ours:
            raise TemporaryFailure(
                f"another build works in {folder}",
                resolution="wait for it to end, or give another place with --work-dir",
            )
        host.files.remove_tree(folder)
        host.files.make_dirs(folder)
        try:
            yield
        finally:
            host.files.remove_tree(folder)


def processors(host: Host) -> int:
    """How many compilers to run at once: as many as this process may use."""
    result = host.commands.run(["nproc"], check=False)
    if not result.ok:
        raise Unavailable("nproc failed", details=[result.stderr.strip()], resolution="give -j")
    return int(result.stdout)
