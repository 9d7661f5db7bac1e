"""Compiled objects of earlier builds, put back where their inputs are the same.

Kbuild itself says in `.NAME.o.cmd` by which command an object was made and what was read for it. An object is
put back, with that file, where everything that was read is the same now; make then compares the command with
its own and compiles what differs. For the second kernel of a class (same headers, another name) that leaves
what carries the name: a few objects, modpost and the link.
"""

from __future__ import annotations

import io
import re
import tarfile
import zlib
from collections.abc import Mapping

from driverforge_core import log
from driverforge_core.errors import DriverforgeError
from driverforge_driver.compile.kernelname import AUTOCONF, uses_release
from driverforge_driver.compile.memory import Memory, Place, read_named, write_named
from driverforge_host.ports import Host

_KIND = "object "
_ARCHIVE = "driverforge-objects.tar"


def files_read(command_file: str, *, output: str, work: str) -> tuple[str, ...] | None:
    """What an object was made from, by its `.NAME.o.cmd`; None for what was linked or copied.

    Kbuild ran in the kernel's folder `output`, and from Linux 6.13 on in the module's, `work`: its names of
    targets are relative there. The configuration counts as a whole: fixdep names single options instead of
    autoconf.h.
    """
    source = re.search(r"^source_(\S+) := (\S+)$", command_file, re.MULTILINE)
    depends = re.search(r"^deps_\S+ := \\\n((?:.*\\\n)*)", command_file, re.MULTILINE)
    if source is None or depends is None:
        return None
    words = re.sub(r"\$\(wildcard [^)]*\)", "", depends[1]).replace("\\\n", " ").split()
    folder = output if source[1].startswith("/") else work
    paths = (source[2], *words, f"{output}/{AUTOCONF}")
    return tuple(path if path.startswith("/") else f"{folder}/{path}" for path in paths)


class Objects:
    """Objects of earlier builds in `folder`: an archive a build, named by the digest of its contents."""

    def __init__(self, host: Host, folder: str, place: Place, memory: Memory) -> None:
        self._host = host
        self._folder = f"{folder}/objects"
        self._place = place
        self._memory = memory
        self._archives: dict[str, Mapping[str, bytes]] = {}

    def restore(self, work: str) -> int:
        """Put objects into the folder `work`. Returns how many."""
        found = {}
        for question in self._memory.questions(_KIND):
            name = question.removeprefix(_KIND)
            archive = self._memory.recall(question)
            members = self._archive(archive) if archive else {}
            if name in members and _command_file(name) in members:
                found[name] = members[name]
                text = members[_command_file(name)].decode()
                found[_command_file(name)] = self._place.real(text).encode()
        if found:
            self._host.files.write_atomic(f"{work}/{_ARCHIVE}", _pack(found))
            # The time of now: whatever make compares them with is older.
            self._host.commands.run(["tar", "--extract", "--touch", "--file", _ARCHIVE], cwd=work)
        return len(found) // 2

    def keep(self, work: str, output: str) -> None:
        """Learn what was compiled in `work`, and keep it. A cache that cannot be written costs only time."""
        listed = self._host.commands.run(["find", ".", "-name", ".*.o.cmd", "-printf", "%P\\n"], cwd=work)
        members: dict[str, bytes] = {}
        reads = {}
        for path in listed.stdout.split():
            folder, _, file = path.rpartition("/")
            name = f"{folder}/{file[1 : -len('.cmd')]}".lstrip("/")
            text = self._host.files.read_text(f"{work}/{path}")
            read = files_read(text, output=output, work=work)
            # modpost writes the sources of .mod.o anew for each kernel
            if read is not None and not name.endswith(".mod.o"):
                # a macro of the command line is in no file that is read
                reads[name] = read, uses_release(text.encode())
                members[name] = self._host.files.read_bytes(f"{work}/{name}")
                members[_command_file(name)] = self._place.portable(text).encode()
        if not members:
            return
        try:
            data = self._compressed(members)
            archive = write_named(self._host.node, self._folder, data, context=self._place.context)
        except DriverforgeError as error:
            log.warning("compiled objects are not kept", folder=self._folder, reason=error.brief)
            return
        for name, (read, named) in reads.items():
            self._memory.learn(_KIND + name, archive, reads=read, named=named)

    def _compressed(self, members: Mapping[str, bytes]) -> bytes:
        """An archive of `members`; an earlier build's where it has the same: compressing takes longer."""
        for name, earlier in self._archives.items():
            data = read_named(self._host.node, self._folder, name) if earlier == members else None
            if data is not None:
                return data
        return zlib.compress(_pack(members), 1)

    def _archive(self, name: str) -> Mapping[str, bytes]:
        if name not in self._archives:
            data = read_named(self._host.node, self._folder, name)
            self._archives[name] = _unpack(data) if data is not None else {}
        return self._archives[name]


def _command_file(name: str) -> str:
    folder, slash, file = name.rpartition("/")
    return f"{folder}{slash}.{file}.cmd"


def _pack(members: Mapping[str, bytes]) -> bytes:
    """A tar archive. The same members give the same bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in sorted(members.items()):
            about = tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    return buffer.getvalue()


def _unpack(data: bytes) -> Mapping[str, bytes]:
    members = {}
    with tarfile.open(fileobj=io.BytesIO(zlib.decompress(data))) as archive:
        for about in archive:
            file = archive.extractfile(about)
            members[about.name] = file.read() if file else b""
    return members
