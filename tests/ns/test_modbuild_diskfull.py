"""A disk that fills up while compiling, with the compiler's real words.

The work folder is a small file system in a namespace.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import driverctl
from driverforge_core.driverversion import DriverVersion
from driverforge_core.image import ImageFacts
from driverforge_core.osid import OsId
from support.fakes.mockpath import MockPath
from support.process import Finished, missing, run
from support.samples.aptrepo import Deb, build_deb

RELEASE = "6.1.0-50-cloud-amd64"
TREE = f"usr/src/linux-headers-{RELEASE}"
# fills what is left of the file system, then compiles on it
MAKEFILE = """modules:
	-dd if=/dev/zero of=fill bs=1M 2>/dev/null
	$(CC) -c -g nvidia/nv.c -o nvidia/nv.o
"""
SMALL = 300  # MiB: more than driverctl asks for before it begins


def namespaces() -> str:
    """Why there are no user namespaces here, '' where there are."""
    if gone := missing("unshare", "dpkg-deb", "make", "cc"):
        return f"not installed: {', '.join(gone)}"
    tried = run(
        "unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt", check=False
    )
    return "" if tried.status == 0 else f"no user namespaces: {tried.stderr.strip()}"


WHY_NOT = namespaces()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


def build_on_a_small_disk(folder: Path, size: int) -> Finished:
    sources = folder / "src"
    (sources / "nvidia").mkdir(parents=True)
    (sources / "Makefile").write_text(MAKEFILE)
    (sources / "nvidia/nv.c").write_text("".join(f"int f{n}(void) {{ return {n}; }}\n" for n in range(2000)))
    facts = ImageFacts(
        os=OsId.parse("debian12"),
        arch="amd64",
        driver=DriverVersion("535.261.03"),
        payload="packages",
        module_types=("open",),
        variant="jit",
        kernels=(),
        sources={"open": str(sources)},
        firmware="",
    )
    (folder / "image.json").write_text(facts.to_json())
    files = {f"{TREE}/.config": 'CONFIG_CC_VERSION_TEXT="cc 12"\n', f"{TREE}/Makefile": "all:\n"}
    build_deb(Deb(name=f"linux-headers-{RELEASE}", version="1", files=files), folder / "debs/headers.deb")
    tools = MockPath(folder / "bin")
    tools.add("update-ca-certificates")  # a machine's own certificates are none of our business
    (folder / "work").mkdir()
    arguments: list[str | Path] = [
        "--kernel",
        RELEASE,
        "-j1",
        "--image",
        folder / "image.json",
        "--headers",
        folder / "debs",
        "--output",
        folder / "out",
    ]
    program = "from driverctl.cli import main; main()"
    return run(
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs -o size="$1"M none "$2" && shift 2 && exec "$@"',
        "sh",
        str(size),
        folder / "work",
        sys.executable,
        "-c",
        program,
        "build",
        *arguments,
        "--work-dir",
        folder / "work",
        env=tools.environ({"PYTHONPATH": str(Path(driverctl.__file__).parents[1])}),
        check=False,
    )


def test_one_message_with_the_compilers_own_words(tmp_path: Path) -> None:
    ended = build_on_a_small_disk(tmp_path, SMALL)
    message = ended.stderr[ended.stderr.index("error: disk full while compiling") :]
    assert ended.status == 74
    assert "No space left on device" in message
    assert "next: free space in the work folder" in message
    assert not list(tmp_path.rglob("*.ko"))
    assert not (tmp_path / "out").exists()


def test_a_disk_that_is_too_small_is_seen_first(tmp_path: Path) -> None:
    ended = build_on_a_small_disk(tmp_path, 100)
    assert ended.status == 74
    assert "error: not enough space to compile: " in ended.stderr
    assert "--work-dir" in ended.stderr
