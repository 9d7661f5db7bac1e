"""Run the compiler, and read its log when it fails."""

from __future__ import annotations

import re
from dataclasses import dataclass

from driverforge_core import log
from driverforge_core.errors import (
    CommandFailed,
    DriverforgeError,
    StorageFailed,
    TemporaryFailure,
    Unsupported,
)
from driverforge_core.kernel import KernelRelease
from driverforge_driver.compile import shortcuts
from driverforge_driver.compile.headers import KernelHeaders
from driverforge_driver.family.protocol import Compiler
from driverforge_driver.state import variables
from driverforge_host.ports import Commands, Host, Result

# make prints the compiler's flags, in which words like "error" stand as well
ERROR_LINE = re.compile(
    r"^(?!.*CFLAGS=).*(?:\berror: |\berror, |fatal error|\*\*\* |Error 127|: not found)", re.IGNORECASE
)
# What glibc's dynamic linker says of a program that it cannot start (elf/dl-error-skeleton.c, dl-version.c)
NOT_STARTED = re.compile(
    r"^(?P<program>\S+): (?:error while loading shared libraries: (?P<library>[^:\s]+): .*"
    r"|/\S+: version `(?P<version>\S+)' not found \(required by .*)$",
    re.MULTILINE,
)
SHOWN_ERRORS = 5
# Seconds. The slowest compilation that we saw, on a busy machine of two cores, took a seventh of it.
TIMEOUT = 2 * 3600.0
# The host module of vGPU: where its sources are there, the same make builds it. No image of ours carries it.
LEFT_OUT = "nvidia-vgpu-vfio"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """How to compile."""

    # with NVIDIA's own conftest, and every object from its source
    plain: bool = False
    # folder of what earlier builds found out and compiled, '' for none
    kept: str = ""
    # for a real-time kernel, too
    realtime: bool = False


def check_compiler(commands: Commands, compiler: Compiler, kernel: KernelRelease) -> str:
    """The first line of the compiler's --version. Raises Unsupported where the compiler is not in this image.

    Another version than the kernel's own compiler is a warning.
    """
    if commands.find(compiler.program) is None:
        raise Unsupported(
            f"compiler missing: kernel {kernel} wants {compiler.program}",
            details=[f"the kernel was compiled with: {compiler.built_with}"],
            resolution=f"use an image that has it, or install the package {compiler.package} in this one",
        )
    version = commands.run([compiler.program, "--version"]).stdout.partition("\n")[0].strip()
    if compiler.built_with and compiler.built_with.split()[-1] not in version:
        log.warning(
            "the compiler differs from the kernel's own",
            compiler=version,
            kernel_compiler=compiler.built_with,
        )
    return version


def make_arguments(
    headers: KernelHeaders, *, work: str, jobs: int, realtime: bool = False
) -> tuple[str, ...]:
    """The command line of make, with all that NVIDIA's Kbuild and the kernel's have to be told.

    make hands it on to conftest.sh as environment.
    """
    tree = headers.tree
    return (
        "make",
        f"-j{jobs}",
        "modules",
        f"SYSSRC={tree.source}",
        f"SYSOUT={tree.output}",
        f"CC={headers.compiler.program}",
        # __FILE__ names the same places in every build: the result must not depend on the work folder, and
        # of two kernels with the same headers objects are the same. Debug information would be stripped.
        (
            f"KCFLAGS=-ffile-prefix-map={work}=/usr/src/nvidia -ffile-prefix-map={tree.root}= "
            f"-ffile-prefix-map={tree.source}=/usr/src/linux-headers -g0"
        ),
        # The headers of 6.12 carry a vmlinux that holds BTF alone, and Kbuild calls pahole for every module
        # then. The result must be the same with pahole and without.
        "CONFIG_DEBUG_INFO_BTF_MODULES=",
        # NVIDIA's check compares the patch level too, but distributions rebuild their compilers within a
        # release. We warn ourselves.
        "IGNORE_CC_MISMATCH=1",
        f"NV_EXCLUDE_KERNEL_MODULES={LEFT_OUT}",
        *((f"{variables.IGNORE_REALTIME}=1",) if realtime else ()),
    )


def compile_modules(
    host: Host,
    headers: KernelHeaders,
    *,
    source: str,
    work: str,
    jobs: int,
    log_path: str,
    epoch: int | None,
    ways: Ways,
) -> str:
    """Compile the sources of the folder `source` in the folder `work`.

    Returns `work`, which then holds the .ko files.

    The log is written to `log_path` whatever the result. `epoch` is the time that the build takes for the
    present one, in seconds since 1970. Raises CommandFailed with the compiler's first errors, StorageFailed,
    TemporaryFailure.
    """
    _fill_work_folder(host, source, work)
    make = make_arguments(headers, work=work, jobs=jobs, realtime=ways.realtime)
    prepared = None
    if not ways.plain:
        prepared = shortcuts.prepare(host, headers, make, source=source, work=work, jobs=jobs, kept=ways.kept)
        if prepared is None:
            _fill_work_folder(host, source, work)
    result = _make(host, (*make, *prepared.arguments) if prepared else make, work, epoch)
    if prepared and (changed := shortcuts.written_anew(host, prepared, work)):
        log.warning("make probed again: everything is compiled once more, the plain way", changed=changed)
        _fill_work_folder(host, source, work)
        prepared, result = None, _make(host, make, work, epoch)
    output = result.stdout + result.stderr
    written = _keep_log(host, log_path, output)
    if not result.ok:
        raise compile_error(output, result.status, written)
    if prepared:
        shortcuts.finish(prepared, headers, work)
    return work


def _fill_work_folder(host: Host, source: str, work: str) -> None:
    """An empty folder with the sources."""
    host.files.remove_tree(work)
    host.files.make_dirs(work)
    # Links, since the prebuilt objects alone have 190 MB. Kbuild only ever adds files.
    host.commands.run(["cp", "--recursive", "--symbolic-link", f"{host.files.resolve(source)}/.", work])
    shortcuts.drop_debug_information(host, work)


def _make(host: Host, make: tuple[str, ...], work: str, epoch: int | None) -> Result:
    stamp = (
        {"KBUILD_BUILD_TIMESTAMP": f"@{epoch}", "SOURCE_DATE_EPOCH": str(epoch)} if epoch is not None else {}
    )
    return host.commands.run(make, check=False, cwd=work, env=stamp, timeout=TIMEOUT, stream=True)


def _keep_log(host: Host, path: str, output: str) -> str:
    """Write the log. Returns its path, or why it was not kept.

    A full disk must not hide the compiler's own message.
    """
    try:
        host.files.make_dirs(path.rpartition("/")[0])
        host.files.write_atomic(path, output.encode())
    except DriverforgeError as error:
        return f"not kept: {error.brief}"
    return path


def first_errors(output: str) -> tuple[str, ...]:
    """The first lines of a build log that say what went wrong; its last lines where none does.

    Each message is shown once.
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    found: dict[str, str] = {}
    for line in lines:
        if ERROR_LINE.match(line):
            # An error in a header comes again for every file that includes it.
            found.setdefault(line.partition("error: ")[2] or line, line)
    causes = [line for line in found.values() if "***" not in line]
    return tuple(causes[:SHOWN_ERRORS] or list(found.values())[:SHOWN_ERRORS] or lines[-SHOWN_ERRORS:])


def compile_error(output: str, status: int, log_path: str) -> DriverforgeError:
    """The error for a make that failed, by what its log says."""
    details = [f"make ended with status {status}", *first_errors(output), f"the whole log: {log_path}"]
    if "No space left on device" in output:
        return StorageFailed(
            "disk full while compiling",
            details=details,
            resolution="free space in the work folder (df -h), or name another one with --work-dir",
        )
    if re.search(r"Killed signal terminated program|virtual memory exhausted|Cannot allocate memory", output):
        return TemporaryFailure(
            "out of memory while compiling",
            details=details,
            resolution="raise the memory limit, or compile with fewer jobs (-j1 needs about 0.6 GiB)",
        )
    if (found := NOT_STARTED.search(output)) is not None:
        return _not_started(found, details)
    return CommandFailed(
        "the kernel modules do not compile",
        details=details,
        resolution="use another driver branch or kernel, or a precompiled image for this kernel",
    )


def _not_started(said: re.Match[str], details: list[str]) -> Unsupported:
    """The error for a program of the headers that lacks a library: another driver would need it too."""
    program, library = said["program"].rpartition("/")[2], said["library"]
    return Unsupported(
        f"a build tool cannot be started: {program} needs {library or said['version']}",
        details=[said[0], *details],
        resolution=f"install the package that has {library} where it compiles: in an image by `tools: "
        "{jit: [...]}` of the system's row in your matrix"
        if library
        else "compile in an image of the system that the header packages are made for: theirs is newer",
    )
