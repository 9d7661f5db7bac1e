"""What a failed compilation tells: the compiler's own first errors, out of real build logs."""

from __future__ import annotations

import pytest

from driverforge_core.errors import CommandFailed, StorageFailed, TemporaryFailure, Unsupported
from driverforge_driver.compile.compiler import compile_error, first_errors

# open 550.163.01 against 6.12.107+deb13-cloud-amd64, gcc 14.2 (excerpt)
RESIZE = """NV_CONFTEST_CFLAGS=-std=gnu11 -Werror=implicit-function-declaration -Wno-error
 CONFTEST: dma_fence_set_error
 CONFTEST: fence_set_error
  CC [M]  /w/build/t-open550-6.12.107/nvidia/nv-pci.o
/w/build/t-open550-6.12.107/nvidia/nv-pci.c: In function ‘nv_resize_pcie_bars’:
/w/build/t-open550-6.12.107/nvidia/nv-pci.c:237:9: error: too few arguments to function ‘pci_resize_resource’
  237 |     r = pci_resize_resource(pci_dev, NV_GPU_BAR1, requested_size);
      |         ^~~~~~~~~~~~~~~~~~~
/usr/src/linux-headers-6.12.107+deb13-common/include/linux/pci.h:1421:18: note: declared here
make[4]: *** [/usr/src/linux-headers-6.12.107+deb13-common/scripts/Makefile.build:234: nvidia/nv-pci.o] \
Error 1
make[4]: *** Waiting for unfinished jobs....
make: *** [Makefile:140: modules] Error 2
"""

# open 550.163.01 against 7.2.13+deb14-cloud-amd64, gcc 16 (excerpt): one header's error, for each file that
# includes it
FLAGS = """././common/inc/nv-mm.h:315:25: error: ‘struct vm_area_struct’ has no member named ‘__vm_flags’; \
did you mean ‘vm_flags’?
././common/inc/nv-mm.h:327:25: error: ‘struct vm_area_struct’ has no member named ‘__vm_flags’; did you mean \
‘vm_flags’?
././common/inc/nv-time.h:145:9: error: implicit declaration of function ‘in_irq’ \
[-Wimplicit-function-declaration]
././common/inc/nv-mm.h:315:25: error: ‘struct vm_area_struct’ has no member named ‘__vm_flags’; did you mean \
‘vm_flags’?
nvidia/nv-pci.c:237:9: error: too few arguments to function ‘pci_resize_resource’; expected 4, have 3
make: *** [Makefile:140: modules] Error 2
"""


def test_the_compilers_error_and_where_the_log_is() -> None:
    error = compile_error(RESIZE, 2, "/var/log/driverforge/build.log")
    assert isinstance(error, CommandFailed)
    assert error.details == (
        "make ended with status 2",
        (
            "/w/build/t-open550-6.12.107/nvidia/nv-pci.c:237:9: error: too few arguments to function "
            "‘pci_resize_resource’"
        ),
        "the whole log: /var/log/driverforge/build.log",
    )


def test_each_message_once() -> None:
    assert [line.partition("error: ")[2][:12] for line in first_errors(FLAGS)] == [
        "‘struct vm_a",
        "implicit dec",
        "too few argu",
    ]


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        ("/bin/sh: 1: pahole: not found\nmake[1]: *** [x] Error 127\n", "/bin/sh: 1: pahole: not found"),
        (
            "make[1]: *** No rule to make target 'modules'.  Stop.\n",
            "make[1]: *** No rule to make target 'modules'.  Stop.",
        ),
        ("one\ntwo\n\n", "two"),
    ],
)
def test_logs_without_a_compiler_error(log: str, shown: str) -> None:
    assert shown in first_errors(log)


@pytest.mark.parametrize(
    ("said", "brief", "advice"),
    [
        # sign-file and resolve_btfids of linux-kbuild-7.2.12+deb13, started where only libc of Debian 12 is
        (
            (
                "scripts/sign-file: error while loading shared libraries: libcrypto.so.3: cannot open shared "
                "object file: No such file or directory"
            ),
            "a build tool cannot be started: sign-file needs libcrypto.so.3",
            "the package that has libcrypto.so.3",
        ),
        (
            (
                "tools/bpf/resolve_btfids: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' "
                "not found (required by tools/bpf/resolve_btfids)"
            ),
            "a build tool cannot be started: resolve_btfids needs GLIBC_2.38",
            "the system that the header packages are made for",
        ),
    ],
)
def test_a_library_that_a_tool_of_the_headers_lacks_is_named(said: str, brief: str, advice: str) -> None:
    log = f"  MODPOST Module.symvers\n{said}\nmake[1]: *** [scripts/Makefile.modfinal:57: nv.ko] Error 127\n"
    error = compile_error(log, 2, "/var/log/driverforge/build.log")
    assert isinstance(error, Unsupported)
    assert (error.brief, error.details[0]) == (brief, said)
    assert advice in error.resolution
    assert "another driver" not in error.resolution


def test_a_full_disk_is_told_apart() -> None:
    log = (
        "/tmp/ccEfoIMr.s: Fatal error: can't write 30 bytes to section .text of nv.o: 'No space left "
        "on device'\nmake: *** [nv.o] Error 1\n"
    )
    error = compile_error(log, 2, "not kept: no space left while writing /var/log/x")
    assert isinstance(error, StorageFailed)
    assert error.brief == "disk full while compiling"
    assert any("No space left on device" in line for line in error.details)
    assert "--work-dir" in error.resolution


def test_the_kernels_memory_killer_is_told_apart() -> None:
    error = compile_error(
        "gcc-12: fatal error: Killed signal terminated program cc1\ncompilation terminated.\n", 2, "/log"
    )
    assert isinstance(error, TemporaryFailure)
    assert "-j1" in error.resolution
