"""What NVIDIA's conftest.sh asks the compiler, as data: pure functions on texts.

A probe is a small C text and the question whether the kernel's headers let it compile. Most of a probe's
time goes into reading headers, and many probes begin with the same ones: these share a precompiled header,
which the compiler itself treats as the text that it stands for. Each probe still has a compiler run of its
own, so no probe can change another one's answer.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum


class Question(Enum):
    """How conftest.sh called the compiler. The value is the suffix of the file that holds the text."""

    COMPILE = "c"
    # a header on standard input: -E -M, and once more with -MG where that failed
    PRESENT = "present"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A text that the compiler is asked about."""

    question: Question
    text: str

    @property
    def key(self) -> str:
        return hashlib.sha256(f"{self.question.value}\n{self.text}".encode()).hexdigest()

    @property
    def when_present(self) -> Probe:
        """What conftest.sh asks of a header first. Only where the answer is no does it ask on."""
        return Probe(question=Question.PRESENT, text=self.text)


# Measured with gcc 12: 0.84 s to precompile linux/pci.h, 0.27 s for a probe without, 0.04 s with it.
PAYS_FROM = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Probes that begin with the same directives."""

    probes: tuple[Probe, ...]
    # how many lines of each the precompiled header stands for; () without one
    lines: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The compiler's flags of all probes, in the order in which conftest.sh gives them."""

    words: tuple[str, ...]

    @property
    def included(self) -> tuple[str, ...]:
        """Files of `-include`. The compiler reads them before the text, in this order."""
        return tuple(
            after for word, after in zip(self.words, self.words[1:], strict=False) if word == "-include"
        )

    @property
    def rest(self) -> tuple[str, ...]:
        """The flags without `-include FILE`."""
        given = [False, *(word == "-include" for word in self.words)]
        return tuple(
            word
            for word, is_file in zip(self.words, given, strict=False)
            if word != "-include" and not is_file
        )


def beginnings(text: str) -> tuple[tuple[str, int], ...]:
    """The directives that a probe begins with, and how many lines these are: first some, at last all of them.

    They end at the first line of C, and conditionals are not cut in two. In the directives, spaces around a
    line and empty lines are left out.
    """
    lines = text.split("\n")
    ends = []
    depth = 0
    continued = False
    for number, line in enumerate(lines):
        word = line.strip()
        # comments are too seldom to be worth reading
        if "/*" in word or "//" in word:
            break
        if not continued:
            if re.match(r"#\s*if", word):
                depth += 1
            elif re.match(r"#\s*endif", word):
                depth -= 1
            elif word and not word.startswith("#"):
                break
        continued = word.endswith("\\")
        if depth == 0 and not continued:
            ends.append(number + 1)
    return tuple(("\n".join(line.strip() for line in lines[:end] if line.strip()), end) for end in ends)


_IF_PRESENT = re.compile(r"^#\s*if defined\((NV_\w+_PRESENT)\)\n(#\s*include .*\n)#\s*endif$", re.MULTILINE)


def effective(directives: str, present: Collection[str]) -> str:
    """Directives without `#if defined(NV_…_PRESENT)` around an include, by the macros that are defined.

    Tests for other branches of drm begin with guards for headers that are not there, and mean the same.
    """
    kept = _IF_PRESENT.sub(lambda found: found[2] if found[1] in present else "", directives)
    return "\n".join(line for line in kept.splitlines() if line)


def grouped(probes: Iterable[Probe], present: Collection[str]) -> tuple[Group, ...]:
    """Probes by what they begin with; those for which no precompiled header pays are each a group.

    Making one costs as much as three probes. What begins with it and includes more uses it as well.
    `present` are the macros that conftest/headers.h defines.
    """
    found = {
        probe: {effective(text, present): lines for text, lines in beginnings(probe.text)} for probe in probes
    }
    compiled = [each for probe, each in found.items() if probe.question is Question.COMPILE and each]
    whole = Counter(list(each)[-1] for each in compiled)
    pays = {text for text, count in whole.items() if text and count > PAYS_FROM}
    shared: dict[str, list[Probe]] = {}
    alone = []
    for probe, each in found.items():
        begins = max(pays & each.keys(), key=len, default="")
        if begins and probe.question is Question.COMPILE:
            shared.setdefault(begins, []).append(probe)
        else:
            alone.append(Group(probes=(probe,)))
    return (
        *(
            Group(probes=tuple(group), lines=tuple(found[probe][begins] for probe in group))
            for begins, group in shared.items()
        ),
        *alone,
    )


PREFIX = "driverforge-"
_QUESTION_FLAGS = {Question.PRESENT: "-E -M", Question.ABSENT: "-E -M -MG"}


def makefile(compiler: str, groups: Sequence[Group]) -> str:
    """Makes a file KEY.status for each probe, and KEY.err with what the compiler said.

    The texts are in KEY.c and so on, below a line that says what is asked. Relative includes are looked for
    where conftest.sh has its own file, since that is where make runs. `-H` names every header that was read,
    in failed runs too. Whether a header is absent is not asked where it turned out to be present: that KEY
    has no files.
    """
    rules, goals = [], []
    asked = {probe.key for group in groups for probe in group.probes}
    for number, group in enumerate(groups):
        header = f"{PREFIX}{number}.h"
        if group.lines:
            first = f"{PREFIX}{group.probes[0].key}.c"
            # one line more: the question
            end = group.lines[0] + 1
            make_it = f"{compiler} @{PREFIX}rest.flags -H -x c-header {header} -o $@ 2>{header}.err"
            # Without the precompiled one the compiler reads the header itself: dearer, and the same answer.
            rules.append(
                f"{header}.gch:\n"
                f"\t@{{ cat {PREFIX}includes && sed -n '2,{end}p' {first}; }} >{header}\n"
                f"\t@{make_it} || rm -f $@\n"
            )
        for probe, lines in zip(group.probes, group.lines or (0,) * len(group.probes), strict=True):
            stem = f"{PREFIX}{probe.key}"
            goals.append(f"{stem}.status")
            needs = unless = ""
            if group.lines:
                run = f"@{PREFIX}rest.flags -H -include {header} -x c -c - -o {stem}.o"
                needs = f" {header}.gch"
            elif probe.question is Question.COMPILE:
                run = f"@{PREFIX}all.flags -H -x c -c - -o {stem}.o"
            else:
                run = f"{_QUESTION_FLAGS[probe.question]} @{PREFIX}all.flags -H - >/dev/null"
            if probe.question is Question.ABSENT and probe.when_present.key in asked:
                needs = f" {PREFIX}{probe.when_present.key}.status"
                unless = f"grep -qx 0 {needs} || "
            rules.append(
                f"{stem}.status:{needs}\n"
                # not through a pipe: where tail fails, the compiler would accept half of a text
                f"\t@tail -n +{lines + 2} {stem}.{probe.question.value} >{stem}.text\n"
                f"\t@{unless}{{ {compiler} {run} <{stem}.text 2>{stem}.err; echo $$? >$@; }}\n"
            )
        if group.lines:
            # 20 MB each
            last = " ".join(f"{PREFIX}{probe.key}.status" for probe in group.probes)
            goals.append(f"{header}.done")
            rules.append(f"{header}.done: {last}\n\t@rm -f {header}.gch\n")
    return f"all: {' '.join(goals)}\n" + "".join(rules)


def response_file(words: Iterable[str]) -> str:
    """Arguments as the compiler reads them from `@FILE`: a word a line, special characters escaped."""
    return "".join(re.sub(r"([\\\"'\s])", r"\\\1", word) + "\n" for word in words)


_LOCATED = re.compile(r"^[^\s:][^:\n]*:\d+:(?:\d+:)? (?:fatal )?error: ", re.MULTILINE | re.IGNORECASE)
_NO_SUCH_HEADER = re.compile(r"^[^\s:][^:\n]*:\d+:\d+: fatal error: .*: No such file or directory$")
_READ = re.compile(r"^\.+ (.+)$", re.MULTILINE)


def verdict(status: int, said: str) -> bool | None:
    """Whether the compiler accepted a text; None where it did not get as far as an answer.

    A compiler that was killed, or had no space for its output, fails too: conftest.sh takes that for an
    answer, we do not.
    """
    if status == 0:
        return True
    fatal = [line for line in said.splitlines() if "fatal error:" in line or "internal compiler" in line]
    if status != 1 or not all(_NO_SUCH_HEADER.match(line) for line in fatal):
        return None
    return False if _LOCATED.search(said) else None


def headers_read(said: str) -> frozenset[str]:
    """The files that `-H` named, less our own."""
    return frozenset(path for path in _READ.findall(said) if not path.rpartition("/")[2].startswith(PREFIX))
