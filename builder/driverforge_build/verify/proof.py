"""Guests for one image: the modules of each of its sets go into the kernel, and what it says is judged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from driverforge_build.ports import GuestBoot, GuestEnd, Guests, StepListener
from driverforge_build.verify.guest import Transcript, first_root, read_transcript
from driverforge_build.verify.judge import (
    Check,
    Heard,
    check_files,
    check_inserted,
    check_signatures,
    check_unsigned,
    unsigned,
)
from driverforge_build.verify.modules import ImageModules
from driverforge_build.verify.tree import KernelTree
from driverforge_core.errors import Unavailable
from driverforge_core.modinfo import without_signature

_CONSOLE_LINES = 25
_DOWN = re.compile(r"Kernel panic|BUG: |Oops: |Internal error: |Unable to handle kernel")
_MEMORY = 768
"""MiB for a kernel without anything. What it boots with is in there three times for a while: packed, as
files, and as a module that is inserted.
"""


def last_words(console: str) -> list[str]:
    """The lines of a console that tell why its kernel ended: from its complaint on, else the last."""
    lines = console.replace("\r", "").splitlines()
    down = next((number for number, line in enumerate(lines) if _DOWN.search(line)), None)
    return lines[-_CONSOLE_LINES:] if down is None else lines[down : down + _CONSOLE_LINES]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proving:
    """The guests of one image.

    `consoles` is what their consoles' files begin with. `silence` is how many seconds one may say nothing.
    """

    arch: str
    tree: KernelTree
    guests: Guests
    consoles: Path
    silence: float
    told: StepListener

    def prove(self, modules: ImageModules) -> tuple[list[Check], str]:
        """Try one module set. The checks, and what ran the kernel.

        Raises Unavailable where the kernel did not get as far as to try a module.
        """
        kind = modules.described.module_type
        names = [name for module in modules.modules for name in module.depends]
        needed = {f"kernel/{name}.ko": content for name, content in self.tree.needed(names).items()}
        ours = {module.path: module.content for module in modules.modules}
        plain, machine = self._try(kind, {**needed, **ours}, "")
        checks = [*check_files(modules), *check_inserted(modules, plain, self.tree.lacks(names))]
        if modules.signed:
            smallest = min(modules.signed, key=lambda module: len(module.content))
            copy = {unsigned(smallest.path): without_signature(smallest.content)}
            enforced, machine = self._try(
                f"{kind}-enforced", {**needed, **ours, **copy}, "module.sig_enforce=1"
            )
            checks += check_signatures(modules, enforced)
            checks.append(check_unsigned(smallest.path, enforced))
        return checks, machine

    def _try(self, name: str, modules: Mapping[str, bytes], append: str) -> tuple[Heard, str]:
        lines: list[str] = []

        def listen(line: str) -> None:
            lines.append(line)
            word, _, rest = line.strip().partition(" ")
            if word == "begin":
                self.told(f"{name}: {rest}")

        console = self.consoles.with_name(f"{self.consoles.name}-{name}.console")
        console.unlink(missing_ok=True)
        with TemporaryDirectory(prefix="driverforge-root-") as folder:
            root = Path(folder) / "first-root"
            first_root(self.guests.busybox(self.arch), modules).write(root)
            self.told(f"{name}: booting {self.tree.release}")
            ran = self.guests.run(
                GuestBoot(
                    arch=self.arch,
                    kernel=self.tree.image,
                    first_root=root,
                    append=append,
                    memory=_MEMORY + 3 * (root.stat().st_size >> 20),
                    console=console,
                    silence=self.silence,
                ),
                listen,
            )
        last = last_words(console.read_text(errors="replace") if console.exists() else "")
        said = read_transcript(lines)
        self._check_booted(said, ran.end, console, last)
        heard = Heard(said=said, end=ran.end, silence=self.silence, console=(*last, f"all of it: {console}"))
        return heard, ran.machine

    def _check_booted(self, said: Transcript, end: GuestEnd, console: Path, last: list[str]) -> None:
        if said.release == self.tree.release and (said.answers or said.trying or said.done):
            return
        if said.release not in ("", self.tree.release):
            brief = f"the packages of kernel {self.tree.release} hold another one: {said.release}"
        else:
            ended = f"said nothing for {self.silence:.0f} s" if end is GuestEnd.SILENT else "went down"
            brief = f"kernel {self.tree.release} {ended} before it tried a module"
        raise Unavailable(
            brief, details=[*last, f"all of it: {console}"], resolution="read what the kernel said last"
        )
