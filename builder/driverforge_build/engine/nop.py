"""No engine, for trying a pipeline: contexts are written, and what docker would be told is in each log."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

from driverforge_build.engine.buildx import bake_command
from driverforge_build.engine.process import open_log
from driverforge_build.ports import BuildJob, BuiltImage, StepListener
from driverforge_core.errors import Unsupported


class Nop:
    makes_images = False

    def check(self) -> str:
        return "nop, which builds nothing"

    def network(self) -> str:
        return ""

    def build(self, job: BuildJob, progress: StepListener) -> str:
        command = bake_command(job, environment=os.environ)
        with open_log(job.log) as log:
            log.write(f"$ cd {job.bake_file.parent} && {shlex.join(command)}\n")
        progress(f"nothing is built; {job.log} has the command")
        return ""

    def inspect(self, reference: str) -> BuiltImage | None:
        return None

    def push(self, reference: str, remote: str, progress: StepListener) -> None:
        raise Unsupported(
            "the engine `nop` has no images", resolution="name the engine that has built: --engine docker"
        )

    def pull(self, remote: str, reference: str, platform: str) -> None:
        raise Unsupported("the engine `nop` keeps no images", resolution="name one that does")

    def files(self, reference: str, folder: str) -> Mapping[str, bytes] | None:
        return None
