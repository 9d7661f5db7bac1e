"""The command line of `driverctl`, and the names that NVIDIA's operator calls.

A subcommand's module is imported only when it runs: the startup probe calls this program every ten seconds.
"""

from __future__ import annotations

import sys

from driverctl.halves import HALVES, SUBCOMMANDS

# type checkers take it as true; typing itself costs the probe more than the rest of its imports together
TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn, Protocol

    from driverforge_core.errors import DriverforgeError
    from driverforge_host.ports import Host

    class CommandModule(Protocol):
        def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...
        def run(self, args: argparse.Namespace, host: Host) -> int: ...


# NVIDIA's programs; they exit 1 on any failure, and callers of their names get the same
NVIDIAS = ("nvidia-driver", "nvidia-toolkit", "nvidia-validator", "driver-manager")


def lacking(half: str) -> list[str]:
    """What a half needs and this installation does not have; empty where its commands run."""
    from importlib.util import find_spec

    return [name for name in HALVES[half][0] if find_spec(name) is None]


def absence(half: str) -> str:
    """What the list of commands adds to those of a half that cannot run here, '' where it can."""
    missing = lacking(half)
    if half in missing:
        return f" (not here: in {HALVES[half][1]})"
    return f" (not here: Python has no {', '.join(missing)})" if missing else ""


def load_command(name: str) -> CommandModule:
    """The module of a subcommand.

    Raises Unsupported where its half is not in this image, or a package that the half needs is missing.
    """
    from importlib import import_module

    half, _ = SUBCOMMANDS[name]
    if missing := lacking(half):
        from driverforge_core.errors import Unsupported

        evidence = [f"Python {sys.version.split()[0]} has no {', '.join(missing)}"]
        if half in missing:
            raise Unsupported(
                f"driverctl {name} is not part of this image",
                details=evidence,
                resolution=f"run `driverctl {name}` from {HALVES[half][1]}",
            )
        raise Unsupported(
            f"driverctl {name} lacks Python packages in this installation",
            details=evidence,
            resolution="pip install '.[toolkit]' in a checkout of driverforge, with Python 3.11 or newer",
        )
    module: CommandModule = import_module(f"{half}.commands.{name}")
    return module


def build_parser(wanted: str | None) -> argparse.ArgumentParser:
    """The parser with every subcommand's name and help.

    Only the `wanted` one has its arguments, so only its module is imported.
    """
    import argparse

    from driverforge_core import __version__
    from driverforge_core.errors import UsageError

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise UsageError(
                f"{self.prog}: {message}", details=[self.format_usage()], resolution=f"{self.prog} --help"
            )

        def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
            """Report an unknown argument with the subcommand's usage: the parser above would show its own."""
            found, unknown = super().parse_known_args(args, namespace)
            if unknown:
                self.error(f"unrecognized arguments: {' '.join(unknown)}")
            return found, unknown

    parser = Parser(
        prog="driverctl",
        description="Put the NVIDIA driver of this image onto the node, and configure its container runtime.",
    )
    parser.add_argument("--version", action="version", version=f"driverctl {__version__}")
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="one event a line, as key=value text or as JSON",
    )
    sub = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    absences = {half: absence(half) for half in HALVES}
    for name, (half, summary) in SUBCOMMANDS.items():
        child = sub.add_parser(
            name,
            help=summary + absences[half],
            description=summary[0].upper() + summary[1:] + ".",
        )
        if name == wanted:
            load_command(name).add_arguments(child)
    return parser


def wanted_command(argv: Sequence[str]) -> str | None:
    return next((word for word in argv if word in SUBCOMMANDS), None)


def run(argv: Sequence[str], make_host: Callable[[], Host]) -> int:
    """Parse and run; expected failures raise DriverforgeError."""
    args = build_parser(wanted_command(argv)).parse_args(list(argv))
    from driverforge_core.log import configure

    configure(args.log_format)
    return load_command(args.command).run(args, make_host())


def main() -> None:
    argv = sys.argv[1:]
    if argv[:1] == ["probe"]:
        # repeated every ten seconds while the node may be busy compiling: no argparse, no dataclasses
        from driverforge_host import probe

        sys.exit(probe.main(argv[1:]))
    _show_every_name()
    sys.exit(_status(sys.argv[0].rsplit("/", 1)[-1], argv))


def _show_every_name() -> None:
    """Show a name that is not Unicode text with escapes: a name of a file may have any bytes."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _status(program: str, argv: Sequence[str]) -> int:
    """Run one command line, and return its exit status.

    A failure that is expected is one message on stderr, never a traceback.
    """
    import os

    from driverforge_core.errors import DriverforgeError
    from driverforge_host.adapters.real import real_host

    try:
        if program == "nvidia-driver":
            from driverctl.compatible import driver_arguments

            argv = driver_arguments(argv)
        elif program == "nvidia-toolkit":
            from driverctl.compatible import toolkit_arguments

            argv = toolkit_arguments(argv, os.environ)
        elif program == "nvidia-validator":
            argv = ["validate", *argv]
        elif program == "driver-manager":
            argv = ["manager", *argv]
        status = run(argv, real_host)
        if sys.stdout is not None:
            sys.stdout.flush()
    except DriverforgeError as error:
        return _failed(program, argv, error)
    except BrokenPipeError:
        _drop_stdout()
        return 141  # as a program that SIGPIPE ended: whoever read our output has gone
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        from driverforge_host.adapters.fileops import failure

        _drop_stdout()
        return _failed(
            program, argv, failure(error, f"using {error.filename or 'a file or standard output'}")
        )
    return status


def _failed(program: str, argv: Sequence[str], error: DriverforgeError) -> int:
    print(error.render(), file=sys.stderr)
    status = 1 if program in NVIDIAS else error.exit_code
    if "--json" in argv and sys.stdout is not None:
        import json

        # who reads an answer as JSON reads a failure in the same way
        print(json.dumps({"error": {**error.document(), "exit_status": status}}, indent=2))
    return status


def _drop_stdout() -> None:
    """Throw away what is still buffered.

    It has nowhere to go, and the interpreter would fail again at its end.
    """
    import os

    if sys.stdout is not None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)
