"""What runs in the guest, and what it says over its serial port.

The guest's whole system is a static busybox and one script. The script inserts modules one after the other
and writes a line for each thing that happens:

    release RELEASE             of the kernel that runs
    key TEXT                    a key that this kernel trusts, as /proc/keys lists it
    begin PATH                  a module is inserted now
    log TEXT                    a line that the kernel has logged meanwhile
    end PATH STATUS TEXT        the errno that insmod ended with (0: it is in), and its words
    done                        all of them were tried

The kernel command line says which serial port that is: driverforge.results=ttyS1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SCRIPT = r"""#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
for word in $(cat /proc/cmdline); do
    case $word in driverforge.results=*) port=/dev/${word#*=} ;; esac
done
until [ -c "$port" ]; do sleep 0.1; done
exec >"$port"
echo "release $(uname -r)"
sed -n 's/.* asymmetri /key /p' /proc/keys
while read -r path; do
    dmesg -c >/dev/null
    echo "begin $path"
    said=$(insmod "/modules/$path" 2>&1)
    status=$?
    dmesg -c | sed 's/^/log /'
    echo "end $path $status $(echo "$said" | tr '\n' ' ')"
done </steps
echo done
poweroff -f
"""

_STATUS = re.compile(r"[0-9]{1,3}")
# "[    4.43] ", with CONFIG_PRINTK_CALLER "[    4.43][    T1] "
_TIME = re.compile(r"^\[ *\d+\.\d+\](\[[^\]]*\])? ?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of one module: insmod's status, which is an errno, its words, and the kernel's log."""

    status: int
    words: str
    log: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """What a guest has said until it ended.

    `trying` is the module that was being inserted then, '' for none. `done`: whether all were tried.
    """

    release: str = ""
    keys: tuple[str, ...] = ()
    answers: Mapping[str, Answer] = field(default_factory=dict)
    trying: str = ""
    done: bool = False


def first_root(busybox: bytes, modules: Mapping[str, bytes]) -> CpioArchive:
    """The archive that the kernel boots with. `modules` are inserted in their order."""
    archive = CpioArchive()
    for folder in ("proc", "dev", "bin", "modules"):
        archive.directory(folder)
    archive.file("bin/busybox", busybox, mode=0o755)
    archive.file("init", SCRIPT.encode(), mode=0o755)
    archive.file("steps", "".join(f"{path}\n" for path in modules).encode())
    for path, content in modules.items():
        archive.file(f"modules/{path}", content)
    return archive


def read_transcript(lines: Iterable[str]) -> Transcript:
    """Read what came; a line that is cut off or unknown says nothing."""
    release, trying, done = "", "", False
    keys: list[str] = []
    log: dict[str, None] = {}
    answers: dict[str, Answer] = {}
    for line in lines:
        word, _, rest = line.rstrip("\r\n").partition(" ")
        if word == "release":
            release = rest
        elif word == "key":
            keys.append(rest.partition(": X509")[0])
        elif word == "begin":
            trying, log = rest, {}
        elif word == "log":
            # busybox tries a refused module again by the older system call: the same words twice
            log[_TIME.sub("", rest)] = None
        elif word == "end":
            path, _, answer = rest.partition(" ")
            status, _, words = answer.partition(" ")
            if _STATUS.fullmatch(status):
                answers[path] = Answer(status=int(status), words=words.strip(), log=tuple(filter(None, log)))
                trying = ""
        elif word == "done":
            done = True
    return Transcript(release=release, keys=tuple(keys), answers=answers, trying=trying, done=done)


_DIRECTORY, _FILE, _LINK = 0o040755, 0o100000, 0o120777


class CpioArchive:
    """Collects files in memory and writes them, as a kernel unpacks them into its first root.

    The format is newc, Documentation/driver-api/early-userspace/buffer-format.rst.
    """

    def __init__(self) -> None:
        self._entries: dict[str, tuple[int, bytes]] = {}

    def directory(self, path: str) -> None:
        """Add a folder and all above it."""
        name = path.strip("/")
        if name and name not in self._entries:
            self.directory(str(Path(name).parent) if "/" in name else "")
            self._entries[name] = (_DIRECTORY, b"")

    def file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Add a file; a later one of the same name wins."""
        self._add(path, _FILE | mode, data)

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self._add(path, _LINK, target.encode())

    def _add(self, path: str, mode: int, data: bytes) -> None:
        name = path.strip("/")
        self.directory(str(Path(name).parent) if "/" in name else "")
        self._entries[name] = (mode, data)

    def write(self, target: Path) -> None:
        """Write the archive, uncompressed.

        Making it costs less than unpacking a compressed one in the guest.
        """
        with target.open("wb") as out:
            for number, (name, (mode, data)) in enumerate(
                [*self._entries.items(), ("TRAILER!!!", (0, b""))], start=1
            ):
                encoded = name.encode() + b"\0"
                fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
                header = b"070701" + b"".join(b"%08x" % field for field in fields)
                out.write(_padded(header + encoded))
                out.write(_padded(data))


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
