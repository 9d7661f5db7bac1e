"""What an object was made from, as Kbuild's own files say it."""

from __future__ import annotations

import pytest

from driverforge_driver.compile.objects import files_read

COMMAND_FILE = """savedcmd_{target} := gcc-12 -c -o {target} {source}

source_{target} := {source}

deps_{target} := \\
    $(wildcard include/config/SMP) \\
  /k/source/include/linux/mm.h \\
  {generated} \\

{target}: $(deps_{target})
"""


@pytest.mark.parametrize(
    ("target", "source", "generated", "folder"),
    [
        ("/work/nvidia/nv.o", "/work/nvidia/nv.c", "include/generated/rustc_cfg", "/k/output"),
        ("nvidia/nv.o", "nvidia/nv.c", "common/inc/nv.h", "/work"),
    ],
    ids=["until 6.12 make runs in the kernel's folder", "from 6.13 on in the module's"],
)
def test_relative_paths_are_of_the_folder_that_kbuild_ran_in(
    target: str, source: str, generated: str, folder: str
) -> None:
    text = COMMAND_FILE.format(target=target, source=source, generated=generated)
    read = files_read(text, output="/k/output", work="/work")
    assert read is not None
    assert set(read) == {
        "/work/nvidia/nv.c",
        "/k/source/include/linux/mm.h",
        f"{folder}/{generated}",
        "/k/output/include/generated/autoconf.h",
    }


def test_what_was_linked_is_no_object_of_a_source() -> None:
    assert files_read("savedcmd_nvidia.o := ld -r -o nvidia.o a.o\n", output="/k", work="/w") is None
