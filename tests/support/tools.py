"""What each test tier needs of a Debian machine beyond Python, and how it gets there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping

from driverforge_core.errors import CommandFailed, Unavailable
from support.process import run

# program → Debian package
_SIGN = {"gpg": "gpg", "dpkg-deb": "dpkg"}
_ARCHIVE = {
    **_SIGN,
    "gpgv": "gpgv",
    "apt-ftparchive": "apt-utils",
    "xz": "xz-utils",
    "openssl": "openssl",
    "modinfo": "kmod",
}
_RPM = {
    "rpmkeys": "rpm",
    "rpmbuild": "rpm",
    "rpmsign": "rpm",
    "rpm2cpio": "rpm2cpio",
    "cpio": "cpio",
}
_INDEX = {"createrepo_c": "createrepo-c", "modifyrepo_c": "createrepo-c", "zstd": "zstd"}
_TOKEN = {"softhsm2-util": "softhsm2", "pkcs11-tool": "opensc"}
# without dnf-plugins-core, which breaks zypper in Debian
_MANAGERS = {"createrepo_c": "createrepo-c", "dnf": "dnf", "zypper": "zypper"}
_SERVERS = {"docker-registry": "docker-registry", "setpriv": "util-linux", "unshare": "util-linux"}
_BOOTSTRAP = {"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs"}
# a browser that lays out text wants a font
_BROWSER = {"chromium": "chromium", "fc-list": "fontconfig"}
_COMPILE = {"gcc-12": "gcc-12", "make": "make", "strip": "binutils", "openssl": "openssl"}
_GUEST = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "busybox": "busybox-static",
    "depmod": "kmod",
    "kmod": "kmod",
}

TIERS: Mapping[str, Mapping[str, str]] = {
    "unit": {},
    "tree": {**_ARCHIVE, **_RPM, **_INDEX, **_SERVERS, **_TOKEN, **_BROWSER, "dnf": "dnf"},
    "ns": {"unshare": "util-linux"},
    "engine": {
        **_SERVERS,
        **_ARCHIVE,
        **_RPM,
        **_INDEX,
        **_MANAGERS,
        **_BOOTSTRAP,
        **_COMPILE,
        "skopeo": "skopeo",
    },
    "vm": {
        **_GUEST,
        **_BOOTSTRAP,
        **_COMPILE,
        **_SIGN,
        "setpriv": "util-linux",
        "qemu-system-aarch64": "qemu-system-arm",
    },
    "cluster": {
        **_GUEST,
        **_BOOTSTRAP,
        **_COMPILE,
        **_SIGN,
        "setpriv": "util-linux",
        "unshare": "util-linux",
    },
    "lint": {},
}


def missing(tiers: Iterable[str]) -> dict[str, str]:
    """Programs that tiers need and PATH has not: program → Debian package."""
    needed = {program: package for tier in tiers for program, package in TIERS[tier].items()}
    return {
        program: package
        for program, package in sorted(needed.items())
        if shutil.which(program, path=_path()) is None
    }


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"  # where a user's PATH may end, root's programs are


def why_not_installable() -> str:
    """Why packages cannot be installed here, '' when they can."""
    if shutil.which("apt-get") is None:
        return "no apt-get here"
    return "" if os.geteuid() == 0 else "not root"


def install(packages: Iterable[str]) -> None:
    """apt-get update and install. Raises Unavailable or CommandFailed with what apt-get said."""
    if why := why_not_installable():
        raise Unavailable(
            f"packages are missing and cannot be installed: {why}", details=sorted(set(packages))
        )
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    run("apt-get", "-qq", "update", env=quiet)
    done = run(
        "apt-get",
        "-qq",
        "install",
        "-y",
        "--no-install-recommends",
        *sorted(set(packages)),
        env=quiet,
        check=False,
    )
    if done.status != 0:
        raise CommandFailed("apt-get could not install the packages", details=[done.stdout, done.stderr])
