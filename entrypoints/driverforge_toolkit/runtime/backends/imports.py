"""containerd's `imports`: which files a document brings in, and in which order they count.

Facts: `resolveImports` and `LoadConfig` in cmd/containerd/server/config/config.go (services/server/config in
1.x), and Go's filepath.Glob. An item with a `*` is a pattern, any other is one path, `?` and `[` included.
Relative ones start at the folder of the file that has them (see `glob_base` for older daemons). Files are
read breadth first, each once, and a later one wins. A name that a pattern matches is read whatever it is: a
folder, or a link to nothing, keeps containerd from starting. A change is refused there; to look, and to take
a change back, such names are left out.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping

from driverforge_core.errors import InputError
from driverforge_host.ports import Files
from driverforge_toolkit.runtime.formats.configfile import Contents, data_of, values_of
from driverforge_toolkit.runtime.model import RuntimeDaemon

IMPORTS = ("imports",)
EXAMPLE = 'imports = ["/etc/containerd/conf.d/*.toml"]'
_META = re.compile(r"[*?\[\\]")


def declared_imports(config: Mapping[str, object], name: str) -> list[str]:
    """The `imports` of a document, [] where it has none.

    Raises InputError where the value is no list of strings.

    A document without them imports nothing, also with 2.2 and later: their built-in defaults name
    /etc/containerd/conf.d (containerd#12323), but the daemon follows the imports of files that it loads, and
    not those.
    """
    value = config.get("imports", [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InputError(
            f"{name}: `imports` is not a list of file names",
            details=[f"{name}: imports = {value!r}, and containerd takes only {EXAMPLE}"],
            resolution="repair the file; nothing was changed",
        )
    return list(value)


def glob_base(daemon: RuntimeDaemon) -> str:
    """Where the daemon starts relative patterns: '' for the importing file's folder.

    Older ones take their working folder. containerd#7347 was mended in the middle of two series: 1.6.20 and
    1.6.28, 1.7.0 and 1.7.15 take the working folder, 1.6.30, 1.7.16 and all later ones the file's. A daemon
    that does not tell its version is taken for a later one.
    """
    version = daemon.version
    older = version < (1, 6, 29) or (1, 7) <= version < (1, 7, 16)
    return daemon.folder if version and older else ""


def whole_path(item: str, importer: str, base: str = "") -> str:
    """An item of `imports` as an absolute path or pattern.

    `importer` is the file that has it, `base` a `glob_base`.
    """
    folder = base if base and "*" in item else posixpath.dirname(importer)
    path = posixpath.normpath(posixpath.join(folder, item))
    # POSIX gives two slashes at the beginning a meaning, Go's filepath.Clean none
    return "/" + path.lstrip("/")


def brings_in(item: str, path: str, importer: str, base: str = "") -> bool:
    """Whether an item of `imports`, as the file `importer` has it, brings in the file `path`.

    Raises InputError for an item that is not a pattern.
    """
    whole = whole_path(item, importer, base)
    if "*" not in whole:
        return whole == path
    patterns, names = whole.split("/"), path.split("/")
    return len(patterns) == len(names) and all(
        matches(pattern, name, item) for pattern, name in zip(patterns, names, strict=True)
    )


def imported_files(
    node: Files,
    daemon: RuntimeDaemon,
    path: str,
    files: Contents,
    *,
    every: bool = False,
) -> list[str]:
    """What the file `path` imports, in the daemon's order: of the node's files, as `files` would change them.

    A file that `files` has without bytes is taken away: a pattern does not find it, a plain path still names
    it. With `every`, a pattern also finds folders, and links to nothing.
    """
    base = glob_base(daemon)
    found: list[str] = []
    for item in declared_imports(values_of(files, path), path):
        whole = whole_path(item, path, base)
        if "*" not in whole:
            found.append(whole)
            continue
        there = {
            name
            for name in glob(node, whole)
            if (name not in files or data_of(files, name) is not None) and (every or _is_file(node, name))
        }
        made = {
            name
            for name, file in files.items()
            if file.data is not None and brings_in(item, name, path, base)
        }
        found += in_order(there | made)
    return found


def _is_file(node: Files, path: str) -> bool:
    return node.exists(path) and not node.is_dir(path)


def read_documents(root: str, files: Contents, base: str = "") -> dict[str, Mapping[str, object]]:
    """The documents of `files` that a daemon with the root file `root` reads, in its order.

    A file that does not exist yet has its future place. Raises InputError for a broken file, and as
    `declared_imports`.
    """
    pending: list[str] = [root]
    found: dict[str, Mapping[str, object]] = {}
    while pending:
        path = pending.pop(0)
        if path in found:
            continue
        found[path] = values_of(files, path)
        for item in declared_imports(found[path], path):
            pending += in_order(other for other in files if brings_in(item, other, path, base))
    return found


def import_of(drop_in: str) -> str:
    """The import that covers a drop-in and its neighbours, as NVIDIA's toolkit writes it."""
    return f"{posixpath.dirname(drop_in)}/*.toml"


def imports_with(
    config: Mapping[str, object], drop_in: str, name: str, base: str = "", beside: Iterable[str] = ()
) -> list[str]:
    """The `imports` of the document `name` with one that covers the drop-in. Raises as `declared_imports`.

    That one covers its neighbours too, unless it would bring in any of `beside`: then it is the drop-in's
    name.
    """
    existing = declared_imports(config, name)
    if any(brings_in(item, drop_in, name, base) for item in existing):
        return existing
    whole = import_of(drop_in)
    alone = [path for path in (drop_in, *beside) if brings_in(whole, path, name)] == [drop_in]
    return [*existing, whole if alone else drop_in]


def in_order(paths: Iterable[str]) -> list[str]:
    """The paths that one pattern matches, in the order of Go's Glob.

    The names of each folder are sorted by themselves, so that `a/x` is before `a-b/x`.
    """
    return sorted(paths, key=lambda path: path.split("/"))


def glob(node: Files, pattern: str) -> list[str]:
    """The names that an absolute pattern matches, whatever they stand for, as Go's filepath.Glob.

    Raises InputError for what is not a pattern.
    """
    found = [""]
    for part in pattern.strip("/").split("/"):
        if _META.search(part):
            found = [
                f"{folder}/{name}"
                for folder in found
                for name in node.list_dir(folder or "/")
                if matches(part, name, pattern)
            ]
        else:
            found = [f"{folder}/{part}" for folder in found]
    return in_order(path for path in found if node.exists(path) or node.is_link(path))


def matches(pattern: str, name: str, whole: str = "") -> bool:
    """Whether a pattern matches a name without a slash, as Go's filepath.Match.

    `*` is any text, also at the beginning of a hidden name. `?` is one character. `[a-z]` is one of a class,
    `[^a-z]` one outside of it; `!` means nothing. A backslash takes the next character as it is, also in a
    class.

    Raises InputError for what is not a pattern, where Go tells that only when a name gets as far as to the
    fault. `whole` is what the message names.
    """
    return re.fullmatch(_expression(pattern, whole or pattern), name, re.DOTALL) is not None


def _expression(pattern: str, whole: str) -> str:
    """The regular expression of a pattern. Raises InputError."""
    out, at = "", 0
    while at < len(pattern):
        letter, at = pattern[at], at + 1
        if letter == "[":
            piece, at = _class(pattern, at, whole)
        elif letter in "*?":
            piece = ".*" if letter == "*" else "."
        elif letter == "\\":
            literal, at = _letter(pattern, at - 1, whole)
            piece = re.escape(literal)
        else:
            piece = re.escape(letter)
        out += piece
    return out


def _class(pattern: str, at: int, whole: str) -> tuple[str, int]:
    """The regular expression of a class, and the index after it; `at` is after its bracket."""
    negated = pattern[at : at + 1] == "^"
    at += negated
    ranges = ""
    first = at
    while at == first or pattern[at : at + 1] != "]":
        if pattern[at : at + 1] in ("", "-", "]"):
            raise _no_pattern(whole)
        low, at = _letter(pattern, at, whole)
        high = low
        if pattern[at : at + 1] == "-":
            if pattern[at + 1 : at + 2] in ("", "-", "]"):
                raise _no_pattern(whole)
            high, at = _letter(pattern, at + 1, whole)
        if low <= high:
            ranges += f"{re.escape(low)}-{re.escape(high)}"
    if not ranges:  # only ranges that go backwards, which no character is in
        return "." if negated else "(?!)", at + 1
    return f"[{'^' * negated}{ranges}]", at + 1


def _letter(pattern: str, at: int, whole: str) -> tuple[str, int]:
    """The character at an index, by itself after a backslash, and the index after it."""
    if pattern[at] == "\\":
        at += 1
    if at >= len(pattern):
        raise _no_pattern(whole)
    return pattern[at], at + 1


def _no_pattern(whole: str) -> InputError:
    return InputError(
        f"the import {whole!r} is not a pattern",
        details=["containerd's patterns are those of Go's filepath.Match"],
        resolution="correct it; nothing was changed",
    )
