"""An engine that builds nothing: what `--plan` and the tests of the commands use."""

from __future__ import annotations

from driverforge_build.engine.ports import BuildJob, BuiltImage, Progress


class Nop:
    """Says what a build would be; its store is empty."""

    def check(self) -> str:
        return "no engine: nothing is built"

    def build(self, job: BuildJob, progress: Progress) -> None:
        progress(f"would build {job.target} of {job.bake_file}")

    def inspect(self, reference: str) -> BuiltImage | None:
        return None

    def push(self, reference: str, remote: str, progress: Progress) -> str:
        progress(f"would push {reference} to {remote}")
        return ""
