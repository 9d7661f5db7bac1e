"""Options that several commands of `driverforge` share, so that they read and behave the same everywhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from driverforge_build.app.prepare import FailOn
    from driverforge_build.plan.shards import ShardWanted
    from driverforge_build.report.cases import Case

Command = Callable[..., object]
Option = Callable[[Command], Command]
"""What a decorator of click's is to a command."""
REGISTRY = "[http://]HOST[:PORT]/PATH"


def gathered(name: str, kind: Callable[..., object], *options: Option) -> Option:
    """These options, and what was said with others before them, as one argument `name` of the command.

    `kind` makes it: its parameters are the words that it takes, and those with a default may be missing.
    mypy knows what that gives, and so what of the command line goes where.
    """
    wanted = signature(kind).parameters

    def decorated(function: Command) -> Command:
        @wraps(function)
        def merged(**words: object) -> object:
            taken = {word: words.pop(word) for word in wanted if word in words}
            return function(**words, **{name: kind(**taken)})

        command: Command = merged
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


def _shard(_: click.Context, parameter: click.Parameter, value: str | None) -> ShardWanted | None:
    if value is None:
        return None
    from driverforge_build.plan.shards import ShardWanted

    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", value, re.ASCII)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise click.BadParameter(f"{value!r} is not NUMBER/COUNT, e.g. 3/12", param=parameter)
    return ShardWanted(number=int(found[1]), of=int(found[2]))


shard_option = click.option(
    "--shard",
    metavar="N/M",
    callback=_shard,
    help="Only the Nth of M parts of what the plan would build, by estimated work. M jobs with the same "
    "matrix, lock and selection build all of it, whatever they push meanwhile.",
)


def times_option(*, written: bool) -> Option:
    """--times, that a command reads; with `written` it adds its own."""
    told = "Add the time of each image that was built to this file: `plan --times` balances shards by it."
    read = "How long images took to build, as `build --times` writes it, or a folder of such files; may be "
    return click.option(
        "--times",
        "times_paths" if not written else "times_path",
        multiple=not written,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help=told if written else read + "repeated. Unknown cells are estimated.",
    )


def jobs_option(told: str) -> Option:
    """--jobs; the command gets it as `workers`."""
    return click.option(
        "-j",
        "--jobs",
        "workers",
        type=click.IntRange(1, 64),
        default=2,
        show_default=True,
        help=told,
    )


def pairs(
    name: str, example: str = ""
) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], dict[str, str]]:
    """A click callback that turns repeated KEY=VALUE into a dict."""
    shown = example or name.replace("OS", "debian12")

    def callback(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
        out: dict[str, str] = {}
        for value in values:
            key, found, rest = value.partition("=")
            if not (key and found and rest):
                raise click.BadParameter(f"{value!r} is not {name}, e.g. {shown}")
            out[key] = rest
        return out

    return callback


mirror_option = click.option(
    "--mirror",
    "mirrors",
    multiple=True,
    metavar="OS[-ARCH][/SUITE]=URL",
    callback=pairs("OS=URL"),
    help="Package mirror of an OS, or of one architecture or suite. Default: in `lock` what the matrix "
    "or this machine's package manager says, in `build` what the matrix or the base image says. "
    "nvidia=URL is a mirror of NVIDIA's download hosts.",
)
offline_option = click.option("--offline", is_flag=True, help="Use what the cache holds; ask no mirror.")
accept_expired_option = click.option(
    "--accept-expired",
    is_flag=True,
    help="Read suites whose Valid-Until has passed, of a mirror that is frozen on purpose.",
)


def _keyrings(
    _: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> list[tuple[str, Path]]:
    """(OS, FILE) of each, '' where it is for all."""
    found = []
    for value in values:
        os_key, _equals, file = value.rpartition("=")
        # a file's own name may have one
        path = Path(value) if Path(value).is_file() else Path(file)
        if not path.is_file():
            raise click.BadParameter(f"there is no file {file}", param=parameter)
        found.append(("" if path == Path(value) else os_key, path))
    return found


keyring_option = click.option(
    "--keyring",
    "keyrings",
    multiple=True,
    callback=_keyrings,
    metavar="[OS=]FILE",
    help="Public keys that may sign the repositories, of one OS or of all; may be repeated. Default: "
    "what this machine's package manager or the matrix names.",
)
entitlement_option = click.option(
    "--entitlement",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="What opens a subscription's repositories. Red Hat's: NUMBER.pem and NUMBER-key.pem, as in "
    "/etc/pki/entitlement of a registered host. SUSE's: SCCcredentials, as in its "
    "/etc/zypp/credentials.d. Default: what this machine or its container has.",
)


def _fail_on(_: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> frozenset[FailOn]:
    from driverforge_build.app.prepare import FailOn

    found = frozenset(map(FailOn, values))
    if FailOn.NEVER in found and len(found) > 1:
        raise click.BadParameter("`never` stands alone", param=parameter)
    return found


fail_on_option = click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice(["blocked", "unknown", "never"]),
    callback=_fail_on,
    help="Exit 1 where a selected cell has this verdict; may be repeated. `never`: no verdict fails the "
    "run. Default: a cell that --select names in full must be had, and a run that can have no image "
    "at all because cells are unknown fails.",
)
engine_option = click.option(
    "--engine",
    "engine_name",
    type=click.Choice(["docker", "podman", "buildah", "nop"]),
    default="docker",
    show_default=True,
    envvar="DRIVERFORGE_ENGINE",
    help="What builds and keeps images. `nop` writes contexts and says what it would do.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """What CI systems read; true where one is asked for."""

    junit: Path | None
    summary: Path | None

    def __bool__(self) -> bool:
        return bool(self.junit or self.summary)

    def write(self, title: str, cases: Iterable[Case]) -> None:
        """Write what is asked for. Raises StorageFailed."""
        from driverforge_build.junit import write_junit
        from driverforge_build.report.cases import suites
        from driverforge_build.report.summary import append_summary

        everything = list(cases)
        if self.junit:
            write_junit(self.junit, title, suites(everything))
        if self.summary:
            append_summary(self.summary, title, everything)


report_options = gathered(
    "reports",
    Reports,
    click.option(
        "--junit",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Write a JUnit report, a test case for each cell.",
    ),
    click.option(
        "--summary",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        envvar="GITHUB_STEP_SUMMARY",
        help="Add a grid of kernels and drivers in Markdown to FILE. Default: what a GitHub job says.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """Where images are, HOST[:PORT]/PATH; `plain`: its host has no TLS."""

    place: str
    plain: bool = False

    @property
    def plain_hosts(self) -> tuple[str, ...]:
        """Its host where it has no TLS: as clients and engines want to know it."""
        return (self.place.partition("/")[0],) if self.plain else ()


def check_registry(_: click.Context, __: click.Parameter, value: str | None) -> Registry | None:
    """A click callback: 'registry.site/nvidia', with http:// before it where that has no TLS."""
    if value is None:
        return None
    from driverforge_mirror.lists.target import without_scheme

    place, plain = without_scheme(value)
    if "://" in place:
        raise click.BadParameter(f"{value!r} has another scheme than http:// and https://")
    return Registry(place=place, plain=plain)


def check_repository(_: click.Context, __: click.Parameter, value: str) -> str:
    """A click callback: a repository whose tags are ours to choose."""
    if value:
        from driverforge_core.errors import InputError
        from driverforge_oci.reference import Reference

        try:
            named = Reference.parse(value)
        except InputError as error:
            raise click.BadParameter(error.brief) from error
        if named.tag or named.digest:
            raise click.BadParameter(f"{value!r} has a tag or digest; write the repository alone")
    return value


def check_repositories(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    return tuple(check_repository(context, parameter, value) for value in values)


registry_option = click.option(
    "--registry",
    metavar=REGISTRY,
    callback=check_registry,
    help="Where to look for images: HOST[:PORT]/PATH/driver:TAG; http:// where it has no TLS.",
)
advisories_option = click.option(
    "--advisories",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    help="Security advisories of NVIDIA's, a CSAF file or a folder of them (a copy of github.com/NVIDIA/"
    "product-security): drivers with known vulnerabilities are warned of. May be repeated.",
)
cache_option = click.option(
    "--cache-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    metavar="DIR",
    envvar="DRIVERFORGE_CACHE",
    help="Where downloads and indexes are kept. Default: $XDG_CACHE_HOME/driverforge.",
)
json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON document on standard output instead of text; where the command fails, it has an "
    "`error`.",
)
vcs_option = click.option(
    "--vcs-ref",
    default="",
    envvar=["DRIVERFORGE_VCS_REF", "GITHUB_SHA", "CI_COMMIT_SHA"],
    metavar="COMMIT",
    help="Commit of your matrix and lock, for the label `vcs-ref`. Default: what GitHub's or GitLab's "
    "pipeline says.",
)
