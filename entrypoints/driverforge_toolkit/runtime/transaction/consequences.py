"""What a change would mean for the daemon, by its effective configurations before and after.

What must not be is refused before anything is written; what a person should know is told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from driverforge_core.errors import Unsupported
from driverforge_host.ports import Host
from driverforge_toolkit.runtime.backends import hidden_section
from driverforge_toolkit.runtime.backends.containerd_config import MERGES_KEYS, default_of
from driverforge_toolkit.runtime.backends.threeway import runtime_of
from driverforge_toolkit.runtime.formats.configfile import Contents
from driverforge_toolkit.runtime.formats.values import describe, differing
from driverforge_toolkit.runtime.model import Backend, RuntimeDaemon, WantedHandlers
from driverforge_toolkit.runtime.nvidia_handlers import is_nvidia

PROGRAM_KEYS = ("binaryname", "runtime_path", "path")  # of containerd's, CRI-O's and docker's handlers
# what names the default handler, in containerd's and CRI-O's TOML and in docker's JSON
DEFAULT_LINE = re.compile(r"""default[-_]runtime(?:_name)?["']?\s*[=:]\s*["']([^"']+)["']""")


def check_effective(
    edit: Backend,
    daemon: RuntimeDaemon,
    views: tuple[Mapping[str, object], Mapping[str, object]],
    wanted: WantedHandlers,
) -> None:
    """Raises Unsupported if the daemon would see other keys change than ours, or would not see our handlers.

    `views` is its effective configuration before and after.
    """
    before, after = views
    if foreign := edit.foreign(before, after, wanted):
        raise Unsupported(
            f"refused: with NVIDIA's handlers, {daemon.kind} would see other settings change too",
            details=[describe(path, *pair) for path, pair in foreign.items()],
            resolution="nothing was changed; move these settings into one file, or report this configuration",
        )
    seen = edit.handlers(after)
    gone = [handler for handler in wanted.handlers if seen.get(handler.name) != handler.binary]
    if gone:
        raise Unsupported(
            f"refused: {daemon.kind} would not see the handler {gone[0].name}",
            details=[
                f"{handler.name}: {seen.get(handler.name, 'not there')}, not {handler.binary}"
                for handler in gone
            ],
            resolution="nothing was changed; another file of its configuration wins over ours (put all of "
            "it into one file), or ours has a higher version than the root file (driverctl doctor says so)",
        )


def check_programs(host: Host, daemon: RuntimeDaemon, wanted: WantedHandlers) -> None:
    """Raises Unsupported if CRI-O would leave out a handler because its program is not there.

    Its own `crio config` accepts that. At its start it ignores such a handler, and does not start at all
    where that is the default one (cri-o/cri-o, pkg/config/config.go, ValidateRuntimes; #4631).
    """
    missing = [handler for handler in wanted.handlers if not host.node.exists(handler.binary)]
    if daemon.kind != "crio" or not missing:
        return
    raise Unsupported(
        "refused: CRI-O leaves out a handler whose program is not there",
        details=[f"{handler.name}: {handler.binary} is not on the node" for handler in missing],
        resolution="install NVIDIA's toolkit first (driverctl toolkit install), or name its folder with "
        "--toolkit-dir; nothing was changed",
    )


def check_servable(
    edit: Backend,
    daemon: RuntimeDaemon,
    now: Mapping[str, object],
    after: Mapping[str, object],
    *,
    files: Contents | None = None,
    way_out: str = "",
) -> None:
    """Raises Unsupported if the daemon could not serve pods with `after`.

    A restart would take the node down, and if it could not with `now`, the way back would too. `files` are
    the daemon's, without anything of ours; `way_out` is what to do instead of the usual.
    """
    wrong, already = edit.unservable(after), edit.unservable(now)
    if not wrong:
        return
    brief = f"refused: {daemon.kind} could not serve pods after its next restart"
    details = [wrong, *(line for line, _ in default_lines(files or {}))]
    if already:
        details.append(f"that is so without this change too: {already} (in the files as they are)")
    way_out = way_out or f"{_with_default(daemon, files or {}, after)}, or name another default"
    raise Unsupported(brief, details=details, resolution=f"{way_out}; nothing was changed")


def _with_default(daemon: RuntimeDaemon, files: Contents, after: Mapping[str, object]) -> str:
    """What adds the default runtime where a containerd 1.x sees it: in the last file with its section."""
    documents = {path: file.values for path, file in files.items() if file.data is not None}
    path, default = hidden_section.deciding_file(documents), default_of(after)
    if daemon.kind != "containerd" or daemon.version >= MERGES_KEYS or not path:
        return f"add that runtime to {daemon.config}"
    known = default == "runc" or hidden_section.having(documents, default, besides=(path,))
    texts = {name: file.text for name, file in files.items()}
    missing = hidden_section.missing_in(documents, texts, default) if known else None
    return missing.command() if missing else f"add that runtime to {path}"


def default_lines(files: Contents) -> Iterator[tuple[str, str]]:
    """Each line of the files that names a default handler, with its place, and that handler."""
    for path, file in files.items():
        for number, line in enumerate(file.text.splitlines(), 1):
            found = DEFAULT_LINE.search(line)
            if found and not line.lstrip().startswith("#"):
                yield f"{path}:{number}: {line.strip()}", found[1]


def lost_defaults(edit: Backend, files: Contents, view: Mapping[str, object]) -> tuple[str, ...]:
    """Handlers of NVIDIA's that `files` name as the default one, and that the daemon has not in `view`.

    () where it can serve pods all the same.
    """
    there = edit.handlers(view)
    stated = {name for _, name in default_lines(files) if is_nvidia(name, "") and name not in there}
    return tuple(sorted(stated)) if edit.unservable(view) else ()


def effective_lines(before: Mapping[str, object], after: Mapping[str, object]) -> tuple[str, ...]:
    """The difference of two effective configurations, a key a line."""
    return tuple(describe(path, old, new) for path, (old, new) in differing(before, after).items())


def changed_handlers(
    edit: Backend, before: Mapping[str, object], after: Mapping[str, object], wanted: WantedHandlers
) -> tuple[str, ...]:
    """What is different in handlers that were there before we came, a sentence for each key.

    Not their programs, which are what this is about.
    """
    there = wanted.names & edit.handlers(before).keys()
    return tuple(
        f"the handler {runtime_of(path)} was there already: {describe(path, *pair)}"
        for path, pair in differing(before, after).items()
        if runtime_of(path) in there and path[-1].lower() not in PROGRAM_KEYS
    )


def mended_fault(edit: Backend, daemon: RuntimeDaemon, now: Mapping[str, object]) -> tuple[str, ...]:
    """What is wrong with the files as they are, where this change mends it: the way back leads there."""
    wrong = edit.unservable(now)
    return (
        (f"{daemon.kind} could not serve pods with the files as they are, and can with this change: {wrong}",)
        if wrong
        else ()
    )
