"""The share of the tests that the oldest Python runs is decided by what a module imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.oldpython import needs_newer_python


@pytest.mark.parametrize(
    ("source", "newer"),
    [
        ("import json\nfrom driverforge_core.kernel import KernelRelease\n", False),
        ("import pytest\nfrom hypothesis import given\nfrom support.fakes.mockpath import MockPath\n", False),
        ("from driverforge_build.lock.pins import Lock\n", True),
        ("def test() -> None:\n    import yaml\n", True),
        ("import tomllib\n", True),
        ("from driverforge_oci.client import RegistryClient\n", True),
        ("from driverforge_toolkit.runtime import journal\n", True),
        ("from driverforge_toolkit import runtime\n", True),
        ("from driverforge_toolkit.commands import runtime\n", True),
        ("PROGRAM = 'from driverforge_build.cli import main'\n", True),  # for a child process
        ('PROGRAM = ROOT / "hack/lib/run.py"\n', True),
        ("PROGRAM = \"argv[0] = 'nvidia-validator'; from driverctl.cli import main\"\n", True),
        ("PROGRAM = \"argv[0] = 'nvidia-driver'; from driverctl.cli import main\"\n", False),
        ("from support.machines import pod\n", True),  # which reads YAML
        ("from support.machines.pod import run\n", True),
    ],
)
def test_by_imports(tmp_path: Path, source: str, newer: bool) -> None:
    module = tmp_path / "test_it.py"
    module.write_text(source)
    assert needs_newer_python(module) is newer


@pytest.mark.parametrize("tier", ["unit", "tree"])
def test_what_is_left_to_the_oldest_python_is_not_skipped_there(tier: str) -> None:
    """A module that a newer Python leaves out would run nowhere."""
    modules = (Path(__file__).parents[1] / tier).glob("test_*.py")
    left = [module for module in modules if not needs_newer_python(module)]
    assert left
    asks = ("version_info < " + "(3, 11)", "importorskip" + "(")
    assert [module.name for module in left if any(words in module.read_text() for words in asks)] == []
