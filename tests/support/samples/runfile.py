"""NVIDIA's two kinds of archives in miniature, with nothing of NVIDIA's in them.

The runfile unpacks itself and has all of the user space in one folder, with a `.manifest` of it. The
redistributable archive is a tar.xz with the same files sorted into folders (the layout is the one that
siderolabs/extensions takes apart in nvidia-pkgs/production/pkg.yaml). Both hold the installer; this one says
that it is a fixture, wants each file of the manifest beside itself as NVIDIA's does, notes its arguments and
puts one file into place.
"""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
from collections.abc import Mapping
from pathlib import Path

from support.samples.tinydriver import DOUBLE, sources

INSTALLER = """\
#!/bin/sh
echo "nvidia-installer: a fixture of driverforge's tests, not NVIDIA's"
tail -n +3 .manifest | while read -r file; do
	[ -e "$file" ] || { echo "fixture: $file of the manifest is not there" >&2; exit 1; }
done || exit 1
mkdir -p /usr/share/nvidia
echo "$*" >/usr/share/nvidia/installer-arguments
printf '#!/bin/sh\\necho "nvidia-smi: a fixture"\\n' >/usr/bin/nvidia-smi
chmod 755 /usr/bin/nvidia-smi
echo log >/var/log/nvidia-installer.log
mkdir -p /tmp/null
"""
HEAD = """\
#!/bin/sh
# a fixture of driverforge's tests with the options of NVIDIA's archive that are used here
label="NVIDIA Accelerated Graphics Driver for Linux-MACHINE VERSION"
set -e
while [ $# -gt 0 ]; do
	case $1 in
	-x | --extract-only) extract=1 ;;
	--target) target=$2; shift ;;
	*) echo "fixture: unknown option $1" >&2; exit 1 ;;
	esac
	shift
done
[ -n "${extract:-}" ] || { echo "fixture: only extracts" >&2; exit 1; }
mkdir "$target"
tail -n +LINES "$0" | tar -x -z -C "$target"
exit 0
"""


_MANIFEST = (
    "nvidia-installer",
    "nvidia-smi",
    "libcuda.so.1",
    "README.txt",
    "html/index.html",
    "nvidia-smi.1.gz",
)
_FOLDERS = {
    "bin": ("nvidia-installer", "nvidia-smi"),
    "lib": ("libcuda.so.1",),
    "man/man1": ("nvidia-smi.1.gz",),
}
_RENAMED = {".manifest": "MANIFEST", "README.txt": "README", "html/index.html": "docs/index.html"}


def _files(version: str) -> dict[str, str]:
    """Path in a runfile to content."""
    return {
        ".manifest": "\n".join(("NVIDIA Accelerated Graphics Driver", version, *_MANIFEST)) + "\n",
        "LICENSE": DOUBLE,
        **dict.fromkeys(_MANIFEST, DOUBLE),
        "nvidia-installer": INSTALLER,
        "firmware/gsp_tu10x.bin": DOUBLE,
        **sources("kernel-open", version),
        **sources("kernel", version),
    }


def _tar(files: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            entry.mode = 0o755 if name.endswith("nvidia-installer") else 0o644
            # a build system's user, who is nobody in an image
            entry.uid = entry.gid = 5000
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


def write_runfile(path: Path, version: str, machine: str = "x86_64") -> None:
    """Make NVIDIA-Linux-MACHINE-VERSION.run."""
    head = HEAD.replace("LINES", str(HEAD.count("\n") + 1))
    head = head.replace("MACHINE", machine).replace("VERSION", version)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head.encode() + gzip.compress(_tar(_files(version)), mtime=0))


def write_redistributable(path: Path, version: str, machine: str = "x86_64") -> None:
    """Make nvidia_driver-linux-MACHINE-VERSION-archive.tar.xz; the machine of arm64 is 'sbsa'."""
    top = f"nvidia_driver-linux-{machine}-{version}-archive"
    sorted_in = {name: f"{folder}/{name}" for folder, names in _FOLDERS.items() for name in names}
    files = {
        f"{top}/{sorted_in.get(name) or _RENAMED.get(name, name)}": text
        for name, text in _files(version).items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(_tar(files)))
