"""What a row of `systems` needs more than one of its values to judge, or its branches' rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations

from driverforge_build.matrix.branches import Branch, OsRange
from driverforge_build.matrix.derive import Derived
from driverforge_build.matrix.fields import KERNEL_NAMES, Arch, on_arch
from driverforge_build.matrix.globs import glob_set, matching
from driverforge_build.matrix.merge import near
from driverforge_build.matrix.model import DriverRow, KernelSeries, OsRow
from driverforge_build.matrix.repository import Repository
from driverforge_build.matrix.yamltree import Listing, Mark, Problem, Table
from driverforge_core.errors import InputError
from driverforge_core.osid import OsId

Say = Callable[[str, str], None]
"""Takes the key that a problem is about, and the problem's text."""
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_IN_ADDRESS = ("machine", "releasever")


def speaker(node: Table, who: str, problems: list[Problem], inherited: frozenset[Mark] = frozenset()) -> Say:
    def say(key: str, text: str) -> None:
        mark = node.keys.get(key, node.mark)
        # a row that changes another, in a site's file or by `like`: the key may be the other's, what does not
        # fit it is the row's
        if mark.file != node.mark.file or (mark in inherited and node.mark not in inherited):
            mark = node.mark
        problems.append(Problem(mark=mark, text=f"{who}: {text}"))

    return say


def system_problems(
    row: OsRow, node: Table, branches: Mapping[str, Branch], like: Mapping[str, Derived]
) -> list[Problem]:
    """The problems of a row. `branches` are those that are valid, `like` says what OS one is like."""
    problems: list[Problem] = []
    who = f"systems {row.id}"
    derived = like.get(row.id)
    inherited = derived.inherited if derived else frozenset()
    say = speaker(node, who, problems)
    if derived:
        _own_values(row, node, derived, problems)
    repositories = tuple(repository.id for repository in row.repositories)
    if row.package_manager == "apt" and not row.codename:
        say("codename", "apt needs `codename:`")
    for repository in row.repositories:
        _repository(repository, row, say)
    _placeholders(repositories, ("machine",), "repositories", say)
    _placeholders((*row.tools.runtime, *row.tools.jit), (), "tools", say)
    for fabric in row.fabric:
        _placeholders((*fabric.packages, *fabric.companions), ("branch", "version"), "fabric", say)
    for line, item in zip(row.kernels, _rows_of(node, "kernels"), strict=True):
        _kernel_line(line, row, repositories, speaker(item, f"{who} kernels {line.id}", problems, inherited))
    for driver, item in zip(row.drivers, _rows_of(node, "drivers"), strict=True):
        line_say = speaker(item, f"{who} drivers {driver.id}", problems, inherited)
        _driver(driver, row, repositories, line_say)
        if branch := branches.get(driver.branch):
            _driver_in_branch(driver, branch, line_say)
            archs = [arch for arch in driver.archs or row.archs if arch in branch.archs]
            _packages_on_each(driver, archs, line_say)
            if not _offered(row.id, branch, like):
                line_say(
                    "branch",
                    f"branch {branch.id} is not offered for {row.id}; see `systems` of its row in `branches`",
                )
    _same_images(row, node, problems)
    return problems


def _own_values(row: OsRow, node: Table, derived: Derived, problems: list[Problem]) -> None:
    """Problems for values that releases of one distribution do not share.

    A row that took them over would be built as the other release.
    """
    base = _system(derived.base)
    if base is None or OsId.parse(row.id).id != base.id:
        return
    for key, what in (("name", "name"), ("codename", "code name"), ("base", "image")):
        if node.keys.get(key) in derived.inherited and (value := getattr(row, key)):
            text = f"systems {row.id}: {key}: {value} is {derived.base}'s; write the {what} of {row.id}"
            problems.append(Problem(mark=derived.mark, text=text))


def _repository(repository: Repository, row: OsRow, say: Say) -> None:
    if row.package_manager == "apt":
        if repository.flat and not all(on_arch(repository.urls, arch) for arch in row.archs):
            say("repositories", f"{repository.id}: apt needs `archive:` and `components:`, or `urls:` alone")
        elif not repository.flat and not (repository.components and repository.archive):
            say("repositories", f"{repository.id}: apt needs `archive:` and `components:`")
    given = repository.mirrorlist or ""
    _placeholders((*repository.urls, given, repository.older or ""), _IN_ADDRESS, "repositories", say)
    if any("{releasever}" in text for text in (*repository.urls, given)) and not row.releasever:
        say("repositories", f"{repository.id}: an address with {{releasever}} needs `releasever:` of the OS")
    if repository.older is not None and "{releasever}" not in repository.older:
        text = f"{repository.id}: `older:` needs {{releasever}}, which the minor release replaces"
        say("repositories", text)
    if bool(repository.key) != bool(repository.key_sha256 or repository.key_fingerprint):
        text = f"{repository.id}: `key:` needs `key_sha256:` or `key_fingerprint:`, and they need it"
        say("repositories", text)
    if repository.key and row.package_manager == "apt" and not repository.flat:
        say("repositories", f"{repository.id}: `key:` is for a repository without suites; write `keyring:`")
    for arch in row.archs:
        if len(on_arch(repository.urls, arch)) > 1:
            say("repositories", f"{repository.id}: two addresses for {arch}; keep one")


def _rows_of(node: Table, key: str) -> Iterator[Table]:
    listing = node.items[key]
    assert isinstance(listing, Listing)
    return (item for item in listing.items if isinstance(item, Table))


def _unknown(names: Iterable[str], known: tuple[str, ...], key: str, what: str, say: Say) -> None:
    for name in names:
        if name not in known:
            say(key, f"no {what} {name!r} in this OS{near(name, known)}")


def _placeholders(packages: Iterable[str], allowed: tuple[str, ...], key: str, say: Say) -> None:
    for package in packages:
        left = _PLACEHOLDER.sub("", package)
        for name in _PLACEHOLDER.findall(package):
            if name not in allowed:
                say(key, f"{{{name}}} in {package!r} is no placeholder here{near(name, allowed)}")
        if "{" in left or "}" in left:
            say(key, f"a brace without its partner in {package!r}")


def _kernel_line(line: KernelSeries, row: OsRow, repositories: tuple[str, ...], say: Say) -> None:
    _unknown(line.repositories, repositories, "repositories", "repository", say)
    _placeholders((*line.headers, *line.image, *line.modules), ("release", "plain"), "headers", say)
    _placeholders(line.compilers, (), "compilers", say)
    for arch in line.flavours:
        if arch not in row.archs:
            say("flavours", f"{arch} is not among `archs` of {row.id}")


def _driver(driver: DriverRow, row: OsRow, repositories: tuple[str, ...], say: Say) -> None:
    _unknown(driver.repositories, repositories, "repositories", "repository", say)
    for glob in driver.kernels:
        if not matching((glob,), (line.id for line in row.kernels)):
            say(
                "kernels",
                f"{glob!r} matches none of the OS's kernels{near(glob, [line.id for line in row.kernels])}",
            )
    for arch in driver.archs or ():
        if arch not in row.archs:
            say("archs", f"{arch} is not among `archs` of {row.id}")
    if driver.version.partition(".")[0] != driver.branch:
        say("version", f"{driver.version} is not of branch {driver.branch}")
    if "jit" in driver.variants and driver.vendor_modules:
        say("variants", "`vendor_modules: true` compiles nothing; write `variants: [precompiled]`")
    _payload(driver, say)


def _payload(driver: DriverRow, say: Say) -> None:
    names = ("branch", "version")
    _placeholders((*driver.userspace, *driver.companions), names, "userspace", say)
    if driver.payload == "packages" or driver.vendor_modules:
        _module_sources(driver, say)
    if driver.payload == "packages":
        if "open" in driver.module_types and driver.firmware is None:
            say("module_types", "open modules drive no GPU without firmware; write `firmware:`")
        if not driver.repositories or not driver.userspace:
            say("userspace", "payload packages needs `repositories:` and `userspace:`")
    elif driver.payload == "runfile" and driver.url is None:
        say("url", "payload runfile needs `url:`")
    elif driver.payload == "image" and driver.image is None:
        say("image", "payload image needs `image:`")
    if driver.payload == "image" and driver.vendor_modules:
        say("vendor_modules", "a driver image brings its own modules; write payload packages or runfile")
    if driver.image is not None:
        _placeholders((driver.image,), (*names, "os"), "image", say)
    if driver.url is not None:
        _placeholders((driver.url,), (*names, "machine"), "url", say)


def _module_sources(driver: DriverRow, say: Say) -> None:
    needs = "`vendor_modules: true`" if driver.vendor_modules else "payload packages"
    covered = {source.id for source in driver.modules}
    for kind in driver.module_types:
        if kind not in covered:
            say("modules", f"{needs} needs a row `- id: {kind}` in `modules`")
    for source in driver.modules:
        _placeholders(source.packages, ("branch", "version", *KERNEL_NAMES), "modules", say)
        if not (source.tree or driver.vendor_modules):
            say("modules", f"{source.id}: `tree:` names the folder with the source inside the package")


def _packages_on_each(driver: DriverRow, archs: Iterable[Arch], say: Say) -> None:
    """Lists of packages of which an architecture gets none, as all are for the other one."""
    lists = [("userspace", driver.userspace), *(("modules", source.packages) for source in driver.modules)]
    for arch in archs:
        for key, packages in lists:
            if packages and not on_arch(packages, arch):
                say(key, f"no package is left for {arch}; name one, or leave {arch} out of `archs`")


def _driver_in_branch(driver: DriverRow, branch: Branch, say: Say) -> None:
    for key, values, known in (
        ("module_types", driver.module_types, branch.module_types),
        # an image of a site's own may hold any driver
        ("payload", (driver.payload,) if driver.payload != "image" else (), branch.payloads),
        ("archs", driver.archs or (), branch.archs),
    ):
        for value in values:
            if value not in known:
                say(key, f"branch {branch.id} has no {value}; it has {', '.join(known)}")


def _offered(os_key: str, branch: Branch, derived: Mapping[str, Derived]) -> bool:
    """Whether a branch is offered for an OS.

    The ranges of its own distribution say so; where there are none, those of the OS that it is like.
    """
    seen: set[str] = set()
    key: str | None = os_key
    while key is not None and key not in seen:
        seen.add(key)
        found = _system(key)
        ranges = [system for system in branch.systems if found and system.id == found.id]
        if found and ranges:
            return any(_within(found.version, system) for system in ranges)
        key = derived[key].base if key in derived else None
    return False


def _system(key: str) -> OsId | None:
    """None for an id that is none, which its own row's problem says: rows that are like it are judged too."""
    try:
        return OsId.parse(key)
    except InputError:
        return None


def _within(version: str, system: OsRange) -> bool:
    """Whether a version lies in a range. One that ends with 9 has the minor releases of 9, too."""
    number = _numbers(version)
    newest = None if system.newest is None else _numbers(system.newest)
    return (system.oldest is None or number >= _numbers(system.oldest)) and (
        newest is None or number[: len(newest)] <= newest
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _same_images(row: OsRow, node: Table, problems: list[Problem]) -> None:
    """Problems for two rows whose images would be taken for each other."""
    items = [(driver, item.mark) for driver, item in zip(row.drivers, _rows_of(node, "drivers"), strict=True)]
    for (one, first), (two, second) in combinations(items, 2):
        shared = ", ".join(sorted(set(one.archs or row.archs) & set(two.archs or row.archs)))
        told = (_same_version(one, two, shared) or _same_alias(one, two, shared, row)) if shared else None
        if not told:
            continue
        # a site's own row, rather than a shipped one
        mark, other = (first, second) if second.file != node.mark.file else (second, first)
        where = f"line {other.line}" if other.file == mark.file else str(other)
        what, advice = told
        text = f"systems {row.id}: drivers {one.id} and {two.id} are both {what} (the other in {where})"
        problems.append(Problem(mark=mark, text=f"{text}; {advice}"))


def _same_version(one: DriverRow, two: DriverRow, archs: str) -> tuple[str, str] | None:
    """A version has one set of pins in the lock, and its cells share stages: two rows would be mixed."""
    if one.version != two.version:
        return None
    return f"{one.version} on {archs}", "keep one, or give one another version or `archs:`"


def _same_alias(one: DriverRow, two: DriverRow, archs: str, row: OsRow) -> tuple[str, str] | None:
    """The operator pulls BRANCH-KERNEL-OS, on RHEL VERSION-KERNEL-OS: of two drivers what was pushed last."""
    named = [
        line.id for line in row.kernels if all(glob_set(driver.kernels)(line.id) for driver in (one, two))
    ]
    precompiled = all("precompiled" in driver.variants for driver in (one, two))
    if one.branch != two.branch or not (precompiled and named) or row.family == "rhel":
        return None
    return (
        f"precompiled for kernels {', '.join(named)} on {archs}, under one tag for branch {one.branch}",
        "keep one, or give one `variants: [jit]`, other `kernels:` or other `archs:`",
    )
