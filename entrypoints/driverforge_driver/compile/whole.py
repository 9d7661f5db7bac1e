"""What conftest.sh wrote for another kernel, where all that it could read is the same.

The script looks into files itself, not only through the compiler, and nobody knows into which. Where every
file of the kernel's headers and of the driver's sources is the same, so is all that it writes, but for the
kernel's name: neither the script nor Kbuild has to run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence

from driverforge_core.headertree import NAMES_OF_A_KERNEL
from driverforge_driver.compile.conftest import Outcome, remembered
from driverforge_driver.compile.kernelname import NAME, RELEASE_HEADER, release_in
from driverforge_driver.compile.memory import Memory
from driverforge_driver.family.protocol import HeaderTree
from driverforge_host.ports import Host

# What only says which build of the kernel this is; beside utsrelease.h, in which the name is replaced.
_NAMES_A_BUILD = ("utsversion.h", "package.h")
# Folders of a kernel's own, with files that have its name
_OWN = ("", "include/config/", "include/generated/")


def name_of(host: Host, output: str) -> str:
    """The release of the kernel whose own folder is `output`; '' where it is not said.

    Debian's include/config/kernel.release has another one.
    """
    header = f"{output}/{RELEASE_HEADER}"
    return release_in(host.files.read_bytes(header)) if host.files.exists(header) else ""


def recall(host: Host, memory: Memory, question: str, *, name: str, work: str) -> Outcome | None:
    """Put what the script wrote with the same `question` into the folder `work`, for the kernel `name`."""
    answer = memory.recall(question)
    if answer is None:
        return None
    kind, texts = json.loads(answer)
    host.files.make_dirs(f"{work}/conftest")
    # In the order in which they depend on each other: make writes anew what is older.
    given = {file: text.replace(NAME, name) for file, text in texts}
    for file, text in given.items():
        host.files.write_atomic(f"{work}/conftest/{file}", text.encode())
    # Each answer is kept for the next build, whose headers may be others.
    known = remembered(memory, kind)
    headers = {file.removesuffix(".h"): text for file, text in given.items() if file.endswith(".h")}
    return Outcome(headers=headers, compiled=0, remembered=len(known), kind=kind)


def learn(host: Host, memory: Memory, question: str, outcome: Outcome, *, output: str, work: str) -> None:
    """Remember what lies in the folder `work` as the answer to `question`, for the kernel of `output`."""
    name = name_of(host, output)
    read = memory.reads(outcome.kind)
    if read is None or not name:
        return
    files = host.files.list_dir(f"{work}/conftest")
    texts = [
        (file, host.files.read_text(f"{work}/conftest/{file}").replace(name, NAME))
        for file in sorted(files, key=lambda file: (file.endswith(".h"), file != "headers.h", file))
    ]
    # What the script itself wrote is not there yet when it is asked for again.
    reads = (path for path in read if not path.startswith(f"{work}/conftest/"))
    memory.learn(question, json.dumps([outcome.kind, texts]), reads=reads)


def everything(host: Host, tree: HeaderTree, others: Sequence[str], script: str) -> str:
    """Digest of all files of the headers `tree` and of the folders `others`, less the kernel's name.

    '' where there is no `script`, where it looks for what is left out, and where a file cannot be read.
    """
    if not host.files.exists(script):
        return ""
    text = host.files.read_bytes(script)
    if any(name in text for name in (*NAMES_OF_A_KERNEL, *(each.encode() for each in _NAMES_A_BUILD))):
        return ""
    parts = []
    for folder in (*sorted({tree.output, tree.source}), *others):
        # The driver's prebuilt objects are only linked.
        words = ["-type", "f", "!", "-name", "*.o_binary", "-exec", "sha256sum", "{}", "+"]
        listed = host.commands.run(["find", "-L", ".", *words], check=False, cwd=folder, timeout=600)
        if listed.stderr:
            return ""
        own = dict(_own(host, tree)) if folder == tree.output else {}
        digests = (line.split("  ./", 1) for line in listed.stdout.splitlines())
        parts.append(sorted((path, own.get(path, digest)) for digest, path in digests))
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _own(host: Host, tree: HeaderTree) -> Iterator[tuple[str, str]]:
    """(path, digest of what does not name the kernel) of the files that may have its name."""
    # Debian's Makefile names the folder of the shared headers.
    words = [tree.source, tree.output, tree.source.rpartition("/")[2], name_of(host, tree.output)]
    names = [word.encode() for word in words if word]
    for folder in _OWN:
        for file in host.files.list_dir(f"{tree.output}/{folder}"):
            path = f"{tree.output}/{folder}{file}"
            if host.files.is_dir(path):
                continue
            data = b"" if file in _NAMES_A_BUILD else host.files.read_bytes(path)
            if any(word in data for word in NAMES_OF_A_KERNEL):
                lines = data.split(b"\n")
                data = b"\n".join(
                    line for line in lines if not any(word in line for word in NAMES_OF_A_KERNEL)
                )
            for name in names:
                data = data.replace(name, NAME.encode())
            yield f"{folder}{file}", hashlib.sha256(data).hexdigest()
