"""Options that commands of `driverforge mirror` share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from driverforge_build.commands.shared import adapters, options

if TYPE_CHECKING:
    from driverforge_mirror.lists.target import Sources, Target
    from driverforge_mirror.yamltext import Read


class LiveOrFile(click.Path):
    """A file, or the word `live`: then `live:RESOURCES`, which are asked for with kubectl."""

    def __init__(self, resources: str) -> None:
        super().__init__(path_type=Path, exists=True, dir_okay=False)
        self._resources = resources

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return Path(f"live:{self._resources}") if value == "live" else super().convert(value, param, ctx)


mirror_lock_option = click.option(
    "--mirror-lock",
    "lock_path",
    type=click.Path(path_type=Path, dir_okay=False),
    default="mirror.lock.json",
    show_default=True,
    metavar="FILE",
    help="The list of what the mirror has to hold, of `driverforge mirror lock`; or an archive's, "
    "NAME.list.json, which has it.",
)

nodes_option = click.option(
    "--nodes",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Say what nodes run, too: kubectl get nodes -o json > nodes.json",
)

paths_option = click.option(
    "--paths",
    type=click.Choice(["keep", "host", "flatten"]),
    default="keep",
    show_default=True,
    help="What becomes of nvcr.io/nvidia/driver below the mirror's path: nvidia/driver, "
    "nvcr.io/nvidia/driver, or driver.",
)


def registries_option(text: str) -> options.Option:
    """--registry, several times, with its own help text; the command gets `sources`."""
    form = "HOST[/PATH]=[http://]HOST[:PORT][/PATH]"
    pairs = options.pairs(form, "nvcr.io=cache.site:5000/nvcr.io")

    def callback(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> Sources:
        from driverforge_mirror.lists.target import Sources

        return Sources.parse(pairs(context, parameter, values))

    return click.option(
        "--registry",
        "sources",
        multiple=True,
        metavar=form,
        callback=callback,
        help=f"{text} http:// where it has no TLS.",
    )


def _target(*, to: str | None, paths: str) -> Target | None:
    from driverforge_mirror.lists.target import Paths, Target

    return None if to is None else Target.parse(to, Paths(paths))


def _target_options(*, required: bool) -> options.Option:
    to_option = click.option(
        "--to",
        required=required,
        metavar="[http://]HOST[:PORT][/PATH]",
        help="The mirror. http:// where it has no TLS.",
    )
    return options.gathered("target", _target, to_option, paths_option)


target_options = _target_options(required=True)
"""--to and --paths; the command gets `target`."""

target_or_other_options = _target_options(required=False)
"""The same, where `target` is None without --to."""


def list_reader(verifier: Sequence[str], *lists: Path, archives: bool = False) -> Read:
    """How lists are read: one that came with an archive as archives are, if `verifier` accepts it.

    UsageError for a --verifier where none of these did, and no `archives` are read beside them. That of a
    pipeline's environment is for all its commands.
    """
    from driverforge_mirror.archive.trust import reading
    from driverforge_mirror.lists.reader import ARCHIVE_LIST
    from driverforge_mirror.yamltext import read_bytes

    archives = archives or any(path.name.endswith(ARCHIVE_LIST) for path in lists)
    given = click.get_current_context().get_parameter_source("verifier")
    if given is ParameterSource.COMMANDLINE and not archives:
        raise click.UsageError(f"--verifier is for what came with an archive, its NAME{ARCHIVE_LIST}")
    verified = reading(adapters.verifier(verifier))

    def read(path: Path) -> bytes:
        return (verified if path.name.endswith(ARCHIVE_LIST) else read_bytes)(path)

    return read
