"""The machine's own configuration: where it finds a distribution's repositories, and with which keys.

Formats: sources.list(5), one-line style and deb822 style. Nothing of apt is run, so that another system's
configuration can be read under its root folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from driverforge_build.discover.repofiles import RepoFile, read_repo_files
from driverforge_core import deb822
from driverforge_core.errors import InputError
from driverforge_core.osid import parse_os_release

_ONE_LINE = re.compile(
    r"deb\s+(?:\[(?P<options>[^\]]*)\]\s*)?(?P<uri>\S+)\s+(?P<suite>\S+)\s*(?P<components>[^#]*)"
)
_ALIASES = ("stable", "oldstable", "oldoldstable", "testing")
_MAIN_ARCHIVE = ("", "-updates", "-backports", "-proposed-updates", "-backports-sloppy")


@dataclass(frozen=True, slots=True, kw_only=True)
class AptSource:
    """One suite at one address.

    `signed_by` names key files; empty where apt's trusted keys serve. `archs` are the ones that it is limited
    to.
    """

    uri: str
    suite: str
    components: tuple[str, ...] = ()
    signed_by: tuple[Path, ...] = ()
    archs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a system says about itself: its distribution, and its repositories of apt and of the others.

    `trusted` are keys that apt trusts for all.
    """

    id: str = ""
    version: str = ""
    codename: str = ""
    sources: tuple[AptSource, ...] = ()
    repositories: tuple[RepoFile, ...] = ()
    trusted: tuple[Path, ...] = ()

    def find(
        self, distribution: str, codename: str, suite: str, component: str, *, arch: str = ""
    ) -> AptSource | None:
        """Where this machine's configuration looks for a suite of its own distribution, of any release.

        `suite` is e.g. 'trixie-security' and `codename` 'trixie'. The archive of '-security' is another one
        than that of the rest. Vendors name their suites after the distribution's ('bookworm stable', 'stable
        main'). A source without `component`, which is 'main' for Debian and Ubuntu, is therefore not the
        distribution's, and code names go before 'stable' and its like.
        """
        if distribution != self.id or not suite.startswith(codename):
            return None
        kind = suite.removeprefix(codename)
        kinds = [kind, *_MAIN_ARCHIVE] if kind in _MAIN_ARCHIVE else [kind]
        names = [f"{base}{wanted}" for wanted in kinds for base in (codename, self.codename, *_ALIASES)]
        fitting = [
            source
            for source in self.sources
            if component in source.components and (not source.archs or not arch or arch in source.archs)
        ]
        # what is for one architecture by name goes before what is for all
        fitting.sort(key=lambda source: not source.archs)
        return next((source for name in names for source in fitting if source.suite == name), None)


def read_machine(root: Path = Path("/")) -> Machine:
    """The configuration under a root folder.

    A file that cannot be read counts as absent. A malformed one is skipped, as apt skips it.
    """
    release = root / "etc/os-release"
    system = parse_os_release(release.read_text(encoding="utf-8")) if release.is_file() else None
    apt = root / "etc/apt"
    found = [
        source
        for path in _source_files(apt, system.id if system else "")
        for source in _read_file(path, root)
    ]
    keys = [
        apt / "trusted.gpg",
        *sorted((apt / "trusted.gpg.d").glob("*.gpg")),
        *sorted((apt / "trusted.gpg.d").glob("*.asc")),
    ]
    return Machine(
        id=system.id if system else "",
        version=system.version if system else "",
        codename=system.codename if system else "",
        sources=tuple(found),
        repositories=read_repo_files(root, system.version if system else ""),
        trusted=tuple(key for key in keys if key.is_file()),
    )


def _source_files(apt: Path, distribution: str) -> list[Path]:
    """apt's files in its own order, but the distribution's own (debian.sources) before those of vendors."""
    parts = sorted(
        path for path in (apt / "sources.list.d").glob("*") if path.suffix in (".list", ".sources")
    )
    parts.sort(key=lambda path: path.name != f"{distribution}.sources")
    return [path for path in (apt / "sources.list", *parts) if path.is_file()]


def _read_file(path: Path, root: Path) -> list[AptSource]:
    return (parse_sources if path.suffix == ".sources" else parse_list)(_text(path), root)


def parse_list(text: str, root: Path = Path("/")) -> list[AptSource]:
    """Repositories of a file in the one-line style.

    A line is `deb [signed-by=KEY] URI SUITE COMPONENT...`; deb-src lines say nothing about packages.
    """
    found = []
    for line in text.splitlines():
        if matched := _ONE_LINE.match(line.strip()):
            options = dict(option.partition("=")[::2] for option in (matched["options"] or "").split())
            keys = options.get("signed-by", "").replace(",", " ")
            archs = options.get("arch", "").replace(",", " ")
            found.append(
                AptSource(
                    uri=_address(matched["uri"], root),
                    suite=matched["suite"].rstrip("/"),
                    components=tuple(matched["components"].split()),
                    signed_by=_keys(keys, root),
                    archs=tuple(archs.split()),
                )
            )
    return found


def parse_sources(text: str, root: Path = Path("/")) -> list[AptSource]:
    """deb822 style.

    An inline key in Signed-By is not supported: that source is left without keys of its own.
    """
    try:
        stanzas = list(deb822.parse(text))
    except InputError:
        return []
    return [
        source
        for stanza in stanzas
        for source in _stanza_sources({name.lower(): value for name, value in stanza.items()}, root)
    ]


def _stanza_sources(stanza: dict[str, str], root: Path) -> Iterator[AptSource]:
    if (
        stanza.get("enabled", "yes").lower() in ("no", "false", "0")
        or "deb" not in stanza.get("types", "").split()
    ):
        return
    signed = stanza.get("signed-by", "")
    keys = () if "BEGIN PGP" in signed else _keys(signed, root)
    components = tuple(stanza.get("components", "").split())
    archs = tuple(stanza.get("architectures", "").split())
    for uri in stanza.get("uris", "").split():
        for suite in stanza.get("suites", "").split():
            yield AptSource(
                uri=_address(uri, root),
                suite=suite.rstrip("/"),
                components=components,
                signed_by=keys,
                archs=archs,
            )


def _keys(text: str, root: Path) -> tuple[Path, ...]:
    return tuple(root / word.lstrip("/") for word in text.split() if word.startswith("/"))


def _address(uri: str, root: Path) -> str:
    """The address itself, or the first one of the list that mirror+file: names, apt-transport-mirror(1).

    Debian's cloud images have such a list.
    """
    if not uri.startswith("mirror+file:"):
        return uri.rstrip("/")
    listing = root / uri.removeprefix("mirror+file:").lstrip("/")
    words = _text(listing).split() if listing.is_file() else []
    return next((word.rstrip("/") for word in words if "://" in word), uri)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
