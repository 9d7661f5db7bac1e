"""Kernel releases: what `uname -r` prints, taken apart.

Shapes that are known, with the package that names each (a string of any other shape is kept as text):

    6.1.0-50-cloud-amd64              Debian 12 and older: ABI number, flavour (Debian kernel handbook)
    6.12.94+deb13-cloud-amd64         Debian 13 and newer, backports: the release in the ABI number's place
    6.8.0-1046-azure-fde              Ubuntu: ABI number, flavour; generic-64k, nvidia-64k: 64 KiB pages
    5.14.0-427.13.1.el9_4.x86_64      RHEL and what follows it: EL release, machine
    5.14.0-284.54.1.el9_2.aarch64+64k RHEL variants: +64k, +rt, +rt-64k, and each with -debug
    5.15.0-100.96.32.el9uek.x86_64    Oracle's own kernel, UEK
    6.4.0-150700.53.19-default        SUSE: release without its rebuild counter, flavour
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from driverforge_core.errors import InputError

# struct new_utsname: 64 bytes and a NUL; it names a directory
_LEGAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,63}")
_VERSION = re.compile(r"\d+(?:\.\d+)*", re.ASCII)
_MACHINE = re.compile(r"-(?P<abi>[A-Za-z0-9._~]+)\.(?P<machine>x86_64|aarch64)(?:\+(?P<variant>[a-z0-9-]+))?")
_FLAVOUR = re.compile(
    r"(?:-(?P<abi>(?:\d|rc\d)[A-Za-z0-9._~]*)|\+(?P<release>[a-z]+[a-z0-9.+~]*))"
    r"-(?P<flavour>(?:[a-z]|64k)[a-z0-9._-]*)",
    re.ASCII,
)
_EL = re.compile(r"(?:^|\.)el(\d+)(?:_(\d+))?(?=\.|$)", re.ASCII)
_DIST = re.compile(r"\.el\d", re.ASCII)
_UEK = re.compile(r"\.el\d+uek(?=\.|$)", re.ASCII)
_TOKENS = re.compile(r"\d+|[A-Za-z]+|~", re.ASCII)
_REALTIME = {"rt", "realtime"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRelease:
    """A release as text, and its parts where the shape is known.

    `abi` is what stands between version and flavour ('50', 'deb13', '427.13.1.el9_4', '150700.53.19');
    `flavour` is '' for RHEL's shape, whose kinds differ by `variant` alone: '', '64k', 'rt' or 'rt-64k' in
    every distribution. Oracle's own kernel has that shape, and the flavour 'uek'.
    """

    text: str
    version: tuple[int, ...]
    abi: str
    flavour: str
    variant: str

    def __str__(self) -> str:
        return self.text

    @classmethod
    def parse(cls, text: str) -> KernelRelease:
        """Take a release apart; InputError for an empty string or characters that no release has."""
        if not _LEGAL.fullmatch(text):
            raise InputError(
                f"{text!r} is not a kernel release",
                details=[
                    (
                        "letters, digits and . _ + ~ - only, at most 64 of them, the first one a letter or a "
                        "digit"
                    )
                ],
                resolution="give what `uname -r` prints on the node, e.g. 6.1.0-50-cloud-amd64",
            )
        head = _VERSION.match(text)
        version = tuple(int(part) for part in head.group().split(".")) if head else ()
        rest = text[head.end() :] if head else ""
        if found := _MACHINE.fullmatch(rest):
            abi = found["abi"]
            variant = _variant(
                (found["variant"] or "").split("-"), realtime=bool(re.search(r"\.rt\d+\.", abi))
            )
            flavour = "uek" if _UEK.search(abi) else ""
            return cls(text=text, version=version, abi=abi, flavour=flavour, variant=variant)
        if found := _FLAVOUR.fullmatch(rest):
            flavour = found["flavour"]
            abi = found["abi"] or found["release"]
            variant = _variant(_words(flavour))
            return cls(text=text, version=version, abi=abi, flavour=flavour, variant=variant)
        return cls(text=text, version=version, abi="", flavour="", variant="")

    @property
    def machine(self) -> str:
        """'x86_64' or 'aarch64' where the release states it, else ''."""
        for word, machine in (
            ("x86_64", "x86_64"),
            ("aarch64", "aarch64"),
            ("amd64", "x86_64"),
            ("arm64", "aarch64"),
        ):
            if re.search(rf"(?:^|[.-]){word}(?:[-+]|$)", self.text):
                return machine
        return ""

    @property
    def realtime(self) -> bool:
        """Whether it is named as a real-time kernel (PREEMPT_RT)."""
        return "rt" in self.variant.split("-")

    @property
    def without_dist(self) -> str:
        """What names of Red Hat's packages for one kernel have of its release: version and release alone.

        '6.12.0-211.51.1' of '6.12.0-211.51.1.el10_2.aarch64+64k'; of other shapes the whole text.
        """
        return _DIST.split(self.text, maxsplit=1)[0]

    @property
    def el(self) -> tuple[int, ...]:
        """The release of RHEL whose repositories have the headers.

        (9, 2) for .el9_2, (9,) for .el9, () elsewhere.
        """
        found = _EL.search(self.abi)
        return tuple(int(part) for part in found.groups() if part) if found else ()

    @property
    def sort_key(self) -> tuple[tuple[int, ...], tuple[tuple[int, int, str], ...], str]:
        """A key that orders releases as their distribution does.

        Numbers as numbers, a number after a word, -rcN and ~ before anything.
        """
        head = _VERSION.match(self.text)
        rest = self.text[head.end() :] if head else self.text
        return self.version, (*(_token_key(token) for token in _TOKENS.findall(rest)), (0, 0, "")), self.text


def realtime_flavour(flavour: str) -> bool:
    """Whether kernels of a flavour are real-time ones (PREEMPT_RT): 'rt-amd64', 'realtime', 'rt_debug'."""
    return bool(_REALTIME & set(_words(flavour)))


def _words(flavour: str) -> list[str]:
    # SUSE's are rt and rt_debug
    return re.split("[-_]", flavour)


def _variant(words: list[str], *, realtime: bool = False) -> str:
    pages = "64k" if {"64k", "64kb"} & set(words) else ""
    preempt = "rt" if realtime or _REALTIME & set(words) else ""
    return "-".join(filter(None, (preempt, pages)))


def _token_key(token: str) -> tuple[int, int, str]:
    if token in ("~", "rc"):
        return -1, 0, token
    return (2, int(token), "") if token.isdigit() else (1, 0, token)
