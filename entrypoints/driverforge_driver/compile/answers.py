"""What conftest.sh found out about a kernel, as a text beside the modules that were made of it.

diff(1) shows what changed between two kernels, or two compilers: there is a line for each macro, by its name,
and the release is in none.
"""

from __future__ import annotations

from driverforge_core.image import ANSWERS_NAME
from driverforge_driver.compile.conftest import CATEGORIES
from driverforge_host.ports import Files


def write_answers(files: Files, work: str, stage: str) -> None:
    """Put the answers of the build in `work`, whoever asked, into the folder `stage`; no file without any."""
    lines = set()
    for name in ("headers", *CATEGORIES):
        path = f"{work}/conftest/{name}.h"
        if files.exists(path):
            lines |= {
                line
                for line in files.read_text(path).splitlines()
                if line.startswith(("#define ", "#undef "))
            }
    if lines:
        text = "".join(f"{line}\n" for line in sorted(lines, key=_macro))
        files.write_atomic(f"{stage}/{ANSWERS_NAME}", text.encode())


def _macro(line: str) -> tuple[str, str]:
    return line.split()[1], line
