"""The command line of `driverforge`. A command's module is imported when that command is asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from io import StringIO
from typing import Any

import click

from driverforge_build.commands.shared.output import report, say, say_failure, wants_json
from driverforge_core import __version__
from driverforge_core.errors import DriverforgeError, StorageFailed, UsageError

COMMANDS: dict[str, str] = {
    "matrix": "check and show the catalogue of what can be built",
    "lock": "find kernels, packages and NVIDIA's archives, and pin them",
    "watch": "tell what is new since the lock: kernels, drivers, branches",
    "plan": "show each cell with its verdict: build, exists, blocked, unknown",
    "explain": "show the evidence behind one cell's verdict",
    "generate": "write Dockerfiles, contexts and docker-bake.json",
    "build": "build the planned images",
    "verify": "boot the kernels of built images, and insert their modules",
    "push": "push built images to a registry",
    "attestations": "show what is attached to an image in a registry: SBOM, provenance, test results",
    "index": "let the moving tags stand for all architectures; tell which kernels are covered",
    "page": "show which images there are as one HTML page",
    "mirror": "pin what a closed cluster needs, with reasons; fill its mirror, look after it",
}


STATUSES: dict[int, str] = {
    0: "done, or nothing to do",
    1: "a cell failed or cannot be had; `lock --check`: the file would change; `watch`: something is new",
    64: "usage: the command line asks for something that cannot be",
    65: "input: a matrix, a lock file, a keyring or another file is wrong, or a download has no pin",
    69: "not there: an engine, a mirror, a registry, a program; or a signature that is not trusted",
    70: "a program that was run failed: docker, buildx, a credential helper, a signer",
    74: "reading or writing failed: disk full, standard output closed",
    75: "not now: no answer, a busy server, another build in the same folder; try again later",
    77: "not permitted: a registry does not accept the login",
    78: "the parts do not fit: a compression that this Python cannot read, no builder installed",
    130: "interrupted",
    141: "whoever read the output has gone",
}
"""Every exit status of every command; `docs/failures.md` has the same."""


class _ReaderGone(Exception):
    """Whoever read our output has gone. No OSError: click would end the program with 1."""


@contextmanager
def _output() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise _ReaderGone from error


class LazyGroup(click.Group):
    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with _output():  # of --help and --version
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _output():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"driverforge_build.commands.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit status"):
            formatter.write_dl([(str(status), what) for status, what in STATUSES.items()])


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120}
)
@click.version_option(__version__, prog_name="driverforge")
def cli() -> None:
    """Turn matrix.yaml (OS x kernel x driver branch) into driver images."""


def run(argv: list[str]) -> int:
    """Run one command line; prints expected errors on stderr, with --json on stdout too, and returns the exit
    status.
    """
    as_json = wants_json(argv)
    try:
        if sys.stdout is None:
            raise StorageFailed(
                "standard output is closed", resolution="open it; >/dev/null throws the output away"
            )
        status = cli.main(args=argv, prog_name="driverforge", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Abort:
        if as_json:
            say_failure({"brief": "interrupted", "details": [], "resolution": "", "exit_status": 130})
        return 130
    except click.ClickException as error:
        return _report_usage(error, as_json=as_json)
    except DriverforgeError as error:
        return report(error, as_json=as_json)
    except (BrokenPipeError, _ReaderGone):
        _drop_stdout()
        # as a program that SIGPIPE ended: whoever read our output has gone
        return 141
    except OSError as error:
        # a library's own error that is an OSError by descent: no file of ours
        if error.errno is None:
            raise
        if error.filename is None:
            _drop_stdout()
        failed = StorageFailed(
            f"{error.filename or 'standard output'}: {error.strerror}",
            resolution="free some space, or give another place; then run this again",
        )
        return report(failed, as_json=as_json)
    return status if isinstance(status, int) else 0


def _report_usage(error: click.ClickException, *, as_json: bool) -> int:
    """click's own message, which has the usage line above it."""
    shown = StringIO()
    error.show(file=shown)
    say(shown.getvalue().rstrip("\n"), err=True)
    if as_json:
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "driverforge"
        say_failure(UsageError(error.format_message(), resolution=f"{path} --help").document())
    return 64


def _drop_stdout() -> None:
    """What is still buffered has nowhere to go; the interpreter would try again at its end, and complain."""
    # in a test, standard output is no file
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def main() -> None:
    sys.exit(run(sys.argv[1:]))
