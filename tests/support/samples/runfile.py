"""A self-extracting archive of the shape of NVIDIA's, with nothing of NVIDIA's in it.

It holds `.manifest`, `kernel-open`, `kernel`, `firmware` and an installer. The installer says that it is a
fixture, notes its arguments and puts one file into place.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from support.samples.tinydriver import DOUBLE, sources

INSTALLER = """\
#!/bin/sh
echo "nvidia-installer: a fixture of driverforge's tests, not NVIDIA's"
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


def write_runfile(path: Path, version: str) -> None:
    """Make NVIDIA-Linux-x86_64-VERSION.run in miniature."""
    files = {
        ".manifest": f"NVIDIA Accelerated Graphics Driver\n{version}\n",
        "LICENSE": DOUBLE,
        "firmware/gsp_tu10x.bin": DOUBLE,
        "nvidia-installer": INSTALLER,
        **sources("kernel-open", version),
        **sources("kernel", version),
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            entry.mode = 0o755 if name == "nvidia-installer" else 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
    head = HEAD.replace("LINES", str(HEAD.count("\n") + 1))
    path.write_bytes(head.encode() + packed.getvalue())
