"""What a compilation need not do: probes and objects that are known, and debug information nobody keeps.

`prepare` comes before make and `finish` after it. Whatever goes wrong in between is a reason to compile the
plain way, with NVIDIA's own conftest and every object from its source, and never an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from driverforge_core.errors import DriverforgeError, TemporaryFailure
from driverforge_node import log
from driverforge_node.driver.build import conftest
from driverforge_node.driver.build.headers import KernelHeaders
from driverforge_node.driver.build.memory import Digests, Memory, Place
from driverforge_node.driver.build.objects import Objects
from driverforge_node.ports import Host

# A change of what is written to the cache
_FORMAT = "1"
# What works on an object besides the compiler, below the kernel's build files
_TOOLS = ("tools/objtool/objtool", "scripts/genksyms/genksyms", "scripts/recordmcount")


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
        if kept and not _ours(host, kept):
            kept = ""
        place = _place(host, headers, source=source, work=work)
        memory = Memory(host.node, kept, place, Digests(files=host.files))
        script = conftest.read_script(host, work, make)
        outcome = conftest.answer(host, script, memory, place, work=work, jobs=jobs)
        objects = Objects(host, kept, place, memory) if kept else None
        restored = objects.restore(work) if objects else 0
    except TemporaryFailure:
        # a stop signal
        raise
    except DriverforgeError as error:
        log.warning("probing the plain way", reason=error.brief, details="; ".join(error.details)[:500])
        return None
    log.info(
        "answered the probes of conftest.sh",
        asked_of_the_compiler=outcome.compiled,
        from_earlier_builds=outcome.remembered,
        objects_from_earlier_builds=restored,
    )
    return Prepared(arguments=conftest.NOTHING_LEFT, headers=outcome.headers, memory=memory, objects=objects)


def holds(host: Host, prepared: Prepared, work: str) -> bool:
    """Whether make compiled with the answers that it was given: it must not have written others."""
    return all(
        host.files.exists(f"{work}/conftest/{name}.h")
        and host.files.read_text(f"{work}/conftest/{name}.h") == text
        for name, text in prepared.headers.items()
    )


def finish(prepared: Prepared, headers: KernelHeaders, work: str) -> None:
    """Keep what was compiled in `work` for the next build."""
    if prepared.objects:
        prepared.objects.keep(work, headers.tree.output)
    prepared.memory.keep()


def drop_debug_information(host: Host, work: str) -> None:
    """Take debug information out of the prebuilt objects before they are linked, not afterwards.

    They are nearly all of what is linked, several times. The result differs in its build id alone.
    """
    found = host.commands.run(["find", work, "-name", "*.o_binary", "-printf", "%p\\n"]).stdout.split()
    for path in found:
        host.commands.run(["strip", "--strip-debug", "-o", f"{path}.new", host.files.resolve(path)])
        host.commands.run(["mv", f"{path}.new", path])


def _ours(host: Host, kept: str) -> bool:
    """What lies in the cache becomes part of the kernel: nobody else may write there."""
    host.node.make_dirs(kept, mode=0o700)
    about = host.node.metadata(kept)
    if about is not None and not about.mode & 0o022:
        return True
    log.warning("the compile cache is not used: others may write there", folder=kept)
    return False


def _place(host: Host, headers: KernelHeaders, *, source: str, work: str) -> Place:
    tree = headers.tree
    folders = {tree.output: "@OUTPUT@"}
    folders.setdefault(tree.source, "@SOURCE@")
    folders |= {tree.root: "@HEADERS@", work: "@WORK@"}
    program = headers.compiler.program
    back_end = host.commands.run([program, "-print-prog-name=cc1"]).stdout.strip()
    digests = Digests(files=host.files)
    parts = [
        _FORMAT,
        host.commands.run([program, "--version"]).stdout,
        digests.of(back_end),
        host.commands.run(["as", "--version"]).stdout,
        host.commands.run(["ld", "--version"]).stdout,
        *(digests.of(f"{tree.output}/{tool}") for tool in _TOOLS),
        *(_names(host, folder) for folder in sorted({tree.source, tree.output, source})),
    ]
    return Place(folders=folders, context=hashlib.sha256("\0".join(parts).encode()).hexdigest())


def _names(host: Host, folder: str) -> str:
    """Digest of the names below a folder."""
    listed = host.commands.run(["find", f"{folder}/.", "-printf", "%P %y\\n"]).stdout
    return hashlib.sha256("\n".join(sorted(listed.splitlines())).encode()).hexdigest()
