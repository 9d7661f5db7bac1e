"""Driver roots made of listings: libraries, device files and programs of an installed driver.

The files are empty but for those that our code looks into.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from driverforge_core.errors import Unavailable
from driverforge_host.ports import Gpu
from support.fakes.fakehost import FakeNode, fake_node

ROOT = "/driver-root"
VERSION = "580.65.06"

# what /proc/devices says where a whole driver is loaded, with the numbers of the fixture
DEVICES = """Character devices:
  1 mem
195 nvidia-frontend
507 nvidia-fs
508 nvidia-nvswitch
509 nvidia-caps-imex-channels
510 nvidia-caps
511 nvidia-uvm

Block devices:
254 virtblk
"""


@dataclass(frozen=True, slots=True)
class FakeNvml:
    """NVML with these GPUs; without any, as on a machine that has no library."""

    found: tuple[Gpu, ...] = ()

    def gpus(self) -> tuple[Gpu, ...]:
        if not self.found:
            raise Unavailable("NVML does not start: no library")
        return self.found

    def __call__(self, library: str) -> FakeNvml:
        """In the place of the function that makes NVML from a library's path."""
        return self


def bare_node(folder: Path) -> FakeNode:
    """A node with nothing of a driver, and an empty place for its root."""
    node = fake_node(folder, gpu=False)
    node.places[ROOT] = folder / "driver-root"
    node.places[ROOT].mkdir()
    return node


def write_tree(
    node: FakeNode, listing: str, *, base: str = ROOT, contents: Mapping[str, bytes] | None = None
) -> None:
    """Make what a listing has, a path a line.

    The lines are those of `entries`.
    """
    for name, words in entries(listing):
        path = f"{base.rstrip('/')}/{name}".rstrip("/") or "/"
        if words[0] == "dir":
            node.files.make_dirs(path)
        elif words[0] == "->":
            node.files.make_dirs(path.rpartition("/")[0] or "/")
            node.files.symlink(words[1], path)
        elif words[0] == "c":
            major, minor, mode, group = numbers(words)
            add_device(node, path, major, minor, mode=mode, group=group)
        else:
            node.files.make_dirs(path.rpartition("/")[0])
            node.files.write_atomic(path, (contents or {}).get(path.rpartition("/")[2], b""))
            Path(node.files.real(path)).chmod(0o755)


def entries(listing: str) -> Iterator[tuple[str, list[str]]]:
    """Path below the root, and what is there.

    A line is 'PATH dir', 'PATH file', 'PATH -> TARGET' or 'PATH c MAJOR:MINOR MODE [GROUP]', with the numbers
    in hexadecimal and the mode in octal.
    """
    for line in listing.strip().splitlines():
        name, *words = line.split()
        yield name.removeprefix(".").lstrip("/"), words


def numbers(words: Sequence[str]) -> tuple[int, int, int, int]:
    """Major, minor, mode and group of a device's entry."""
    major, minor = (int(number, 16) for number in words[1].split(":"))
    return major, minor, int(words[2], 8), int(words[3]) if len(words) > 3 else 0


def add_device(
    node: FakeNode, path: str, major: int, minor: int, *, mode: int = 0o666, group: int = 0
) -> None:
    """A device file; in a fake tree its content is its numbers."""
    target = Path(node.files.real(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"{major}:{minor}:{group}")
    target.chmod(mode)
