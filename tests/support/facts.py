"""Facts about distributions, read in other projects' sources, to compare rows of matrix.yaml with.

`tests/cases/distributions/facts.json` was not made from our rows and is never written anew from them. A fact
holds where all of its conditions do; each condition is a list of which one must match.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[1] / "cases" / "distributions" / "facts.json"

_COMPARED = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}
CLAIMS = ("value", "one_of", "must_include", "must_not_include")
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}

INFERRED = {
    # A system without facts of its own: those of another under its numbers, which is an inference and no
    # fact ("SP6: the same with 15.6, 15-SP6, 6.4.0-150600.*"). Its images' configuration has the older host
    # (SUSE/BCI-dockerfile-generator at 1783a52, base.py).
    "sles15.6": (
        "sles15.7",
        {
            "15.7": "15.6",
            "15-SP7": "15-SP6",
            "-150700.": "-150600.",
            "//public-dl.suse.com": "//updates.suse.com",
        },
    ),
    # SUSE/BCI-dockerfile-generator has its driver container for both, "SL 16.0 same"; the kernels of 16.0 are
    # compiled by gcc-13 (their /proc/version).
    "sles16.0": (
        "sles15.7",
        {
            "15.7": "16.0",
            "15-SP7": "16.0",
            "6.4.0-150700.": "6.12.0-160000.",
            '"value": "6.4"': '"value": "6.12"',
            '"value": "gcc"': '"value": "gcc13"',
        },
    ),
}

# what facts with a key speak of: the last two names on the path to a value of a row
_SPEAK_OF = {
    "base_image": {"base"},
    "base_image_alias": {"base"},
    "keyring": {"keyring"},
    "python_package": {"python package"},
    "repository_id": {"repositories id"},
    "headers_repository": {"repositories id"},
    "repository_url": {"repositories urls", "repositories older", "repositories mirrorlist"},
    "kernel_flavours": {"flavours amd64", "flavours arm64"},
    "compiler_package": {"kernels compilers"},
    "headers_packages": {"kernels headers"},
    "image_packages": {"kernels image"},
    "module_packages": {"kernels image", "kernels modules"},
    "jit_tools": {"tools jit", "tools runtime"},
    "bootstrap_packages": {"tools jit", "tools runtime"},
    "precompiled_open_packages": {"modules packages"},
    "precompiled_proprietary_packages": {"modules packages"},
    "signature_packages": {"modules packages"},
    "userspace_packages": {"drivers userspace", "drivers companions"},
    "fabric_packages": {"fabric packages", "fabric companions"},
    "firmware_package": {"firmware package"},
    "driver_url": {"drivers url"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One claim. `claim` is how `wanted` is meant: value, one_of, must_include or must_not_include."""

    system: str
    key: str
    claim: str
    wanted: tuple[str, ...]
    conditions: Mapping[str, tuple[str, ...]]
    source: str

    def holds(self, **case: str) -> bool:
        """Whether every condition is met by what `case` says; a condition that it says nothing of is not."""
        return all(
            name in case and any(_matches(name, glob, case[name]) for glob in globs)
            for name, globs in self.conditions.items()
        )

    def speaks_of(self, kind: str, text: str) -> bool:
        """Whether a fact names a row's value; `kind` is the last two names on the path to it."""
        arch = kind.rpartition(" ")[2]
        if (
            kind not in _SPEAK_OF.get(self.key, set())
            or self.claim == "must_not_include"
            or (arch in MACHINES and arch not in self.conditions.get("arch", (arch,)))
        ):
            return False
        plain = text.partition(" [")[0].replace("{plain}", "{release}").replace("{variant-}", "")
        told = [word.replace("{plain}", "{release}") for word in self.wanted]
        return any(agree(word, plain) or plain == f"{word}-{{release}}" for word in told)

    def contradictions(self, words: Collection[str], names: Mapping[str, str]) -> list[str]:
        """What of `words` disagrees; {placeholders} of both sides are replaced by `names` first."""
        have = [_filled(word, names) for word in words]
        want = [_filled(word, names) for word in self.wanted]
        missing = [word for word in want if not any(agree(word, other) for other in have)]
        strange = [word for word in have if not any(agree(other, word) for other in want)]
        wrong = {
            "value": [*(f"no {word}" for word in missing), *(f"{word} too" for word in strange)],
            "one_of": [f"{word} is none of {', '.join(want)}" for word in strange],
            "must_include": [f"no {word}" for word in missing],
            "must_not_include": [word for word in have if word in want],
        }
        return wrong[self.claim]

    def __str__(self) -> str:
        limits = "".join(f" [{name}: {', '.join(globs)}]" for name, globs in self.conditions.items())
        return f"{self.system} {self.key}{limits} {self.claim} {', '.join(self.wanted)} ({self.source})"


def agree(fact: str, row: str) -> bool:
    """Whether a row's name is the fact's.

    It may go on with a release or a version, a tag may be cut, an address may be encrypted, and a file may
    have a folder.
    """
    if row in (fact, fact.replace("http://", "https://", 1)) or row.endswith(f"/{fact}"):
        return True
    if row.startswith((f"{fact}=", f"{fact}-")) and re.match(r"[=-]\d", row[len(fact) :]):
        return True
    if ":" in fact and "/" in fact:
        return fact.startswith(f"{row}-") or fact.endswith(f"/{row}")
    return fact.startswith(f"{row}-") and ":" in fact


@cache
def facts(system: str) -> tuple[Fact, ...]:
    """The facts about a system, and those about every system."""
    return tuple(
        fact
        for told in _documents(system)
        if told["id"] in ("any", system)
        for fact in _facts(told["id"], told["facts"])
    )


def keys() -> set[str]:
    """What facts are about."""
    return {fact["key"] for told in json.loads(FILE.read_text())["systems"] for fact in told["facts"]}


@cache
def releases(system: str) -> tuple[Mapping[str, Any], ...]:
    """Kernel releases that the facts name as examples: each with its parts, and the `arch` it is for."""
    return tuple(
        {**fact["value"], "arch": fact.get("arch", ["amd64", "arm64"])}
        for told in _documents(system)
        if told["id"] == system
        for fact in told["facts"]
        if fact["key"] == "release_example"
    )


def _documents(system: str) -> Iterator[dict[str, Any]]:
    """What the file has of each system, and what is inferred from it for this one."""
    other, numbers = INFERRED.get(system, ("", {}))
    for told in json.loads(FILE.read_text())["systems"]:
        yield told
        if told["id"] == other:
            text = json.dumps({**told, "id": system})
            for theirs, own in numbers.items():
                text = text.replace(theirs, own)
            yield json.loads(text)


def _facts(system: str, told: list[dict[str, Any]]) -> Iterator[Fact]:
    for fact in told:
        if fact["key"] == "release_example":
            continue
        claim = next(name for name in CLAIMS if name in fact)
        wanted = fact[claim]
        yield Fact(
            system=system,
            key=fact["key"],
            claim=claim,
            wanted=tuple(wanted if isinstance(wanted, list) else [wanted] if wanted else []),
            conditions={
                name: tuple(fact[name])
                for name in ("arch", "branch", "version", "kernel", "flavour", "repository", "url")
                if name in fact
            },
            source=fact["source"],
        )


def _matches(name: str, glob: str, word: str) -> bool:
    if name != "branch":
        return fnmatchcase(word, glob)
    parts = [re.fullmatch(r"([<>]=?)?(\d+)", part) for part in glob.split()]
    return all(
        part is not None and _COMPARED.get(part[1], operator.eq)(int(word), int(part[2])) for part in parts
    )


def _filled(text: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        text = text.replace("{" + name + "}", value)
    return text
