"""What a compilation need not do: probes and objects that are known, and debug information nobody keeps.

`prepare` comes before make and `finish` after it. Whatever goes wrong in between is a reason to compile the
plain way, with NVIDIA's own conftest and every object from its source, and never an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from driverforge_core import log
from driverforge_core.errors import DriverforgeError, TemporaryFailure, Unsupported
from driverforge_driver.compile import conftest, precompiled, whole
from driverforge_driver.compile.headers import KernelHeaders
from driverforge_driver.compile.memory import Digests, Memory, Place
from driverforge_driver.compile.objects import Objects
from driverforge_driver.compile.probes import PREFIX
from driverforge_driver.state.network import OFED
from driverforge_host.ports import Host

# A change of what is written to the cache
_FORMAT = "5"
# What works on an object besides the compiler, and says how: in scripts/ and tools/ of the kernel's files
_KBUILD = ("Makefile*", "Kbuild.include", "*.so", "objtool", "genksyms", "recordmcount*")
NM = f"{PREFIX}nm"
# What Kbuild looks for, up to 6.4 and from 6.5 on; such a symbol has its whole name in the object. grep that
# fails (2) says nothing: then nm is asked, and says why.
_NM_SCRIPT = """#!/bin/sh
if [ $# = 1 ]; then
    LC_ALL=C grep -q -e __ksymtab -e __export_symbol "$1" 2>/dev/null
    [ $? != 1 ] || exit 0
fi
exec nm "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A work folder in which make finds answers and objects."""

    # for make's command line
    arguments: tuple[str, ...]
    # {file of conftest/: its text}
    headers: Mapping[str, str]
    memory: Memory
    objects: Objects | None


def prepare(
    host: Host, headers: KernelHeaders, make: tuple[str, ...], *, source: str, work: str, jobs: int, kept: str
) -> Prepared | None:
    """Answer all probes and put known objects into `work`. None: the plain way has to do.

    `make` is the command line of the compilation, `kept` the folder of the cache, '' for none.
    """
    try:
        if kept and not ours(host, kept):
            kept = ""
        where = place(host, headers, source=source, work=work)
        name = whole.name_of(host, headers.tree.output)
        memory = Memory(host.node, kept, where, Digests(files=host.files, release=name))
        question = _whole(host, headers, where, make, source=source) if kept else ""
        outcome = whole.recall(host, memory, question, name=name, work=work) if question else None
        if outcome is None:
            script = conftest.read_script(host, work, make)
            outcome = conftest.answer(host, script, memory, where, work=work, jobs=jobs)
            if question:
                whole.learn(host, memory, question, outcome, output=headers.tree.output, work=work)
        objects = Objects(host, kept, where, memory) if kept else None
        restored = objects.restore(work) if objects else 0
        compiler = precompiled.stand_in(host, headers.compiler.program, work=work)
        lister = nm_stand_in(host, work=work)
    except TemporaryFailure:
        # a stop signal
        raise
    except DriverforgeError as error:
        log.warning("probing the plain way", reason=error.brief, details="; ".join(error.details)[-500:])
        return None
    log.info(
        "answered the probes of conftest.sh",
        asked_of_the_compiler=outcome.compiled,
        from_earlier_builds=outcome.remembered,
        objects_from_earlier_builds=restored,
    )
    arguments = (*conftest.NOTHING_LEFT, f"CC={compiler}", f"NM={lister}")
    return Prepared(arguments=arguments, headers=outcome.headers, memory=memory, objects=objects)


def _whole(host: Host, headers: KernelHeaders, where: Place, make: tuple[str, ...], *, source: str) -> str:
    """The question of all that NVIDIA's Kbuild would find out; '' where it has to be asked."""
    others = [folder for folder in (source, OFED) if host.files.is_dir(folder)]
    everything = whole.everything(host, headers.tree, others, f"{source}/conftest.sh")
    words = where.portable(" ".join(word for word in make if not word.startswith("-j")))
    return f"conftest {everything} {words}" if everything else ""


def written_anew(host: Host, prepared: Prepared, work: str) -> str:
    """Which answers make did not take as they were given, and the first line of each that differs; else ''.

    Make writes one anew where conftest/uts_release is newer: where the release that it found is another, or
    where the clock went back in between.
    """
    found = []
    for name, given in prepared.headers.items():
        path = f"{work}/conftest/{name}.h"
        text = host.files.read_text(path) if host.files.exists(path) else ""
        if text != given:
            pairs = zip_longest(text.splitlines(), given.splitlines())
            theirs, our = next((pair for pair in pairs if pair[0] != pair[1]), ("other ends of lines", ""))
            found.append(f"{name}.h has {theirs!r} for {our!r}")
    return "; ".join(found)


def finish(prepared: Prepared, headers: KernelHeaders, work: str) -> None:
    """Keep what was compiled in `work` for the next build."""
    try:
        if prepared.objects:
            prepared.objects.keep(work, headers.tree.output)
        prepared.memory.keep()
    except TemporaryFailure:
        raise
    except (DriverforgeError, FileNotFoundError) as error:
        log.warning("nothing is kept for the next compilation", reason=error)


def drop_debug_information(host: Host, work: str) -> None:
    """Take debug information out of the prebuilt objects before they are linked, not afterwards.

    They are nearly all of what is linked, several times. The result differs in its build id alone.
    """
    found = host.commands.run(["find", work, "-name", "*.o_binary", "-printf", "%p\\n"]).stdout.split()
    for path in found:
        host.commands.run(["strip", "--strip-debug", "-o", f"{path}.new", host.files.resolve(path)])
        host.commands.run(["mv", f"{path}.new", path])


def ours(host: Host, kept: str) -> bool:
    """What lies in the cache becomes part of the kernel: nobody else may write there, nor could before."""
    about = host.node.metadata(kept)
    try:
        if about is None or not about.mode & 0o022:
            host.node.make_private_dir(kept)
            return True
        reason = "others may write there"
    except DriverforgeError as error:
        reason = error.brief
    log.warning("the compile cache is not used", folder=kept, reason=reason)
    return False


def place(host: Host, headers: KernelHeaders, *, source: str, work: str) -> Place:
    """The folders of a build of the sources in `source`. Raises Unsupported where the tools are not known."""
    tree = headers.tree
    folders = {tree.output: "@OUTPUT@"}
    folders.setdefault(tree.source, "@SOURCE@")
    folders |= {tree.root: "@HEADERS@", work: "@WORK@"}
    trees = sorted({tree.source, tree.output})
    program = headers.compiler.program
    parts = [
        _FORMAT,
        host.commands.run([program, "--version"]).stdout,
        *_tools(host, program, trees),
        # a network driver's headers come before the kernel's
        *(_names(host, folder) for folder in (*trees, source, OFED) if host.files.is_dir(folder)),
    ]
    return Place(folders=folders, context=hashlib.sha256("\0".join(parts).encode()).hexdigest())


def _tools(host: Host, program: str, trees: Sequence[str]) -> Iterator[str]:
    """Digests of what works on an object: compiler, assembler, linker, Kbuild's own programs and rules."""
    digests = Digests(files=host.files)
    for name in ("cc1", "as"):
        said = host.commands.run([program, f"-print-prog-name={name}"]).stdout.strip()
        yield _digest(host, digests, said)
    for name in (program, "ld"):
        yield _digest(host, digests, name)
    wanted = [word for name in _KBUILD for word in ("-o", "-name", name)][1:]
    # Where a tree has no such folder, and where links lead in a circle, find says so and goes on.
    listed = host.commands.run(
        ["find", "-L", *(f"{tree}/{name}" for tree in trees for name in ("scripts", "tools")), *wanted],
        check=False,
    )
    for path in sorted(listed.stdout.splitlines()):
        if not host.files.is_dir(path):
            yield f"{path.rpartition('/')[2]} {digests.of(path)}"


def _digest(host: Host, digests: Digests, program: str) -> str:
    path = host.commands.find(program)
    if path is None:
        raise Unsupported("the compiler does not say what it consists of", details=[f"not found: {program}"])
    return digests.of(path)


def _names(host: Host, folder: str) -> str:
    """Digest of the names below a folder, also behind links: Ubuntu's headers are a folder of these."""
    listed = host.commands.run(["find", "-L", f"{folder}/.", "-printf", "%P %y\n"], check=False).stdout
    return hashlib.sha256("\n".join(sorted(listed.splitlines())).encode()).hexdigest()


def nm_stand_in(host: Host, *, work: str) -> str:
    """A program in the folder `work` to give make as its nm: it tells objects that export no symbol.

    For modversions Kbuild has nm list every object that it compiled, some kernels' twice, and looks for
    exported symbols there. Few objects have any, and nm takes ten times as long to start as grep to look.
    """
    host.files.write_atomic(f"{work}/{NM}", _NM_SCRIPT.encode(), mode=0o755)
    return f"{work}/{NM}"
