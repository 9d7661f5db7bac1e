"""Where the files that travel with the program are: beside the source in a checkout, inside the package in a wheel."""

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


def _find(name: str) -> Path:
    checkout = _CHECKOUT / name
    return (
        checkout
        if (_CHECKOUT / "pyproject.toml").is_file() and checkout.exists()
        else _PACKAGE / "data" / name
    )
