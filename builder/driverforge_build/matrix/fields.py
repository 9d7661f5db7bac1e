"""What a matrix's rows are, and what their fields may hold: closed sets of words, and texts of a form."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from driverforge_core.errors import InputError
from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsId
from driverforge_core.tags import jit_tag


class Row(BaseModel):
    """What all rows are: frozen, with no key but the ones named."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


Arch = Literal["amd64", "arm64"]


ModuleType = Literal["open", "proprietary"]


PayloadKind = Literal["packages", "runfile", "image"]


Variant = Literal["jit", "precompiled"]


Family = Literal["debian", "rhel", "suse"]


PackageManager = Literal["apt", "dnf", "zypper"]


ProbeKind = Literal["arguments", "missing-macro", "missing-member"]


_T = TypeVar("_T")


def _rule(pattern: str, advice: str) -> AfterValidator:
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(f"{text!r} {advice}" if text else f"the value is empty; it {advice}")
        return text

    return AfterValidator(check)


def unique(values: tuple[_T, ...]) -> tuple[_T, ...]:
    seen: list[_T] = []
    for value in values:
        if value in seen:
            raise ValueError(f"{value!r} is listed twice; keep one")
        seen.append(value)
    return values


def _range(text: str) -> str:
    first, dash, last = text.partition("-")
    if dash and int(first, 16) > int(last, 16):
        raise ValueError(f"{text!r} runs backwards; write {last}-{first}")
    return text


def _month(text: str) -> str:
    if not 1 <= int(text[5:]) <= 12:
        raise ValueError(f"{text!r} has no month {text[5:]}; write YYYY-MM")
    return text


def _flag(value: object) -> object:
    if value not in ("true", "false", True, False):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


_ANY_BRANCH = 580


_PATH, _NO_PATH = r"/?[A-Za-z0-9._+{}/-]+", "is not a path; write it without spaces"


Flag = Annotated[bool, BeforeValidator(_flag)]


Text = Annotated[
    str, _rule(r"[^\x00-\x1f\x7f]+", "must be one line of text; write something here or remove the key")
]


RowId = Annotated[
    str,
    _rule(
        r"[a-z0-9][a-z0-9._+-]*", "is not an id; write lower-case letters, digits and . _ + -, e.g. debian12"
    ),
]


def _os_key(text: str) -> str:
    try:
        system = OsId.parse(text)
    except InputError:
        advice = "write ID and VERSION_ID of its /etc/os-release together, e.g. debian12, sl-micro6.1"
        raise ValueError(f"{text!r} is not an OS id; {advice}") from None
    try:
        jit_tag(_ANY_BRANCH, system)
    except InputError:
        # nobody could tell 580-6.8.0-1-my-linux9 from a kernel 6.8.0-1-my of an OS linux9
        why = "it would be read as part of a kernel's release, or as a revision"
        raise ValueError(
            f"{text!r} cannot end the tag of an image: {why}; write an ID without a hyphen"
        ) from None
    return text


OsKey = Annotated[str, AfterValidator(_os_key)]


RepositoryId = Annotated[
    str,
    _rule(
        r"[A-Za-z0-9{][A-Za-z0-9._+{}-]*",
        "is not a repository's id; write it as the package manager does, {machine} for x86_64 or aarch64",
    ),
]


_PACKAGE = r"[A-Za-z0-9@{][A-Za-z0-9@.+_{}:-]*"


_ON_ARCH = r"( \[(amd64|arm64)\])?"


PackageName = Annotated[
    str,
    _rule(
        _PACKAGE,
        "is not a package name; write one name, with {release}, {branch} or {version} where they vary",
    ),
]


ArchPackage = Annotated[
    str,
    _rule(
        _PACKAGE + _ON_ARCH,
        "is not a package name; write one name, with {release}, {branch} or {version} where they vary, and "
        "after it [amd64] or [arm64] where only one architecture has it",
    ),
]


Version = Annotated[
    str, _rule(r"[0-9]+(\.[0-9]+){1,2}", "is not a driver version; write it as NVIDIA does, e.g. 550.90.07")
]


DebianVersion = Annotated[
    str,
    _rule(
        r"[0-9]+(\.[0-9]+){1,2}-[0-9][A-Za-z0-9.+~]*",
        "is not a version of a package of Debian's; write it with its revision, e.g. 550.163.01-5",
    ),
]


DottedNumber = Annotated[
    str, _rule(r"[0-9]+(\.[0-9]+)*", "is not a version; write numbers and dots, e.g. 6.12")
]


Sha256 = Annotated[str, _rule(r"[0-9a-f]{64}", "is not a sha256; write its 64 lower-case hexadecimal digits")]


Url = Annotated[str, _rule(r"(https?|file)://[^\s]+", "is not a URL; write https://HOST/PATH")]


_DOWNLOAD = r"https?://[^\s\"'$\\<>`]+"


Download = Annotated[
    str,
    _rule(
        _DOWNLOAD,
        "is not an address to download from; write https://HOST/PATH, quotes and $ in it as %22, %27 and %24",
    ),
]


ArchAddress = Annotated[
    str,
    _rule(
        _DOWNLOAD + _ON_ARCH,
        "is not an address; write https://HOST/PATH, and after it [amd64] or [arm64] where only one "
        "architecture is there",
    ),
]


_IMAGE_NAME = r"[a-z0-9]+([._:-][a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"


_IMAGE_DIGEST = r"(@sha256:[0-9a-f]{64})?"


ImageRef = Annotated[
    str,
    _rule(
        rf"{_IMAGE_NAME}(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?{_IMAGE_DIGEST}",
        "is not an image reference; write [HOST/]NAME:TAG or NAME@sha256:DIGEST",
    ),
]


DriverImageRef = Annotated[
    str,
    _rule(
        rf"{_IMAGE_NAME}(:[A-Za-z0-9_{{][A-Za-z0-9_.{{}}-]*)?{_IMAGE_DIGEST}",
        "is not an image reference; write [HOST/]NAME:TAG or NAME@sha256:DIGEST, with {version}, {branch} or "
        "{os} in the tag where they vary",
    ),
]


PlainPath = Annotated[str, _rule(_PATH, _NO_PATH)]


PlainPathOrNone = Annotated[str, _rule(f"({_PATH})?", _NO_PATH)]


PciRange = Annotated[
    str,
    _rule(
        r"[0-9a-f]{4}(-[0-9a-f]{4})?",
        "is not a range of PCI device ids; write four hexadecimal digits or two of them, e.g. 2080-20ff",
    ),
    AfterValidator(_range),
]


Month = Annotated[str, _rule(r"[0-9]{4}-[0-9]{2}", "is not a month; write YYYY-MM"), AfterValidator(_month)]


_BRANCH = r"[1-9][0-9]{2}"


BranchNumber = Annotated[str, _rule(_BRANCH, "is not a driver branch; write its number, e.g. 550")]


Glob = Annotated[
    str,
    _rule(
        r"[A-Za-z0-9._+*?\[\]{},-]+",
        "is not a glob; write letters, digits, '.', '-', '*', '?', '[...]', '{a,b}'",
    ),
]


Archs = Annotated[tuple[Arch, ...], Field(min_length=1), AfterValidator(unique)]


ModuleTypes = Annotated[tuple[ModuleType, ...], Field(min_length=1), AfterValidator(unique)]


Variants = Annotated[tuple[Variant, ...], Field(min_length=1), AfterValidator(unique)]


ArchPackages = Annotated[tuple[ArchPackage, ...], AfterValidator(unique)]


ArchAddresses = Annotated[tuple[ArchAddress, ...], AfterValidator(unique)]


PackageNames = Annotated[tuple[PackageName, ...], AfterValidator(unique)]


SomePackageNames = Annotated[tuple[PackageName, ...], Field(min_length=1), AfterValidator(unique)]


RowIds = Annotated[tuple[RowId, ...], AfterValidator(unique)]


RepositoryIds = Annotated[tuple[RepositoryId, ...], AfterValidator(unique)]


Globs = tuple[Glob, ...]


def is_branch(text: str) -> bool:
    """Whether a text is the number of a branch by its form."""
    return re.fullmatch(_BRANCH, text) is not None


def on_arch(names: Iterable[str], arch: Arch) -> tuple[str, ...]:
    """Those of packages or addresses that hold on an architecture, without their [amd64] or [arm64]."""
    parts = (name.partition(" ") for name in names)
    return tuple(dict.fromkeys(name for name, _, limit in parts if limit in ("", f"[{arch}]")))


KERNEL_NAMES = ("release", "kernel_version", "variant-")
"""The placeholders that stand for a kernel in names of packages with its modules."""


def kernel_names(release: KernelRelease) -> dict[str, str]:
    """What stands in the place of KERNEL_NAMES."""
    variant = f"{release.variant}-" if release.variant else ""
    return dict(zip(KERNEL_NAMES, (release.text, release.without_dist, variant), strict=True))


def filled(texts: Iterable[str], **values: str) -> tuple[str, ...]:
    """The texts with {release}, {version} and the like replaced."""
    found = []
    for text in texts:
        done = text
        for name, value in values.items():
            done = done.replace(f"{{{name}}}", value)
        found.append(done)
    return tuple(found)
