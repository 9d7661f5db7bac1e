"""Which test modules are for the oldest Python: those whose imports stay within the driver half.

The driver half of a node runs on Python 3.10 and the standard library. The builder and the toolkit half need
3.11 and packages. The source text decides, through the bench's own modules too, so nothing is listed by hand.
"""

from __future__ import annotations

import ast
import functools
import sys
from pathlib import Path

# set to 1, tests that the oldest Python runs are left to it
ONLY_NEWER = "DRIVERFORGE_ONLY_NEWER"
_TESTS = Path(__file__).resolve().parents[1]
_PACKAGES = (
    "driverforge_core",
    "driverforge_kube",
    "driverforge_host",
    "driverforge_driver",
    "driverctl",
)
# what child processes are told to run: the builder, the toolkit half, and what is in hack/
_CHILDREN = ("driverforge_build", "driverforge_mirror", "'nvidia-validator'", '"hack')
# the same answer from every Python that asks
_SINCE_3_11 = frozenset({"tomllib", "annotationlib", "compression"})
_HAVE = frozenset({"pytest", "_pytest", "hypothesis", "support", *_PACKAGES})


@functools.cache
def needs_newer_python(file: Path) -> bool:
    """Whether a module imports what the driver half does not have.

    It may do so itself, through the bench's modules, or in a child process.
    """
    text = file.read_text()
    if any(one in text for one in _CHILDREN):
        return True
    for name in _imports(file):
        top = name.partition(".")[0]
        if top not in _HAVE and top not in sys.stdlib_module_names - _SINCE_3_11:
            return True
        if top == "support":
            inner = _TESTS / (name.replace(".", "/") + ".py")
            if inner != file and inner.is_file() and needs_newer_python(inner):
                return True
    return False


def _imports(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names
