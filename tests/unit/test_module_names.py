"""Within a program one module name means one thing (docs/architecture.md, "Names")."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHARED = ("entrypoints/driverforge_core", "entrypoints/driverforge_oci", "entrypoints/driverforge_kube")
PROGRAMS = {
    "driverforge": ("builder/driverforge_build", "builder/driverforge_mirror"),
    "driverctl": (
        "entrypoints/driverctl",
        "entrypoints/driverforge_host",
        "entrypoints/driverforge_driver",
        "entrypoints/driverforge_toolkit",
    ),
    "driverforge-operator": ("entrypoints/driverforge_operator",),
}
FLOORS = {"app", "commands", "adapters", "ports"}
"""Each package of a program may have these."""


def modules(package: Path) -> Iterator[Path]:
    """Each module and folder of a package, from the package's own folder."""
    for path in sorted(package.rglob("*")):
        known = path.suffix == ".py" or (path / "__init__.py").exists()
        if known and path.stem not in ("__init__", "__main__"):
            yield path.relative_to(package)


def meanings(packages: tuple[str, ...]) -> dict[str, list[str]]:
    """What each name stands for, in words that are the same where the thing is.

    A command's module, the life of that command and the room that it is about are one thing, and so are a
    port and its adapter.
    """
    listed = [(package, module) for package in (*packages, *SHARED) for module in modules(ROOT / package)]
    commands = {
        module.stem for _, module in listed if module.parts[0] == "commands" and len(module.parts) > 1
    }
    found: dict[str, list[str]] = {}
    for package, module in listed:
        floor = module.parts[0] if len(module.parts) > 1 else ""
        meaning = f"{package}/{module}"
        if package not in SHARED and module.stem in commands and floor in ("", "app", "commands"):
            meaning = "the command"
        elif floor in ("ports", "adapters"):
            meaning = "the port"
        found.setdefault(module.stem, []).append(meaning)
    return found


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_module_name_means_one_thing(program: str) -> None:
    found = meanings(PROGRAMS[program])
    assert len(found) > 80
    several = {name: known for name, known in found.items() if len(set(known)) > 1 and name not in FLOORS}
    assert several == {}
