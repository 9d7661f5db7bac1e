"""What may stand in the lock: texts that a Dockerfile and a shell take as one word, digests, sizes.

Asked of what repositories offer before it is pinned or looked for, and of a lock file when it is read: what
is written can be read again. All raise ValueError, which says where and what.
"""

from __future__ import annotations

import hashlib
import re

from driverforge_build.lock.pins import LockedPackage
from driverforge_build.ports import Algorithm, Sum, sha256_sum

# a program would take one that begins with - for an option
_WORD = re.compile(r"[A-Za-z0-9._+~:/@%^=,{}][A-Za-z0-9._+~:/@%^=,{}-]*")
_HEXADECIMAL = re.compile(r"[0-9a-f]+")
_DIGITS = {one: 2 * hashlib.new(one.value).digest_size for one in Algorithm}


def word(where: str, what: str, value: object) -> str:
    """A text that may stand in a Dockerfile or in a list of pins, which a shell reads word by word."""
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise ValueError(
            f"{where}: {what} {value!r} is no word of letters, digits and . _ + ~ - : / @ % ^ = , {{ }}"
        )
    return value


def sha256(where: str, value: str) -> str:
    """A digest. It becomes the name of a file in the cache, so nothing else may be one."""
    return any_sum(where, sha256_sum(value)).digest


def any_sum(where: str, value: Sum) -> Sum:
    """A sum with as many digits as its algorithm makes."""
    digits = _DIGITS[value.algorithm]
    if len(value.digest) != digits or not _HEXADECIMAL.fullmatch(value.digest):
        raise ValueError(
            f"{where}: {value.algorithm.value} {value.digest!r} is not {digits} hexadecimal digits"
        )
    return value


def size(where: str, value: int) -> int:
    if value < 0:
        raise ValueError(f"{where}: the size {value} is less than nothing")
    return value


def sound_package(package: LockedPackage) -> LockedPackage:
    """The package, if all that it says may stand in the lock."""
    for what in ("name", "version", "arch", "path", "suite"):
        word(package.key, what, getattr(package, what))
    if ".." in package.path.split("/"):
        raise ValueError(f"{package.key}: the path {package.path!r} leaves the archive")
    sha256(package.key, package.sha256)
    size(package.key, package.size)
    return package
