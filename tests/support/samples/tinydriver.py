"""A driver in miniature that goes through a real image build.

Debian's interpreter, compiler and kernel headers are real. Test doubles stand in the place of NVIDIA's
packages: a user space of one file, firmware of a few bytes, and the bench's mock modules as sources. The
driver's real libraries may lie beside the one file. The packages are served as a site's mirror may serve
them: on https, with a certificate of the test's own, to whoever knows the password.
"""

from __future__ import annotations

import base64
import hashlib
import ssl
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from driverforge_build.lock.pins import Lock, LockedPackage, Role
from support.process import run
from support.samples.aptrepo import Deb, build_deb

DRIVER = "535.261.03"
SUITE, PLAIN_SUITE = "tiny", "tiny-plain"
PLAIN_MIRROR = "http://plain.site"  # a name that only the proxy knows
MODULES = Path(__file__).resolve().parents[2] / "vm/modules/mock"
DOUBLE = "a test double of driverforge, none of NVIDIA's files\n"
PROGRAMS = frozenset({"nvidia-smi", "nvidia-modprobe", "nvidia-persistenced"})
"""What of the real user space talks to the modules: the mocks have no answer for it."""

MAKEFILE = """\
SYSSRC ?= /lib/modules/$(KERNEL_UNAME)/source
SYSOUT ?= /lib/modules/$(KERNEL_UNAME)/build
modules:
	$(MAKE) -C $(SYSSRC) KBUILD_OUTPUT=$(SYSOUT) M=$(CURDIR) CC=$(CC) KCFLAGS="$(KCFLAGS)" \
CONFIG_DEBUG_INFO_BTF_MODULES= modules
"""
KBUILD = """\
obj-m := nvidia.o nvidia-uvm.o nvidia-modeset.o
ccflags-y += -DMOCK_VERSION=\\"@\\"
"""
DKMS = """\
PACKAGE_NAME="nvidia-current-open"
PACKAGE_VERSION="@"
BUILT_MODULE_NAME[0]="nvidia"
DEST_MODULE_LOCATION[0]="/updates/dkms"
MAKE[0]="make modules KERNEL_UNAME=$kernelver"
CLEAN="true"
"""


def sources(tree: str, version: str = DRIVER) -> dict[str, str]:
    """A source tree as NVIDIA's packages have it.

    It has a folder for each module, `make modules` with SYSSRC and SYSOUT or KERNEL_UNAME, a file for DKMS.
    """
    files = {path.name: path.read_text() for path in MODULES.glob("*.[ch]")}
    marks = {f"{name}/double": DOUBLE for name in ("nvidia", "nvidia-uvm", "nvidia-modeset")}
    everything = {
        **files,
        **marks,
        "conftest.sh": DOUBLE,
        "Makefile": MAKEFILE,
        "Kbuild": KBUILD.replace("@", version),
        "dkms.conf": DKMS.replace("@", version),
    }
    return {f"{tree}/{name}": text for name, text in everything.items()}


def roles(salt: str) -> dict[Role, tuple[Deb, ...]]:
    """The driver's packages.

    `salt` goes into each: an engine that has built them with another salt has to get these anew.
    """
    version, mark = f"{DRIVER}-1", DOUBLE + salt + "\n"
    return {
        "userspace": (Deb(name="nvidia-smi", version=version, files={"usr/share/nvidia/double": mark}),),
        "firmware": (
            Deb(
                name="firmware-nvidia-gsp",
                version=version,
                files={f"lib/firmware/nvidia/{DRIVER}/gsp_tu10x.bin": mark},
            ),
        ),
        "source": tuple(
            Deb(name=name, version=version, files={**sources(tree), f"{tree}/salt": mark})
            for name, tree in (
                ("nvidia-open-kernel-dkms", f"usr/src/nvidia-current-open-{DRIVER}"),
                ("nvidia-kernel-dkms", f"usr/src/nvidia-current-{DRIVER}"),
            )
        ),
    }


def publish(deb: Deb, folder: Path, suite: str = SUITE) -> LockedPackage:
    """Build a package into a served folder, and pin it."""
    path = f"pool/{deb.name}_{deb.version}_{deb.arch}.deb"
    if not (folder / path).exists():
        build_deb(deb, folder / path)
    data = (folder / path).read_bytes()
    return LockedPackage(
        name=deb.name,
        version=deb.version,
        arch=deb.arch,
        path=path,
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        suite=suite,
    )


def tiny_lock(lock: Lock, folder: Path, salt: str, *, libraries: bool = False) -> Lock:
    """A real lock of debian12-amd64 with the driver's own packages replaced by ours.

    The packages are put into `folder`. Firmware is of PLAIN_SUITE, on http; all else is of SUITE, on https.
    With `libraries` it has NVIDIA's, from Debian's non-free.
    """
    target = lock.targets["debian12-amd64"]
    real = target.drivers[DRIVER]
    suites = {"firmware": PLAIN_SUITE}
    ours = {
        role: tuple(publish(deb, folder, suites.get(role, SUITE)) for deb in debs)
        for role, debs in roles(salt).items()
    }
    if libraries:
        theirs = (one for one in real["userspace"] if one.name not in PROGRAMS)
        ours["userspace"] = (*ours["userspace"], *theirs)
    return lock.with_targets(
        [replace(target, drivers={DRIVER: {"tools": real["tools"], "toolchain": real["toolchain"], **ours}})]
    )


@dataclass(slots=True)
class Site:
    """A site's mirror and proxy while they run.

    `mirrored` and `proxied` are the paths and addresses asked for.
    """

    mirror: str
    proxy: str
    authorities: Path
    mirrored: list[str] = field(default_factory=list)
    proxied: list[str] = field(default_factory=list)


MIRROR_LOGIN = ("mirror-user", "mirror-pass-word")
PROXY_LOGIN = ("proxy-user", "proxy-pass-word")


def _basic(login: tuple[str, str]) -> str:
    return "Basic " + base64.b64encode(":".join(login).encode()).decode()


@contextmanager
def site(folder: Path, work: Path) -> Iterator[Site]:
    """Serve `folder` on https with a login, and forward http with another.

    Both logins are in the addresses. The certificate is put into `work`.
    """
    work.mkdir(parents=True, exist_ok=True)
    certificate, key = work / "site.pem", work / "site.key"
    request = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "30",
        "-subj",
        "/CN=driverforge test site",
    ]
    run(*request, "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", certificate)
    made = Site(mirror="", proxy="", authorities=certificate)

    class Mirror(SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(folder))  # type: ignore[arg-type]

        def do_GET(self) -> None:
            if self.headers.get("Authorization") != _basic(MIRROR_LOGIN):
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="mirror"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            made.mirrored.append(self.path)
            super().do_GET()

        def log_message(self, *_: object) -> None: ...

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.headers.get("Proxy-Authorization") != _basic(PROXY_LOGIN):
                self.send_error(407)
                return
            made.proxied.append(self.path)
            if self.path.startswith(PLAIN_MIRROR):
                data = (folder / self.path.removeprefix(PLAIN_MIRROR).lstrip("/")).read_bytes()
            else:
                direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
                with direct.open(self.path) as answer:
                    data = answer.read()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), handler) for handler in (Mirror, Proxy)]
    servers[0].socket = context.wrap_socket(servers[0].socket, server_side=True)
    made.mirror = f"https://{':'.join(MIRROR_LOGIN)}@localhost:{servers[0].server_address[1]}"
    made.proxy = f"http://{':'.join(PROXY_LOGIN)}@127.0.0.1:{servers[1].server_address[1]}"
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield made
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
