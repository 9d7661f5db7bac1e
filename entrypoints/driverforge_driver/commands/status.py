"""`driverctl status`: what is loaded, mounted and ready on this node. Reads only."""

from __future__ import annotations

import argparse
import json

from driverforge_driver.state.facts import DriverFacts, Goal
from driverforge_driver.state.observe import observe
from driverforge_driver.state.paths import LOCK
from driverforge_driver.state.wanted_driver import read_wanted
from driverforge_host.ports import Host, describe_holder, text_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace, host: Host) -> int:
    """Exit status 0, whatever there is to show."""
    facts = observe(host, read_wanted(host, Goal.ABSENT))
    content = summary(facts, text_of(host.files, LOCK).strip())
    if args.json:
        print(json.dumps(content, indent=2))
        return 0
    for key, value in content.items():
        lines = value if isinstance(value, list) else [value]
        for line in lines or ["none"]:
            print(f"{key.replace('_', ' '):<14} {line}")
    return 0


def summary(facts: DriverFacts, instance: str) -> dict[str, str | list[str]]:
    """What to show, in the order to show it."""
    loaded = facts.loaded.values()
    return {
        "kernel": facts.release,
        "driver": facts.loaded["nvidia"].version if "nvidia" in facts.loaded else "not loaded",
        "module_type": facts.loaded_type or "none",
        "modules": [f"{m.name} {m.version or '-'} ({m.refcount} references)" for m in loaded],
        "gpus": [
            f"{g.address} {g.vendor:04x}:{g.device:04x} driver {g.driver or 'none'}" for g in facts.gpus
        ],
        "root": facts.root.value,
        "probe": facts.daemons_status or "no status",
        "instance": instance or "none",
        "held_by": [describe_holder(holder) for holder in facts.holders],
        "daemons": [f"{d.name} {d.pid}" for d in facts.daemons],
        "module_sets": [
            f"{s.place.value}: {s.modules.module_type} {s.modules.driver} for {s.modules.kernel}"
            for s in facts.sources
        ],
    }
