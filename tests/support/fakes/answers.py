"""The `Commands` port over a table of recorded answers.

It is for tests of code that reads what programs say. Nothing is started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from driverforge_core.errors import CommandFailed
from driverforge_host.ports import Result


@dataclass
class Answers:
    """The `Commands` port over a table.

    The first entry that is part of the command line answers it. Without one the status is 0 and there is no
    output.
    """

    table: Mapping[str, tuple[int, str, str]]
    asked: list[str] = field(default_factory=list)
    environments: list[Mapping[str, str]] = field(default_factory=list)
    endless: list[str] = field(default_factory=list)  # what had no time limit
    followed: list[str] = field(default_factory=list)  # what a stop signal would end

    def run(
        self,
        argv: Sequence[str],
        *,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        input_text: str | None = None,
        timeout: float | None = None,
        stream: bool = False,
    ) -> Result:
        line = " ".join(argv)
        self.asked.append(line)
        self.environments.append(env or {})
        if timeout is None:
            self.endless.append(line)
        if stream:
            self.followed.append(line)
        status, stdout, stderr = next(
            (answer for words, answer in self.table.items() if words in line), (0, "", "")
        )
        if check and status != 0:
            raise CommandFailed(f"{argv[0]} failed with status {status}", details=[stdout + stderr])
        return Result(argv=tuple(argv), status=status, stdout=stdout, stderr=stderr)

    def find(self, name: str) -> str | None:
        return f"/usr/bin/{name}"

    def spawn(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, log: str | None = None
    ) -> int:
        raise AssertionError(f"nothing is started here: {argv}")
