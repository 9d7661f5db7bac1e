"""Where the files are that travel with the program: in a checkout beside the source, in a wheel inside it."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parents[1]


def builtin_matrix() -> Path:
    """The shipped matrix.yaml."""
    return _find("matrix.yaml")


def templates() -> Path:
    """The folder with one folder of Dockerfile templates a family."""
    return _find("dockerfiles")


def page() -> Path:
    """The folder with the coverage page's template, style and script."""
    return _PACKAGE / "data" / "page"


def charts() -> dict[str, Path]:
    """The charts that are known by name: a file for each version of NVIDIA's, and the folder of ours."""
    files = sorted((_PACKAGE / "data" / "charts").glob("*.yaml"))
    return {**{file.stem: file for file in files}, "driverforge": _find("charts/driverforge")}


def _find(name: str) -> Path:
    checkout = _CHECKOUT / name
    return (
        checkout
        if (_CHECKOUT / "pyproject.toml").is_file() and checkout.exists()
        else _PACKAGE / "data" / name
    )
