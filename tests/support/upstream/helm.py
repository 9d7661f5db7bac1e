"""Helm: how it is compiled. What only lists the programs needs no package beside the standard library."""

from __future__ import annotations

from pathlib import Path

from support import gobuild

VERSION = "4.3.1"
MODULE = "helm.sh/helm/v4"
RECIPE = gobuild.Recipe(
    name="helm",
    what=f"Helm {VERSION}",
    requires={MODULE: f"v{VERSION}"},
    packages={"helm": f"{MODULE}/cmd/helm"},
    flags=gobuild.QUICK,
)


def program() -> Path:
    """Helm, from the cache; compiled where it has none. Raises Unavailable where it cannot be had."""
    return gobuild.programs(RECIPE) / "helm"
