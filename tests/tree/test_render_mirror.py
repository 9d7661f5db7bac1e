"""Debian's manager, the half of fetch-pinned that asks apt: from which mirror a suite comes, and that its
password is in no file.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from driverforge_build import resources

MANAGER = resources.templates() / "debian/manager"
BOTH = (
    "http://deb.site/debian bookworm\nhttp://deb.site/debian "
    "bookworm-updates\nhttp://sec.site/debian-security bookworm-security\n"
)
needs_apt = pytest.mark.skipif(not Path("/usr/lib/apt/apt-helper").exists(), reason="no apt here")


@pytest.mark.parametrize(
    ("configured", "suite", "address"),
    [
        (BOTH, "bookworm", "http://deb.site/debian"),
        (BOTH, "bookworm-security", "http://sec.site/debian-security"),
        # not configured: the archive of the same distribution has it
        (BOTH, "bookworm-backports", "http://deb.site/debian"),
        ("http://deb.site/debian/ bookworm\n", "bookworm-security", "http://deb.site/debian-security"),
        # Ubuntu keeps it in the same archive
        ("http://deb.site/ubuntu jammy\n", "jammy-security", "http://deb.site/ubuntu"),
        (
            "http://third.site/cuda ./\nhttp://deb.site/debian bookworm\n",
            "bookworm",
            "http://deb.site/debian",
        ),
        ("http://deb.site/debian bookworm\n", "trixie", ""),
        ("http://own.site/debian *\n", "bookworm", "http://own.site/debian"),
        ("http://own.site/debian *\n", "bookworm-security", "http://own.site/debian-security"),
        (
            "http://own.site/debian *\nhttp://own.site/sec bookworm-security\n",
            "bookworm-security",
            "http://own.site/sec",
        ),
    ],
)
def test_the_mirror_of_a_suite_is_what_apt_is_configured_with(
    configured: str, suite: str, address: str
) -> None:
    script = f". {MANAGER}; mirror_in {suite}"
    done = subprocess.run(["sh", "-ec", script], input=configured, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == address


def configured(folder: Path, *lists: str) -> dict[str, str]:
    """The environment in which apt reads these files of sources.list.d, in their order, and nothing of the
    machine's.
    """
    parts = folder / "etc/sources.list.d"
    parts.mkdir(parents=True)
    (folder / "lists/partial").mkdir(parents=True)
    for number, text in enumerate(lists):
        (parts / f"{number}.{'sources' if text.startswith('Types') else 'list'}").write_text(text)
    settings = {"Dir::Etc": "etc", "Dir::Cache": "cache", "Dir::State::Lists": "lists"}
    (folder / "apt.conf").write_text(
        "".join(f'{name} "{folder / place}";\n' for name, place in settings.items())
    )
    return {"PATH": os.environ["PATH"], "APT_CONFIG": str(folder / "apt.conf")}


@needs_apt
@pytest.mark.parametrize(
    "vendor",
    [
        "https://vendor.site/debian bookworm stable",
        "https://vendor.site/apt bookworm main",
        "http://third.site/cuda ./",
    ],
)
def test_a_vendors_repository_in_the_base_is_not_the_distributions(tmp_path: Path, vendor: str) -> None:
    debian = (
        "Types: deb\nURIs: http://deb.site/debian\nSuites: bookworm bookworm-updates\nComponents: main "
        "contrib\n"
    )
    environment = configured(tmp_path, debian, f"deb {vendor}\n")
    script = f". {MANAGER}; repositories | mirror_in bookworm"
    done = subprocess.run(["sh", "-ec", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "http://deb.site/debian"


@contextmanager
def mirror(content: bytes, store: Path, seen: list[bytes], *, status: int = 200) -> Iterator[int]:
    """A server of one file on 127.0.0.1, its port; `seen` gets what all files of the store hold while a
    client waits for an answer.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(b"".join(path.read_bytes() for path in store.rglob("*") if path.is_file()))
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_request(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@needs_apt
@pytest.mark.parametrize(
    ("status", "said", "expected"),
    [
        (0, "Could not connect", 75),
        (503, "503  Service Unavailable", 75),
        (429, "429  Too Many Requests", 75),
        (404, "404  Not Found", 1),
        (403, "403  Forbidden", 1),
    ],
)
def test_a_mirror_that_is_away_or_busy_ends_the_build_as_one_to_try_again(
    tmp_path: Path, status: int, said: str, expected: int
) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for file in (MANAGER, resources.templates() / "scripts/fetch-pinned"):
        shutil.copy(file, scripts)
    # apt asks three times more, after a second, two and four
    text = (scripts / "manager").read_text()
    (scripts / "manager").write_text(text.replace("Acquire::Retries=3", "Acquire::Retries=0"))
    (tmp_path / "list").write_text(f"{'0' * 64} 1 bookworm pool/kmod_1.deb kmod 1\n")
    with mirror(b"", tmp_path / "store", [], status=status or 200) as port:
        served = port if status else 1
        environment = configured(tmp_path, f"deb http://127.0.0.1:{served}/debian bookworm main\n")
        words = [scripts / "fetch-pinned", "download", tmp_path / "list", tmp_path / "debs"]
        environment["DRIVERFORGE_STORE"] = str(tmp_path / "store")
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert said in done.stderr
    assert done.returncode == expected


@needs_apt
def test_the_mirrors_password_is_in_no_file_of_the_store_while_a_package_is_downloaded(
    tmp_path: Path,
) -> None:
    scripts, store, seen = tmp_path / "scripts", tmp_path / "store", list[bytes]()
    scripts.mkdir()
    for file in (MANAGER, resources.templates() / "scripts/fetch-pinned"):
        shutil.copy(file, scripts)
    content = b"a package"
    pinned = f"{hashlib.sha256(content).hexdigest()} {len(content)} bookworm pool/kmod_1.deb kmod 1\n"
    (tmp_path / "list").write_text(pinned)
    with mirror(content, store, seen) as port:
        environment = configured(tmp_path, f"deb http://user:secret@127.0.0.1:{port}/debian bookworm main\n")
        words = [scripts / "fetch-pinned", "download", tmp_path / "list", tmp_path / "debs"]
        environment["DRIVERFORGE_STORE"] = str(store)
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "debs/kmod_1.deb").read_bytes() == content
    assert [pinned.encode() in files for files in seen] == [True]
    assert not [files for files in seen if b"secret" in files]
