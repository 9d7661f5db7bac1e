"""What a planned change stands for in the journal: whatever an undo needs, and looking again cannot find."""

from __future__ import annotations

from collections.abc import Sequence

from driverforge_host.ports import Host, Metadata
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.formats.configfile import Contents
from driverforge_toolkit.runtime.model import WantedHandlers
from driverforge_toolkit.runtime.transaction.observed import ObservedRuntime


def entry_of(
    host: Host, seen: ObservedRuntime, files: Contents, wanted: WantedHandlers | None = None
) -> journal.JournalEntry:
    """The journal's entry of a change that makes `files`.

    A file that only the earlier change wrote is written back by this one. What goes away does so last: a
    containerd that is told of it by its name does not start without it.
    """
    daemon, earlier = seen.daemon, seen.entry
    every = {**{file.path: seen.base[file.path] for file in (earlier.files if earlier else ())}, **files}
    changed = {path: file for path, file in every.items() if not file == seen.disk[path] == seen.base[path]}
    return journal.JournalEntry(
        kind=daemon.kind,
        socket=daemon.socket,
        binary=daemon.binary,
        config=daemon.config,
        drop_in=daemon.drop_in,
        supervisor=daemon.supervisor,
        handlers=tuple((handler.name, handler.binary) for handler in (wanted.handlers if wanted else ())),
        default=wanted.default if wanted else "",
        wanted=wanted,
        files=tuple(
            journal.JournalFile(
                path=path,
                original=seen.base[path].data,
                written=file.data,
                before=seen.disk[path].data,
                metadata=_metadata(host, earlier, path),
            )
            for path, file in sorted(changed.items(), key=lambda item: item[1].data is None)
        ),
        state="prepared",
        process=seen.process,
        folders=_folders(host, earlier, list(changed)),
        earlier=earlier,
    )


def _metadata(host: Host, earlier: journal.JournalEntry | None, path: str) -> Metadata | None:
    """Mode, owner and label of the file; of one that is gone, those that it had."""
    known = earlier.file(path) if earlier else None
    return host.node.metadata(path) or (known.metadata if known else None)


def _folders(host: Host, earlier: journal.JournalEntry | None, paths: Sequence[str]) -> tuple[str, ...]:
    """The folders that have to be made, outermost first.

    Those that were made for the earlier change come before them.
    """
    found = list(earlier.folders) if earlier else []
    for path in paths:
        parts = path.split("/")[1:-1]
        every = ["/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))]
        found += [folder for folder in every if folder not in found and not host.node.is_dir(folder)]
    return tuple(found)
