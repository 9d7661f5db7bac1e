"""A stand-in for CRI-O: NOT CRI-O, and it says so. A program of driverforge's tests.

It reads, checks, prints and reloads its configuration by the rules of `crioconfig`, and serves on its socket
what driverctl asks a CRI-O: Version and Status of the runtime interface, GET /config, and pods that are
nothing but their files. As CRI-O does, it starts pods with the handlers that it read at its start, whatever a
SIGHUP brought since (cri-o/cri-o#10202; internal/oci/oci.go), and cannot end one whose handler is gone
(#9521).

    crio [--config F] [--config-dir D] [--default-runtime N] [--runtimes N:P:R] [--listen S]
         [--version | config [--default]]

`$STAND_IN_VERSION` is the version that it plays, `$STAND_IN_SILENT` has it answer no GET /config.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from support.fakes.crioconfig import FOLDER, CrioConfig, Refusal, Version

SAYS = "stand-in for CRI-O (driverforge's tests), not CRI-O"
VALUED = ("config", "config-dir", "default-runtime", "runtimes", "listen")
SHORT = {"-c": "config", "-d": "config-dir"}


@dataclass
class Arguments:
    """A command line: the values of options, and the words that are none."""

    options: dict[str, list[str]] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, argv: list[str]) -> Arguments:
        read, rest = cls(), list(argv)
        while rest:
            name, _, value = rest.pop(0).partition("=")
            key = SHORT.get(name, name.removeprefix("--"))
            if key in VALUED and name.startswith("-"):
                read.options.setdefault(key, []).append(value or rest.pop(0))
            else:
                read.words.append(name)
        return read

    def config(self, version: Version) -> CrioConfig:
        """The configuration by these options. Raises Refusal."""
        named = self.options.get("config")
        folders = self.options.get("config-dir") or [os.environ.get("CONTAINER_CONFIG_DIR") or str(FOLDER)]
        folder = Path(folders[-1])
        found = CrioConfig.loaded(version, Path(named[-1]) if named else None, folder)
        found.override(self.options)
        return found


def main(argv: list[str]) -> int:
    version = tuple(int(part) for part in os.environ["STAND_IN_VERSION"].split("."))
    arguments = Arguments.of(argv)
    if "--version" in arguments.words:
        print(f"crio version {os.environ['STAND_IN_VERSION']}\n{SAYS}")
        return 0
    try:
        config = arguments.config(version)
        if arguments.words[:1] == ["config"]:
            if "--default" in arguments.words:
                config = CrioConfig.built_in(version)
            config.validate(on_execution=False)
            print(config.printed(everything="--default" in arguments.words), end="")
            return 0
        config.validate(on_execution=True)
    except Refusal as error:
        print(f'level=fatal msg="{error}"', file=sys.stderr)
        return 1
    from support.fakes.criodaemon import Crio, serve  # `crio config` goes without a daemon's libraries

    print(f"{SAYS}: {os.environ['STAND_IN_VERSION']}", *config.warnings, sep="\n", flush=True)
    serve(Crio(config, lambda: arguments.config(version)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
