"""The lock file: read, merged with what another run wrote meanwhile, and replaced whole."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from driverforge_build.advice import Given
from driverforge_build.lock.pins import (
    HeaderFact,
    Lock,
    LockedArchive,
    LockedBase,
    LockedKernel,
    LockedPackage,
    LockedRepository,
    Origin,
    TargetLock,
)
from driverforge_build.sharedfile import alone, replace_text
from driverforge_core.errors import InputError

SCHEMA = 1


DEFAULTS = Given()


_WORD = re.compile(r"[A-Za-z0-9._+~:/@%^=,{}-]+")


_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


# one package on one line: a path, a digest, a suite
_LINE = 320


def load_lock(
    path: Path, *, matrix: Path | None = None, select: Sequence[str] = (), skip: Sequence[str] = ()
) -> Lock:
    """Read a lock file. A missing, damaged or newer file is an InputError that names the command to run.

    `matrix`, `select`, `skip`: what the user's command says; the command that makes a missing lock says the
    same. The one that replaces a damaged lock selects nothing: it makes all of it.
    """
    given = Given(matrix=matrix, lock=path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        command = given.command("lock", select=select, skip=skip)
        raise InputError(
            f"there is no lock file {path}",
            resolution=f"{command}   (finds kernels and packages in signed repositories and pins them)",
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 text",
            details=[f"{path}: byte {error.start}: {error.reason}"],
            resolution=_again(given),
        ) from None
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}",
            resolution="give yourself the right to read it, or name another with --lock",
        ) from error
    return parse_lock(text, given)


def _again(given: Given, otherwise: str = "take the file from version control") -> str:
    """What to do about a file that cannot be read.

    It has to go: `lock` compares what it finds with the pins that are there.
    """
    return f"{otherwise}, or remove it and run: {given.command('lock')}"


def parse_lock(text: str, given: Given = DEFAULTS) -> Lock:
    """The lock in a text; InputError if it is not one, named as the given lock file."""
    name = given.lock
    try:
        document = json.loads(text)
        if (schema := document["schema"]) != SCHEMA:
            raise InputError(
                f"{name} has schema {schema}; this program reads schema {SCHEMA}",
                resolution=_again(given, "use the version of driverforge that wrote it"),
            )
        # a former version wrote no archives
        return Lock(
            targets={key: _target(key, value) for key, value in document["targets"].items()},
            archives={key: _archive(key, value) for key, value in document.get("archives", {}).items()},
        )
    except json.JSONDecodeError as error:
        raise InputError(
            f"{name} is not JSON", details=[f"{name}:{error.lineno}: {error.msg}"], resolution=_again(given)
        ) from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise InputError(
            f"{name} is damaged", details=[f"{type(error).__name__}: {error}"], resolution=_again(given)
        ) from None


def dump_lock(lock: Lock) -> str:
    """The file's text: the same lock gives the same bytes."""
    targets = {key: _target_document(target) for key, target in lock.targets.items()}
    archives = {key: _archive_document(archive) for key, archive in lock.archives.items()}
    return _render({"schema": SCHEMA, "targets": targets, "archives": archives}, "") + "\n"


def _target(key: str, value: Mapping[str, Any]) -> TargetLock:
    packages = {pin: _package(pin, entry) for pin, entry in value["packages"].items()}
    os_key, _, arch = key.rpartition("-")
    return TargetLock(
        os=os_key,
        arch=arch,
        repositories=tuple(_repository(entry) for entry in value["repositories"]),
        drivers={
            driver: {role: tuple(packages[pin] for pin in pins) for role, pins in roles.items()}
            for driver, roles in value["drivers"].items()
        },
        kernels={
            release: LockedKernel(
                release=release,
                flavour=entry["flavour"],
                compiler=_word(release, "compiler", entry["compiler"]),
                headers=tuple(packages[pin] for pin in entry["headers"]),
                image=packages[entry["image"]] if entry["image"] else None,
                # a former version pinned the image alone
                modules=tuple(packages[pin] for pin in entry.get("modules", ())),
                vendor={
                    driver: tuple(packages[pin] for pin in pins) for driver, pins in entry["vendor"].items()
                },
            )
            for release, entry in value["kernels"].items()
        },
        header_facts={
            pin: {
                question: HeaderFact(breaks=fact["breaks"], found=fact["found"])
                for question, fact in facts.items()
            }
            for pin, facts in value["header_facts"].items()
        },
        without_headers=tuple(value["without_headers"]),
        base=_base(value["base"]) if "base" in value else None,
    )


def _archive(key: str, entry: Mapping[str, Any]) -> LockedArchive:
    version, _, arch = key.rpartition("-")
    url = _word(key, "url", entry["url"])
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{key}: {url!r} is no web address")
    if date := entry.get("date", ""):
        datetime.fromisoformat(date)
    return LockedArchive(
        version=_word(key, "version", version),
        arch=_word(key, "arch", arch),
        url=url,
        sha256=_sha256(key, entry),
        size=_size(key, entry),
        origin=Origin(entry["origin"]),
        source=str(entry["source"]),
        date=date,
        accepted=str(entry.get("accepted", "")),
    )


def _sha256(pin: str, entry: Mapping[str, Any]) -> str:
    sha256 = str(entry["sha256"])
    if len(sha256) != 64 or set(sha256) - set("0123456789abcdef"):
        raise ValueError(f"{pin}: sha256 {sha256!r} is not 64 hexadecimal digits")
    return sha256


def _size(pin: str, entry: Mapping[str, Any]) -> int:
    if (size := int(entry["size"])) < 0:
        raise ValueError(f"{pin}: the size {size} is less than nothing")
    return size


def _package(pin: str, entry: Mapping[str, Any]) -> LockedPackage:
    name, _, version = pin.partition("=")
    path = _word(pin, "path", entry["path"])
    if ".." in path.split("/"):
        raise ValueError(f"{pin}: the path {path!r} leaves the archive")
    return LockedPackage(
        name=_word(pin, "name", name),
        version=_word(pin, "version", version),
        arch=_word(pin, "arch", entry["arch"]),
        path=path,
        sha256=_sha256(pin, entry),
        size=_size(pin, entry),
        suite=_word(pin, "suite", entry["suite"]),
    )


def _word(where: str, what: str, value: object) -> str:
    """A text that may stand in a Dockerfile or in a list of pins, which a shell reads word by word."""
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise ValueError(
            f"{where}: {what} {value!r} is no word of letters, digits and . _ + ~ - : / @ % ^ = , {{ }}"
        )
    return value


def _base(entry: Mapping[str, Any]) -> LockedBase:
    digests = {name: entry[name] for name in ("digest", "index")}
    for name, digest in digests.items():
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise ValueError(f"base: {name} {digest!r} is no sha256:<64 hexadecimal digits>")
    return LockedBase(reference=_word("base", "reference", entry["reference"]), **digests)


def _repository(entry: Mapping[str, Any]) -> LockedRepository:
    if entry["date"]:
        datetime.fromisoformat(entry["date"])
    return LockedRepository(
        suite=entry["suite"],
        components=tuple(entry["components"]),
        date=entry["date"],
        valid_until=entry["valid_until"],
        signed_by=tuple(entry["signed_by"]),
        inrelease=entry["inrelease"],
        indexes=dict(entry["indexes"]),
    )


def _target_document(target: TargetLock) -> dict[str, Any]:
    named = [package for roles in target.drivers.values() for role in roles.values() for package in role]
    for kernel in target.kernels.values():
        named += [
            *kernel.headers,
            *([kernel.image] if kernel.image else []),
            *kernel.modules,
            *(package for packages in kernel.vendor.values() for package in packages),
        ]
    return {
        "repositories": [_repository_document(repository) for repository in target.repositories],
        "packages": {
            package.key: {
                "arch": package.arch,
                "path": package.path,
                "sha256": package.sha256,
                "size": package.size,
                "suite": package.suite,
            }
            for package in named
        },
        "drivers": {
            driver: {role: sorted(package.key for package in packages) for role, packages in roles.items()}
            for driver, roles in target.drivers.items()
        },
        "kernels": {
            release: {
                "flavour": kernel.flavour,
                "compiler": kernel.compiler,
                "headers": sorted(package.key for package in kernel.headers),
                "image": kernel.image.key if kernel.image else "",
                **({"modules": sorted(one.key for one in kernel.modules)} if kernel.modules else {}),
                "vendor": {
                    driver: sorted(package.key for package in packages)
                    for driver, packages in kernel.vendor.items()
                },
            }
            for release, kernel in target.kernels.items()
        },
        "header_facts": {
            pin: {question: {"breaks": fact.breaks, "found": fact.found} for question, fact in facts.items()}
            for pin, facts in target.header_facts.items()
        },
        "without_headers": sorted(target.without_headers),
        **({"base": asdict(target.base)} if target.base else {}),
    }


def _archive_document(archive: LockedArchive) -> dict[str, Any]:
    return {
        "url": archive.url,
        "sha256": archive.sha256,
        "size": archive.size,
        "origin": archive.origin.value,
        "source": archive.source,
        **({"date": archive.date} if archive.date else {}),
        **({"accepted": archive.accepted} if archive.accepted else {}),
    }


def _repository_document(repository: LockedRepository) -> dict[str, Any]:
    return {
        "suite": repository.suite,
        "components": list(repository.components),
        "date": repository.date,
        "valid_until": repository.valid_until,
        "signed_by": sorted(repository.signed_by),
        "inrelease": repository.inrelease,
        "indexes": dict(repository.indexes),
    }


def _render(value: Any, indent: str) -> str:
    """JSON with sorted keys. An object or list without objects inside stays on one line while it fits."""
    children: list[Any] = (
        list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list) else []
    )
    flat = json.dumps(value, sort_keys=True, ensure_ascii=False)
    if not any(isinstance(child, (dict, list)) for child in children) and (
        not children or len(flat) + len(indent) <= _LINE
    ):
        return flat
    inner = indent + " "
    if isinstance(value, dict):
        lines = [
            f"{inner}{json.dumps(key, ensure_ascii=False)}: {_render(value[key], inner)}"
            for key in sorted(value)
        ]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + _render(child, inner) for child in value) + f"\n{indent}]"


def merge_lock(
    path: Path, targets: Iterable[TargetLock], archives: Iterable[LockedArchive] = (), *, writing: bool
) -> bool:
    """Merge targets and archives into the lock file, and write it if `writing`.

    Returns whether they change it.

    The file is read once more: another run may have written its own targets since. Its pins count: a key
    that a former version wrote is no change.
    """
    with alone(path):
        before = load_lock(path) if path.exists() else None
        merged = dump_lock((before or Lock()).with_targets(targets).with_archives(archives))
        changed = before is None or merged != dump_lock(before)
        if changed and writing:
            replace_text(path, merged, option="--lock")
    return changed
