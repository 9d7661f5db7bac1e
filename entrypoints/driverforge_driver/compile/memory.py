"""What earlier compiler runs found out, and when it still holds.

A memory is a table: a question (all that was said to the compiler) and its answer, with every file that was
read on the way and its digest. An answer counts again where all these files have the same contents, so there
is nothing to invalidate. Paths are written without the folders that a build happened to use, and without the
kernel's name: two kernels with the same headers share their answers.

Which files there are counts as well, through `Place.context`: a new header could be found before the one that
was read. A file of the cache has the digest of its contents as its name: half of one, or a damaged one, is no
file.
"""

from __future__ import annotations

import functools
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from driverforge_core import log
from driverforge_core.errors import DriverforgeError
from driverforge_core.headertree import NAMES_OF_A_KERNEL
from driverforge_driver.compile import kernelname
from driverforge_host.ports import Files

# A node boots few kernels; a builder has a dozen releases and flavours of a series, for two or three drivers.
MAX_FILES = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The folders of a build, and what all answers depend on."""

    # {'/var/tmp/…/linux-headers-6.1.0-50-common': '@SOURCE@'}; a folder comes before the one that it is in
    folders: Mapping[str, str]
    # digest of the compiler, the tools, and the names of all headers
    context: str

    def portable(self, text: str) -> str:
        for folder, word in self.folders.items():
            text = text.replace(folder, word)
        return text

    def real(self, text: str) -> str:
        for folder, word in self.folders.items():
            text = text.replace(word, folder)
        return text


@dataclass(slots=True, kw_only=True)
class Digests:
    """Digests of files, each read once; '' for one that is not there yet.

    Without what only names the kernel, whose `release` counts for the files that use it.
    """

    files: Files
    release: str = ""
    _known: dict[str, tuple[str, bool]] = field(default_factory=dict)

    def of(self, path: str) -> str:
        return self._of(path)[0]

    def names_the_kernel(self, path: str) -> bool:
        """Whether a file reads the configuration that only names the kernel."""
        return self._of(path)[1]

    def _of(self, path: str) -> tuple[str, bool]:
        if path not in self._known:
            try:
                self._known[path] = self._read(path)
            except FileNotFoundError:
                return "", False
        return self._known[path]

    def _read(self, path: str) -> tuple[str, bool]:
        data = self.files.read_bytes(path)
        counts = kernelname.compared(path, data, release=self.release)
        return hashlib.sha256(counts).hexdigest(), any(name in counts for name in NAMES_OF_A_KERNEL)


@dataclass(slots=True, kw_only=True)
class _Table:
    """A file of the cache: (path, digest) of files, and {question: (answer, numbers of files)}."""

    files: Sequence[tuple[str, str]]
    records: Mapping[str, tuple[str, Sequence[int]]]
    _same: dict[int, bool] = field(default_factory=dict)

    def recall(self, question: str, place: Place, digests: Digests) -> tuple[str, tuple[str, ...]] | None:
        record = self.records.get(question)
        if record is None or not all(self._is_same(number, place, digests) for number in record[1]):
            return None
        return record[0], tuple(self.files[number][0] for number in record[1])

    def _is_same(self, number: int, place: Place, digests: Digests) -> bool:
        if number not in self._same:
            path, digest = self.files[number]
            # Nothing is known of a file that is not there, nor of one that was not.
            self._same[number] = digest != "" and digests.of(place.real(path)) == digest
        return self._same[number]


class Memory:
    """Answers of this build and of earlier ones. `folder` is '' where nothing is kept."""

    def __init__(self, files: Files, folder: str, place: Place, digests: Digests) -> None:
        self._files = files
        self._folder = f"{folder}/answers" if folder else ""
        self._place = place
        # hundreds of answers depend on the same files
        self._portable = functools.cache(place.portable)
        self._digests = digests
        self._now: dict[str, tuple[str, tuple[str, ...] | None]] = {}
        self._earlier = tuple(self._read_earlier())

    def recall(self, question: str) -> str | None:
        for table in self._earlier if question not in self._now else ():
            found = table.recall(question, self._place, self._digests)
            if found is not None:
                self._now[question] = found
                break
        return self._now[question][0] if question in self._now else None

    def questions(self, kind: str) -> frozenset[str]:
        """All that begin with `kind` and were ever asked here."""
        return frozenset(name for table in self._earlier for name in table.records if name.startswith(kind))

    def reads(self, kind: str) -> frozenset[str] | None:
        """What the answers of this build to all questions that begin with `kind` were read from.

        None where one of them is not kept.
        """
        paths: set[str] = set()
        for name, (_, reads) in self._now.items():
            if name.startswith(kind):
                if reads is None:
                    return None
                paths.update(reads)
        return frozenset(map(self._place.real, paths))

    def learn(self, question: str, answer: str, *, reads: Iterable[str], named: bool = False) -> None:
        """`reads` are the files that the answer depends on.

        It is not kept where one of them, or the question (`named`), depends on the kernel's name.
        """
        paths = tuple(sorted(set(reads)))
        named = named or any(self._digests.names_the_kernel(path) for path in paths)
        self._now[question] = (answer, None if named else tuple(map(self._portable, paths)))

    def keep(self) -> None:
        """Write down what this build used. A cache that cannot be written costs nothing but time."""
        if not self._folder:
            return
        known = {name: (answer, reads) for name, (answer, reads) in self._now.items() if reads is not None}
        paths = sorted({path for _, reads in known.values() for path in reads})
        numbers = {path: number for number, path in enumerate(paths)}
        table = {
            "files": [(path, self._digests.of(self._place.real(path))) for path in paths],
            "records": {
                name: (answer, [numbers[path] for path in reads])
                for name, (answer, reads) in sorted(known.items())
            },
        }
        data = zlib.compress(json.dumps(table, separators=(",", ":")).encode(), 1)
        try:
            write_named(self._files, self._folder, data, context=self._place.context)
        except DriverforgeError as error:
            log.warning("the compile cache is not written", folder=self._folder, reason=error.brief)

    def _read_earlier(self) -> Iterator[_Table]:
        for name in newest(self._files, self._folder) if self._folder else ():
            ours = name.startswith(self._place.context[:16])
            data = read_named(self._files, self._folder, name) if ours else None
            if data is not None:
                table = json.loads(zlib.decompress(data))
                yield _Table(files=table["files"], records=table["records"])


def write_named(files: Files, folder: str, data: bytes, *, context: str) -> str:
    """Write a file that is named by its contents; the oldest ones give way. Returns its name."""
    name = f"{context[:16]}-{hashlib.sha256(data).hexdigest()}"
    files.make_dirs(folder, mode=0o700)
    # Again where it is there already: it becomes the newest.
    files.write_atomic(f"{folder}/{name}", data)
    for old in newest(files, folder)[MAX_FILES:]:
        files.remove(f"{folder}/{old}")
    return name


def read_named(files: Files, folder: str, name: str) -> bytes | None:
    """The contents of a file that is named by them; None where it is gone or damaged."""
    try:
        data = files.read_bytes(f"{folder}/{name}")
    except (FileNotFoundError, DriverforgeError):
        return None
    if hashlib.sha256(data).hexdigest() == name.partition("-")[2]:
        return data
    log.warning("a damaged file of the compile cache is not used", file=f"{folder}/{name}")
    return None


def newest(files: Files, folder: str) -> list[str]:
    """Names of a folder's files that are named by their contents, the newest first."""
    times = {}
    for name in files.list_dir(folder):
        stamp = files.stamp(f"{folder}/{name}")
        if len(name) == 16 + 1 + 64 and stamp is not None:
            times[name] = stamp[3]
    return sorted(times, key=lambda name: times[name], reverse=True)
