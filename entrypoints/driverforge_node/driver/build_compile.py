"""Run the compiler, and read its log when it fails."""

from __future__ import annotations

import re

from driverforge_core.errors import (
    CommandFailed,
    DriverforgeError,
    StorageFailed,
    TemporaryFailure,
    Unsupported,
)
from driverforge_core.kernel import KernelRelease
from driverforge_node import log
from driverforge_node.driver.build_headers import Headers
from driverforge_node.family import Compiler
from driverforge_node.host.ports import Commands, Host

ERROR_LINE = re.compile(
    r"^(?!.*CFLAGS=).*(?:\berror: |\berror, |fatal error|\*\*\* |Error 127|: not found)", re.IGNORECASE
)
SHOWN_ERRORS = 5
TIMEOUT = 2 * 3600.0  # seconds; the slowest seen, on a busy machine of two cores, took 1/7 of it
# vGPU's host module is built from the same folder where its sources are there; no image of ours carries it
LEFT_OUT = "nvidia-vgpu-vfio"


def check_compiler(commands: Commands, compiler: Compiler, kernel: KernelRelease) -> str:
    """The compiler's own first line of --version. Raises Unsupported when it is not in this image."""
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


def make_arguments(headers: Headers, *, work: str, jobs: int) -> tuple[str, ...]:
    tree = headers.tree
    return (
        "make", f"-j{jobs}", "modules",
        f"SYSSRC={tree.source}", f"SYSOUT={tree.output}", f"CC={headers.compiler.program}",
        # __FILE__ and debug information name places that every build shares, so that the result does not depend on the work folder
        f"KCFLAGS=-ffile-prefix-map={work}=/usr/src/nvidia -ffile-prefix-map={tree.root}=",
        # 6.12 headers ship a vmlinux that holds BTF only, and Kbuild then calls pahole for every module: with it or without, one result
        "CONFIG_DEBUG_INFO_BTF_MODULES=",
        # NVIDIA compares the patch level too; distributions rebuild compilers within a release (we warn ourselves)
        "IGNORE_CC_MISMATCH=1",
        f"NV_EXCLUDE_KERNEL_MODULES={LEFT_OUT}",
    )  # fmt: skip


def compile_modules(
    host: Host, headers: Headers, *, source: str, work: str, jobs: int, log_path: str, epoch: int | None
) -> str:
    """Compile the sources in `source` with a folder of links to them as the work folder; the log is written whatever the result.

    Returns `work`, which then holds the .ko files. Raises CommandFailed with the compiler's first errors, StorageFailed, TemporaryFailure.
    """
    host.files.make_dirs(work)
    # links: the prebuilt objects alone are 190 MB, and Kbuild only ever adds files
    host.commands.run(["cp", "--recursive", "--symbolic-link", f"{host.files.resolve(source)}/.", work])
    stamp = (
        {"KBUILD_BUILD_TIMESTAMP": f"@{epoch}", "SOURCE_DATE_EPOCH": str(epoch)} if epoch is not None else {}
    )
    result = host.commands.run(
        make_arguments(headers, work=work, jobs=jobs),
        check=False,
        cwd=work,
        env=stamp,
        timeout=TIMEOUT,
        stream=True,
    )
    output = result.stdout + result.stderr
    kept = _keep_log(host, log_path, output)
    if not result.ok:
        raise failure(output, result.status, kept)
    return work


def _keep_log(host: Host, path: str, output: str) -> str:
    """Where the whole log is. A full disk must not hide the compiler's own message."""
    try:
        host.files.make_dirs(path.rpartition("/")[0])
        host.files.write_atomic(path, output.encode())
    except DriverforgeError as error:
        return f"not kept: {error.brief}"
    return path


def first_errors(output: str) -> tuple[str, ...]:
    """The first lines of a build log that say what went wrong, one a message; its last lines where none does."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    found: dict[str, str] = {}
    for line in lines:
        if ERROR_LINE.match(line):
            found.setdefault(
                line.partition("error: ")[2] or line, line
            )  # a header's error comes again for every file that includes it
    causes = [line for line in found.values() if "***" not in line]
    return tuple(causes[:SHOWN_ERRORS] or list(found.values())[:SHOWN_ERRORS] or lines[-SHOWN_ERRORS:])


def failure(output: str, status: int, log_path: str) -> DriverforgeError:
    """The error for a failed make, by what its log says."""
    details = [f"make ended with status {status}", *first_errors(output), f"the whole log: {log_path}"]
    if "No space left on device" in output:
        return StorageFailed(
            "disk full while compiling",
            details=details,
            resolution="free space in the work folder (df -h), or give another one with --work-dir",
        )
    if re.search(r"Killed signal terminated program|virtual memory exhausted|Cannot allocate memory", output):
        return TemporaryFailure(
            "out of memory while compiling",
            details=details,
            resolution="raise the memory limit, or compile with fewer jobs (-j1 needs about 0.6 GiB)",
        )
    return CommandFailed(
        "the kernel modules do not compile",
        details=details,
        resolution="use another driver branch or kernel, or a precompiled image for this kernel",
    )
