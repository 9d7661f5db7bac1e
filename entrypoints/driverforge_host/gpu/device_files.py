"""The driver's device files: what they are called, which numbers they have, and which of them are there.

Names and minors are those of nvidia-modprobe (nvidia-modprobe-utils.h). Majors are what the loaded modules
registered, as /proc/devices lists them. Only the driver's own major is fixed; the others change with each
load.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from posixpath import dirname

from driverforge_core.errors import Unavailable
from driverforge_host.gpu.roots import DriverView

PROC_DEVICES = "/proc/devices"

# minors; nvidia-modeset shares the driver's major
CONTROL_MINOR, MODESET_MINOR = 255, 254
UVM_MINOR, UVM_TOOLS_MINOR = 0, 1
FRONTEND_MAJOR = 195  # Documentation/admin-guide/devices.txt: "Nvidia Graphics"
# the driver's names in /proc/devices; drivers before 550 have the second one
DRIVER = ("nvidia", "nvidia-frontend")

CONTROL_FILE, MODESET_FILE = "/dev/nvidiactl", "/dev/nvidia-modeset"
UVM_FILE, UVM_TOOLS_FILE = "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"
CONTROL = (MODESET_FILE, UVM_TOOLS_FILE, UVM_FILE, CONTROL_FILE)
CAPABILITY = "/dev/nvidia-caps/nvidia-cap"
IMEX_CHANNEL = "/dev/nvidia-caps-imex-channels/channel"
FOLDERS = ("/dev", "/dev/nvidia-caps", "/dev/nvidia-caps-imex-channels")
EVERY = ("/dev/nvidia*", f"{CAPABILITY}*", f"{IMEX_CHANNEL}*")  # patterns

# how the name of a device file begins, and what its module is called in /proc/devices; the longest beginning
# comes first
OWNERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("/dev/nvidia-caps-imex-channels/", ("nvidia-caps-imex-channels",)),
    ("/dev/nvidia-caps/", ("nvidia-caps",)),
    ("/dev/nvidia-nvswitch", ("nvidia-nvswitch",)),
    ("/dev/nvidia-uvm", ("nvidia-uvm",)),
    ("/dev/nvidia-fs", ("nvidia-fs",)),
    ("/dev/nvidia", DRIVER),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFile:
    """A character device that has to be at `path`, below a dev root."""

    path: str
    major: int
    minor: int

    @property
    def numbers(self) -> tuple[int, int]:
        return self.major, self.minor

    def __str__(self) -> str:
        return f"{self.path} ({self.major}:{self.minor})"


def device_majors(text: str) -> dict[str, int]:
    """The character devices of /proc/devices whose name starts with 'nvidia', with their majors."""
    # block devices have majors of their own; they come second
    characters = text.partition("Block devices:")[0]
    pairs = [line.split() for line in characters.splitlines()]
    return {
        pair[1]: int(pair[0])
        for pair in pairs
        if len(pair) == 2 and pair[0].isdecimal() and pair[1].startswith("nvidia")
    }


def owners_of(path: str) -> tuple[str, ...]:
    """Names in /proc/devices, of which one has to be there for this device file to work.

    It is () for a file that is not NVIDIA's.
    """
    return next((names for start, names in OWNERS if path.startswith(start)), ())


def driver_major(majors: Mapping[str, int]) -> int:
    """The driver's major. Raises Unavailable where no driver is loaded."""
    for name in DRIVER:
        if name in majors:
            return majors[name]
    raise Unavailable(
        "no NVIDIA devices found",
        details=[f"/proc/devices has neither {' nor '.join(DRIVER)}"],
        resolution="load the driver first (driverctl load), or add --load-kernel-modules",
    )


def control_files(majors: Mapping[str, int]) -> tuple[DeviceFile, ...]:
    """nvidiactl, nvidia-modeset and, where that module is loaded, the two files of nvidia-uvm.

    Raises Unavailable where no driver is loaded.
    """
    driver = driver_major(majors)
    files = [(CONTROL_FILE, driver, CONTROL_MINOR), (MODESET_FILE, driver, MODESET_MINOR)]
    uvm = majors.get("nvidia-uvm")
    if uvm is not None:
        files += [(UVM_FILE, uvm, UVM_MINOR), (UVM_TOOLS_FILE, uvm, UVM_TOOLS_MINOR)]
    return tuple(DeviceFile(path=path, major=major, minor=minor) for path, major, minor in files)


def gpu_file(minor: int) -> str:
    """/dev/nvidiaN of a GPU."""
    return f"/dev/nvidia{minor}"


def gpu_files(majors: Mapping[str, int], minors: Iterable[int]) -> tuple[DeviceFile, ...]:
    """/dev/nvidiaN of the GPUs with these minors. Raises Unavailable where no driver is loaded."""
    driver = driver_major(majors)
    return tuple(DeviceFile(path=gpu_file(minor), major=driver, minor=minor) for minor in sorted(minors))


def capability_files(majors: Mapping[str, int], minors: Iterable[int]) -> tuple[DeviceFile, ...]:
    """MIG's capability devices; none where the driver has no major for them."""
    major = majors.get("nvidia-caps")
    if major is None:
        return ()
    return tuple(
        DeviceFile(path=f"{CAPABILITY}{minor}", major=major, minor=minor) for minor in sorted(minors)
    )


def char_devices(view: DriverView, patterns: Iterable[str]) -> tuple[str, ...]:
    """Character devices below the dev root that fit one of the patterns, each once.

    Only the last component of a pattern may have wildcards.
    """
    return tuple(dict.fromkeys(path for pattern in patterns for path in _fitting(view, pattern)))


def _fitting(view: DriverView, pattern: str) -> Iterator[str]:
    folder = dirname(pattern)
    for name in view.dev.list_dir(folder):
        path = f"{folder}/{name}"
        if fnmatchcase(path, pattern) and view.dev.device_number(path):
            yield path
