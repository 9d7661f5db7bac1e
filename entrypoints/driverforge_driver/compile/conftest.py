"""NVIDIA's conftest without its waste: the same script, the same compiler, the same answers.

NVIDIA's Kbuild starts make's shell, conftest.sh and, to find the flags once more, three compilers for each
of about 400 probes: nearly half of the CPU of a build. Here conftest.sh itself runs a few times over all of
them, with a stand-in for the compiler that looks answers up and writes down what it was asked. What nobody
knows yet is asked of the real compiler, all at once. When nothing is open any more, what the script wrote are
the headers of the build; make is told that there is nothing left to probe.

Nothing here knows what a probe is about. What is known of the script are the words that Kbuild calls it by.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from driverforge_core.errors import Unsupported
from driverforge_driver.compile.kernelname import uses_release
from driverforge_driver.compile.memory import Memory, Place
from driverforge_driver.compile.probes import (
    PREFIX,
    Flags,
    Probe,
    Question,
    grouped,
    headers_read,
    makefile,
    response_file,
    verdict,
)
from driverforge_host.ports import Host

# conftest/NAME.h and the variable of Kbuild that lists its tests
CATEGORIES = {
    "functions": "NV_CONFTEST_FUNCTION_COMPILE_TESTS",
    "generic": "NV_CONFTEST_GENERIC_COMPILE_TESTS",
    "macros": "NV_CONFTEST_MACRO_COMPILE_TESTS",
    "symbols": "NV_CONFTEST_SYMBOL_COMPILE_TESTS",
    "types": "NV_CONFTEST_TYPE_COMPILE_TESTS",
}
PRESENCE = "NV_HEADER_PRESENCE_TESTS"
NOTHING_LEFT = tuple(f"{name}=" for name in (*CATEGORIES.values(), PRESENCE))
_FACTS = f"{PREFIX}facts"
_THEIRS = f"{PREFIX}Kbuild"
# Their Kbuild, which makes nothing but what does not depend on probes. modpost reads it once more, without
# Kbuild's functions: $(call cc-option,…) is nothing there. What the build itself says stands.
_ASKING = f"""include $(src)/{_THEIRS}
ifeq ($(wildcard $(src)/{_FACTS}),)
$(file >$(src)/{_FACTS},flags $(NV_CONFTEST_CFLAGS))
$(file >>$(src)/{_FACTS},command $(NV_CONFTEST_CMD))
{{lists}}
endif
obj-m :=
always := {{made}}
always-y := {{made}}
"""
# Stands in for the compiler. `$*` less its last two words are the flags of a probe that is like all others;
# any other call is the real compiler's. conftest.sh takes any failure for "no", a shell that cannot fork as
# well: the file of calls tells it apart.
_SCRIPT = r"""
df_look_up() {
    echo asked >>"$df_calls" || kill $$
    { echo "$1" && cat "$2"; } >"$df_place$$.new" && df_key=$(sha256sum <"$df_place$$.new") || return 1
    df_key=${df_key%% *} df_said=1 df_word=answered
    if [ -e "$df_place$df_key.yes" ]; then
        df_said=0
    elif ! [ -e "$df_place$df_key.no" ]; then
        mv "$df_place$$.new" "$df_place$df_key.$1" || return 1
        df_word=open
    fi
    echo $df_word >>"$df_calls"
    return $df_said
}
df_compiler() {
    case "$*" in
    "$df_flags -c conftest$$.c") df_look_up c "conftest$$.c" && : >"conftest$$.o" ;;
    "-E -M $df_flags -") df_look_up present - ;;
    "-E -M $df_flags -MG -") df_look_up absent - ;;
    *) "$df_real" "$@" ;;
    esac
}
df_script=$1 df_real=$2 df_arch=$3 df_source=$4 df_output=$5 df_place=$6 df_calls=$7 df_verb=$8 df_flags=$9
shift 9
: >"$df_calls"
df_ask() {
    set -- df_compiler "$df_arch" "$df_source" "$df_output" "$df_verb" "$df_flags" "$@"
    . "$df_script"
}
if [ "$df_verb" = test_kernel_header ]; then
    for df_name in "$@"; do (df_ask "$df_name") || exit 1; done
else
    df_ask "$@"
fi
"""
_DEFINED = re.compile(r"^#define (\w+)", re.MULTILINE)
_WORDS = {True: "yes", False: "no"}
# Deeper than any test's questions depend on each other's answers.
_ROUNDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """conftest.sh as this build calls it: what its Kbuild says."""

    path: str
    compiler: str
    arch: str
    source: str
    output: str
    flags: Flags
    # what conftest/headers.h looks for, and what the others test: {'functions': ('get_user_pages', …)}
    headers: tuple[str, ...]
    tests: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What conftest.sh wrote, {name of the header: text}, and where the answers came from."""

    headers: Mapping[str, str]
    compiled: int
    remembered: int
    # what the questions begin with that the memory has for these tests
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A run of the script over some of the tests of conftest/NAME.h."""

    name: str
    verb: str
    tests: tuple[str, ...]


def read_script(host: Host, work: str, make: tuple[str, ...]) -> Script:
    """Ask Kbuild, with the command line `make`, how it would call conftest.sh in the folder `work`.

    Raises Unsupported where it does not have what we know.
    """
    kbuild = f"{work}/Kbuild"
    if not host.files.exists(kbuild):
        raise Unsupported("the sources have no Kbuild")
    text = host.files.read_text(kbuild)
    made = " ".join(name for name in ("conftest/patches.h", "conftest/uts_release") if name in text)
    lists = "\n".join(
        f"$(file >>$(src)/{_FACTS},{name} $({name}))" for name in (PRESENCE, *CATEGORIES.values())
    )
    host.files.remove(f"{work}/{_FACTS}")
    host.commands.run(["mv", kbuild, f"{work}/{_THEIRS}"])
    host.files.write_atomic(kbuild, _ASKING.format(lists=lists, made=made).encode())
    asked = host.commands.run(make, check=False, cwd=work, timeout=600)
    host.commands.run(["mv", f"{work}/{_THEIRS}", kbuild])
    if not asked.ok or not host.files.exists(f"{work}/{_FACTS}"):
        raise Unsupported("the sources' Kbuild does not say how it probes", details=[asked.stderr[-2000:]])
    facts = dict(
        line.split(" ", 1) for line in host.files.read_text(f"{work}/{_FACTS}").splitlines() if " " in line
    )
    command = facts.get("command", "").replace('"', "").split()
    tests = {name: tuple(dict.fromkeys(facts.get(key, "").split())) for name, key in CATEGORIES.items()}
    if len(command) != 6 or not facts.get("flags", "").strip() or not any(tests.values()):
        raise Unsupported("the sources' Kbuild probes in a way that is not known")
    return Script(
        path=command[1],
        compiler=command[2],
        arch=command[3],
        source=command[4],
        output=command[5],
        # the shell's process id, in the value of a macro
        flags=Flags(words=tuple(re.sub(r"#conftest\d+", "#conftest", facts["flags"]).split())),
        headers=tuple(dict.fromkeys(facts.get(PRESENCE, "").split())),
        tests=tests,
    )


def answer(host: Host, script: Script, memory: Memory, place: Place, *, work: str, jobs: int) -> Outcome:
    """Run conftest.sh over all tests, with `memory` for what is known; it learns the others.

    The headers of the build appear below `work`. Raises Unsupported where the script does not come to an end,
    or the compiler to no answer.
    """
    host.files.make_dirs(f"{work}/conftest")
    said_with = hashlib.sha256(place.portable(" ".join(script.flags.words)).encode()).hexdigest()[:16]
    all_kinds = f"probe {said_with} "
    version = f"{work}/conftest/uts_release"
    # Kbuild puts it below each of the headers.
    ending = host.files.read_text(version) if host.files.exists(version) else ""
    written: dict[str, str] = {}
    compiled = from_earlier = 0
    # headers.h first: all tests include it. None includes what others wrote: make runs them side by side.
    for names, kinds in (
        (("headers",), (Question.PRESENT, Question.ABSENT)),
        (tuple(script.tests), (Question.COMPILE,)),
    ):
        for known in [remembered(memory, f"{all_kinds}{kind.value} ") for kind in kinds]:
            from_earlier += len(known)
            _tell(host, work, known)
        open_names = names
        for _ in range(_ROUNDS):
            ran = _run_side_by_side(host, script, open_names, work=work, jobs=jobs)
            written |= {name: text + ending for name, (text, _) in ran.items()}
            open_names = tuple(name for name, (_, is_open) in ran.items() if is_open)
            if not open_names:
                break
            found = _compile(host, script, _take_questions(host, work, kinds), work=work, jobs=jobs)
            for probe, (said, read) in found.items():
                question = f"{all_kinds}{probe.question.value} {probe.key}"
                # a macro of the command line is in no file that is read
                asked = " ".join((*script.flags.words, probe.text)).encode()
                memory.learn(question, _WORDS[said], reads=read, named=uses_release(asked))
            _tell(host, work, {probe.key: _WORDS[said] for probe, (said, _) in found.items()})
            compiled += len(found)
        else:
            raise Unsupported(f"conftest.sh asks new questions after each answer: {', '.join(open_names)}")
        for name in names:
            host.files.write_atomic(f"{work}/conftest/{name}.h", written[name].encode())
    return Outcome(headers=written, compiled=compiled, remembered=from_earlier, kind=all_kinds)


def remembered(memory: Memory, kind: str) -> Mapping[str, str]:
    """What is known of earlier builds, by what comes after `kind` in the questions: the probes' keys."""
    asked = ((name, memory.recall(name)) for name in memory.questions(kind))
    return {name.removeprefix(kind): said for name, said in asked if said is not None}


def _tell(host: Host, work: str, answers: Mapping[str, str]) -> None:
    """Put answers, by the probes' keys, where the script looks for them."""
    if answers:
        names = (f"{PREFIX}{key}.{answer}" for key, answer in answers.items())
        host.commands.run(["touch", *names], cwd=work)


def _run_side_by_side(
    host: Host, script: Script, names: Sequence[str], *, work: str, jobs: int
) -> Mapping[str, tuple[str, bool]]:
    """What the script writes into conftest/NAME.h, and whether it asked what nobody knows yet.

    Kbuild calls it for each test alone, and for several at once.
    """
    calls = [call for name in names for call in _calls(script, name, jobs)]
    logs = [f"{work}/{PREFIX}calls-{number}" for number in range(len(calls))]
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        ran = list(pool.map(lambda call, log: _run_script(host, script, call, work, log), calls, logs))
    return {
        name: (
            "".join(text for call, (text, _) in zip(calls, ran, strict=True) if call.name == name),
            any(is_open for call, (_, is_open) in zip(calls, ran, strict=True) if call.name == name),
        )
        for name in names
    }


def _calls(script: Script, name: str, jobs: int) -> Iterator[_Call]:
    if name != "headers":
        yield _Call(name=name, verb="compile_tests", tests=script.tests[name])
        return
    size = max(1, -(-len(script.headers) // jobs))
    for start in range(0, len(script.headers), size):
        yield _Call(name=name, verb="test_kernel_header", tests=script.headers[start : start + size])


def _run_script(host: Host, script: Script, call: _Call, work: str, log: str) -> tuple[str, bool]:
    """What the script prints, and whether it asked what nobody knows yet; it writes to `log` what it asks."""
    if not call.tests:
        return "", False
    words = (script.path, script.compiler, script.arch, script.source, script.output, f"{work}/{PREFIX}")
    flags = " ".join(script.flags.words)
    ran = host.commands.run(
        ["sh", "-c", _SCRIPT, script.path, *words, log, call.verb, flags, *call.tests],
        check=False,
        cwd=work,
        timeout=600,
    )
    if not ran.ok:
        raise Unsupported(f"conftest.sh ended with status {ran.status}", details=[ran.stderr[-2000:]])
    said = host.files.read_text(log).split()
    if said.count("asked") * 2 != len(said):
        raise Unsupported(
            "conftest.sh asked, and nobody could answer: no memory, processes or space?",
            details=[ran.stderr[-2000:]],
        )
    return ran.stdout, "open" in said


def _take_questions(host: Host, work: str, kinds: Sequence[Question]) -> tuple[Probe, ...]:
    """The texts that the last runs of the script had no answer for."""
    names = frozenset(name for name in host.files.list_dir(work) if name.startswith(PREFIX))
    found = []
    for question in kinds:
        for name in names:
            stem, _, suffix = name.rpartition(".")
            if suffix == question.value and not {f"{stem}.yes", f"{stem}.no"} & names:
                text = host.files.read_text(f"{work}/{name}").partition("\n")[2]
                found.append(Probe(question=question, text=text))
    return tuple(sorted(found, key=lambda probe: probe.key))


def _compile(
    host: Host, script: Script, probes: Sequence[Probe], *, work: str, jobs: int
) -> Mapping[Probe, tuple[bool, frozenset[str]]]:
    """Ask the compiler. Returns for each probe what it said, and which files it read.

    A question that another one's answer has settled is left out.
    """
    looked_for = f"{work}/conftest/headers.h"
    present = _DEFINED.findall(host.files.read_text(looked_for)) if host.files.exists(looked_for) else []
    groups = grouped(probes, frozenset(present))
    for name, text in (
        ("includes", "".join(f'#include "{path}"\n' for path in script.flags.included)),
        ("all.flags", response_file(script.flags.words)),
        ("rest.flags", response_file(script.flags.rest)),
        ("probes.mk", makefile(script.compiler, groups)),
    ):
        host.files.write_atomic(f"{work}/{PREFIX}{name}", text.encode())
    host.commands.run(
        ["make", f"-j{jobs}", "-s", "-f", f"{PREFIX}probes.mk"], cwd=work, timeout=3600, stream=True
    )
    answers: dict[Probe, tuple[bool, frozenset[str]]] = {}
    for number, group in enumerate(groups):
        shared = f"{work}/{PREFIX}{number}.h.err"
        before = headers_read(host.files.read_text(shared)) if group.lines else frozenset()
        for probe in group.probes:
            stem = f"{work}/{PREFIX}{probe.key}"
            if probe.question is Question.ABSENT and not host.files.exists(f"{stem}.status"):
                continue
            said = host.files.read_text(f"{stem}.err")
            status = int(host.files.read_text(f"{stem}.status"))
            found = verdict(status, said)
            if found is None:
                # -H lists headers above and below what counts
                errors = [line for line in said.splitlines() if "error:" in line][-3:]
                raise Unsupported("the compiler came to no answer", details=[f"status {status}", *errors])
            read = before | headers_read(said)
            answers[probe] = (
                found,
                frozenset(path if path.startswith("/") else f"{work}/{path}" for path in read),
            )
    return answers
