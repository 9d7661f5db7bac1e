"""Command lines of the driver's commands, as their parser gives them."""

from __future__ import annotations

import argparse

from driverctl.cli import build_parser


def arguments(**given: object) -> argparse.Namespace:
    """What `init`, `load`, `unload` and `status` are called with: no option but those that are `given`."""
    plain = vars(build_parser("init").parse_args(["init"]))
    return argparse.Namespace(**{**plain, "json": False, **given})
