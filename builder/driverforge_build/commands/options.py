"""Options that several commands of `driverforge` share, so that they read and behave the same everywhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click
from click.core import ParameterSource

from driverforge_build.advice import LOCK_FILE
from driverforge_build.commands import adapters

if TYPE_CHECKING:
    from driverforge_build.app.prepare import FailOn
    from driverforge_build.plan.shards import ShardWanted

F = TypeVar("F", bound=Callable[..., Any])


def matrix_option(function: F) -> F:
    return click.option(
        "--matrix",
        "matrix_path",
        type=click.Path(path_type=Path, dir_okay=False),
        default=None,
        metavar="FILE",
        help="Your matrix file (it may say `extends: builtin`). Default: the shipped catalogue.",
    )(function)


def lock_option(function: F) -> F:
    return click.option(
        "--lock",
        "lock_path",
        type=click.Path(path_type=Path, dir_okay=False),
        default=LOCK_FILE,
        show_default=True,
        metavar="FILE",
        help="The lock file: every download, pinned by path and sha256.",
    )(function)


def select_options(function: F) -> F:
    """--select, --skip and --cells-from; the command gets `select` with the cells of the file in it."""

    @wraps(function)
    def merged(*, select: tuple[str, ...], cells_from: tuple[str, ...], **rest: Any) -> Any:
        return function(select=(*select, *cells_from), **rest)

    decorated = click.option(
        "--cells-from",
        type=click.File(encoding="utf-8"),
        metavar="FILE",
        callback=listed_cells,
        help="Only the cells of a file, an id a line; - is standard input. As `plan --shards` writes them.",
    )(merged)
    decorated = click.option(
        "--skip", multiple=True, metavar="GLOB", help="Leave out cells whose id matches; may be repeated."
    )(decorated)
    return click.option(
        "--select",
        multiple=True,
        metavar="GLOB",
        help="Only cells whose id matches, e.g. 'debian12-*-jit'; may be repeated.",
    )(decorated)  # type: ignore[return-value]


def listed_cells(_: click.Context, parameter: click.Parameter, file: TextIO | None) -> tuple[str, ...]:
    """The ids of a list; `#` starts a comment. A list of nothing must not select everything."""
    if file is None:
        return ()
    try:
        with file:
            lines = [line.partition("#")[0].strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{file.name} cannot be read: {error}", param=parameter) from error
    cells = tuple(dict.fromkeys(line for line in lines if line))
    if not cells:
        raise click.BadParameter(f"{file.name} names no cell", param=parameter)
    return cells


def _shard(_: click.Context, parameter: click.Parameter, value: str | None) -> ShardWanted | None:
    if value is None:
        return None
    from driverforge_build.plan.shards import ShardWanted

    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", value, re.ASCII)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise click.BadParameter(f"{value!r} is not NUMBER/COUNT, e.g. 3/12", param=parameter)
    return ShardWanted(number=int(found[1]), of=int(found[2]))


def shard_option(function: F) -> F:
    return click.option(
        "--shard",
        metavar="N/M",
        callback=_shard,
        help="Only the Nth of M parts of what the plan would build, by estimated work. M jobs with the same "
        "matrix, lock and selection build all of it, whatever they push meanwhile.",
    )(function)


def times_option(*, written: bool) -> Callable[[F], F]:
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


def _bases(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """OS=REF as a dict, each REF as strict as `base:` in a matrix: it stands in a Dockerfile too."""
    found = pairs("OS=REF")(context, parameter, values)
    if found:
        from pydantic import TypeAdapter, ValidationError

        from driverforge_build.matrix.fields import ImageRef

        try:
            TypeAdapter(dict[str, ImageRef]).validate_python(found)
        except ValidationError as error:
            raise click.BadParameter(error.errors()[0]["msg"].removeprefix("Value error, ")) from None
    return found


def base_option(function: F) -> F:
    return click.option(
        "--base",
        "bases",
        multiple=True,
        metavar="OS=REF",
        callback=_bases,
        help="Base image for an OS, e.g. debian12=registry.site/debian:bookworm.",
    )(function)


def certificate_option(function: F) -> F:
    return click.option(
        "--sign-certificate",
        "certificate",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        envvar="DRIVERFORGE_SIGN_CERTIFICATE",
        help="Certificate (PEM or DER) of the key that signs kernel modules. With another one, or none, an "
        "image is another image.",
    )(function)


def mirror_option(function: F) -> F:
    return click.option(
        "--mirror",
        "mirrors",
        multiple=True,
        metavar="OS[-ARCH][/SUITE]=URL",
        callback=pairs("OS=URL"),
        help="Package mirror of an OS, or of one architecture or suite. Default: in `lock` what the matrix "
        "or this machine's package manager says, in `build` what the matrix or the base image says. "
        "nvidia=URL is a mirror of NVIDIA's download hosts.",
    )(function)


def offline_option(function: F) -> F:
    return click.option("--offline", is_flag=True, help="Use what the cache holds; ask no mirror.")(function)


def accept_expired_option(function: F) -> F:
    return click.option(
        "--accept-expired",
        is_flag=True,
        help="Read suites whose Valid-Until has passed, of a mirror that is frozen on purpose.",
    )(function)


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


def keyring_option(function: F) -> F:
    return click.option(
        "--keyring",
        "keyrings",
        multiple=True,
        callback=_keyrings,
        metavar="[OS=]FILE",
        help="Public keys that may sign the repositories, of one OS or of all; may be repeated. Default: "
        "what this machine's package manager or the matrix names.",
    )(function)


def entitlement_option(function: F) -> F:
    return click.option(
        "--entitlement",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        metavar="DIR",
        help="Client certificate of a subscription: NUMBER.pem and NUMBER-key.pem, as in "
        "/etc/pki/entitlement of a registered host. Default: what this machine or its container has.",
    )(function)


def _fail_on(_: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> frozenset[FailOn]:
    from driverforge_build.app.prepare import FailOn

    found = frozenset(map(FailOn, values))
    if FailOn.NEVER in found and len(found) > 1:
        raise click.BadParameter("`never` stands alone", param=parameter)
    return found


def fail_on_option(function: F) -> F:
    return click.option(
        "--fail-on",
        multiple=True,
        type=click.Choice(["blocked", "unknown", "never"]),
        callback=_fail_on,
        help="Exit 1 where a selected cell has this verdict; may be repeated. `never`: no verdict fails the "
        "run. Default: a cell that --select names in full must be had, and a run that can have no image "
        "at all because cells are unknown fails.",
    )(function)


def engine_option(function: F) -> F:
    return click.option(
        "--engine",
        "engine_name",
        type=click.Choice(["docker", "podman", "buildah", "nop"]),
        default="docker",
        show_default=True,
        envvar="DRIVERFORGE_ENGINE",
        help="What builds and keeps images. `nop` writes contexts and says what it would do.",
    )(function)


def artifacts_option(function: F) -> F:
    return click.option(
        "--toolkit-artifacts",
        "artifacts",
        multiple=True,
        metavar="ARCH=DIR",
        callback=pairs("ARCH=DIR"),
        help="NVIDIA's files for the image toolkit-*-ARCH: a folder with deb/ and rpm/, as /artifacts of "
        "NVIDIA's own image.",
    )(function)


def report_options(function: F) -> F:
    """--junit and --summary: what CI systems read."""
    function = click.option(
        "--summary",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        envvar="GITHUB_STEP_SUMMARY",
        help="Add a grid of kernels and drivers in Markdown to FILE. Default: what a GitHub job says.",
    )(function)
    return click.option(
        "--junit",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Write a JUnit report, a test case for each cell.",
    )(function)


def check_registry(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """A click callback: an address with a scheme is what people paste first."""
    if value is not None and "://" in value:
        raise click.BadParameter(
            f"{value!r} has a scheme; write HOST[:PORT]/PATH without it: {value.partition('://')[2]}"
        )
    return value


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


def program(_: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    """A click callback: the words of a command that is run without a shell; none where it is not given."""
    if value is None:
        return ()
    try:
        words = tuple(shlex.split(value))
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: {error}", param=parameter) from error
    if not words:
        raise click.BadParameter("it names no program", param=parameter)
    return words


def attest_options(function: F) -> F:
    """--attest and --signer; the command gets `attest`, None without --attest."""

    @wraps(function)
    def merged(
        *,
        attesting: bool,
        signer: tuple[str, ...],
        image_signer: tuple[str, ...] = (),
        builder_id: str = "",
        **rest: Any,
    ) -> Any:
        for name in ("signer", "image_signer", "builder_id"):
            source = click.get_current_context().get_parameter_source(name)
            if source is ParameterSource.COMMANDLINE and not attesting:
                raise click.UsageError(f"--{name.replace('_', '-')} needs --attest")
        attest = adapters.Attest(signer=signer, image_signer=image_signer, builder=builder_id)
        return function(attest=attest if attesting else None, **rest)

    decorated = click.option(
        "--signer",
        metavar="COMMAND",
        callback=program,
        envvar="DRIVERFORGE_SIGNER",
        help="With --attest, sign statements by this program: it reads what is to be signed on standard "
        "input, and prints the signature. Run without a shell.",
    )(merged)
    return click.option(
        "--attest",
        "attesting",
        is_flag=True,
        help="Attach to each image in the registry what is known of it, as OCI referrers.",
    )(decorated)  # type: ignore[return-value]


def origin_options(function: F) -> F:
    """--builder-id and --image-signer, for commands with --attest that bring images to a registry."""
    function = click.option(
        "--image-signer",
        metavar="COMMAND",
        callback=program,
        envvar="DRIVERFORGE_IMAGE_SIGNER",
        help="With --attest, sign each image that has no signature by this program: it gets "
        "REPOSITORY@DIGEST as its last argument, as `cosign sign` does. Run without a shell.",
    )(function)
    return click.option(
        "--builder-id",
        default="",
        envvar="DRIVERFORGE_BUILDER_ID",
        metavar="URI",
        help="With --attest, the builder that a provenance names. Default: what GitHub's or GitLab's "
        "pipeline says.",
    )(function)


def verifier_option(function: F) -> F:
    return click.option(
        "--verifier",
        metavar="COMMAND",
        callback=program,
        envvar="DRIVERFORGE_VERIFIER",
        help="Believe statements alone whose signature this program accepts: it gets a file with the "
        "signature as its last argument, and what was signed on standard input. Run without a shell.",
    )(function)


def registry_option(function: F) -> F:
    return click.option(
        "--registry",
        metavar="HOST[:PORT]/PATH",
        callback=check_registry,
        help="Where to look for images: HOST[:PORT]/PATH/driver:TAG.",
    )(function)


def cache_option(function: F) -> F:
    return click.option(
        "--cache-dir",
        type=click.Path(path_type=Path, file_okay=False),
        default=None,
        metavar="DIR",
        envvar="DRIVERFORGE_CACHE",
        help="Where downloads and indexes are kept. Default: $XDG_CACHE_HOME/driverforge.",
    )(function)


def json_option(function: F) -> F:
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print one JSON document on standard output instead of text; where the command fails, it has an "
        "`error`.",
    )(function)


def vcs_option(function: F) -> F:
    return click.option(
        "--vcs-ref",
        default="",
        envvar=["DRIVERFORGE_VCS_REF", "GITHUB_SHA", "CI_COMMIT_SHA"],
        metavar="COMMIT",
        help="Commit of your matrix and lock, for the label `vcs-ref`. Default: what GitHub's or GitLab's "
        "pipeline says.",
    )(function)
