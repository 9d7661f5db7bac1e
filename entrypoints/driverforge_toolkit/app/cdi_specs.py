"""`driverctl cdi`: generate, list, verify and transform spec files, each as values in and values out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from driverforge_core import log
from driverforge_core.errors import InputError
from driverforge_host.gpu.environment import install_dir
from driverforge_host.ports import Files, Host
from driverforge_toolkit.cdi import specfiles, stale
from driverforge_toolkit.cdi.generate import MakeNvml, SpecRequest, make_spec, write_spec
from driverforge_toolkit.cdi.hooks import DEFAULT_PROGRAM
from driverforge_toolkit.cdi.spec import Spec
from driverforge_toolkit.cdi.specfiles import SpecFile, SpecFormat
from driverforge_toolkit.cdi.transform import PathSide, root_moved
from driverforge_toolkit.cdi.verify import SpecProblem, verify


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecOutput:
    """What became of a spec: its text, where no file was asked for, else the file.

    A file that had these bytes before is not written.
    """

    text: str = ""
    path: str = ""
    written: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecCheck:
    """The files that were compared with the node, and what was found. Notes are no reason to fail."""

    files: tuple[SpecFile, ...]
    problems: tuple[SpecProblem, ...] = ()

    @property
    def failed(self) -> bool:
        return any(not problem.note for problem in self.problems)


def hook_program(host: Host) -> str:
    """The hook program of the node: upstream's, or the toolkit's own one where the node has only that."""
    installed = f"{install_dir(host.environ)}/toolkit/nvidia-cdi-hook"
    only = host.node.exists(installed) and not host.node.exists(DEFAULT_PROGRAM)
    return installed if only else DEFAULT_PROGRAM


def generate_spec(
    host: Host, request: SpecRequest, nvml: MakeNvml, *, output: str, format_: SpecFormat | None
) -> SpecOutput:
    """Describe the node's devices and driver in the file `output`, or as text where that is ''.

    Raises what make_spec raises.
    """
    spec = make_spec(host, request, nvml)
    comments = stale.comments(stale.observe(host, request.roots))
    if output and not output.endswith((".json", ".yaml")):
        log.warning("container runtimes read files that end in .yaml or .json only", file=output)
    return _put(host, spec, format_ or specfiles.format_of(output), output, comments)


def installed_specs(host: Host, folders: Sequence[str]) -> tuple[SpecFile, ...]:
    """The node's spec files. A device in a later folder hides one of the same name in an earlier folder."""
    return specfiles.load(host.node, folders)


def verify_specs(host: Host, paths: Sequence[str], folders: Sequence[str]) -> SpecCheck:
    """Compare these spec files of the node with it; without any, all those in `folders`."""
    named = tuple(specfiles.load_file(host.node, path, path.rpartition("/")[0]) for path in paths)
    files = named if paths else installed_specs(host, folders)
    return SpecCheck(files=files, problems=verify(host, files))


def transform_spec(
    host: Host, *, source: str, text: str | None, output: str, side: PathSide, root: str, target: str
) -> SpecOutput:
    """Give a spec's paths on one side another root. Raises InputError for what is no spec.

    The spec is `text`; where that is None, it is in the file `source`. It goes to the file `output`, or into
    the result where that is ''.
    """
    spec = _spec_in(host, source) if text is None else specfiles.read(text, "standard input")
    moved = root_moved(spec, side, root, target)
    return _put(host, moved, specfiles.format_of(output or source), output)


def _put(
    host: Host, spec: Spec, format_: SpecFormat, output: str, comments: tuple[str, ...] = ()
) -> SpecOutput:
    if not output:
        return SpecOutput(text=specfiles.write(spec, format_, comments=comments))
    written = write_spec(_files_with(host, output), output, spec, format_, comments=comments)
    return SpecOutput(path=output, written=written)


def _spec_in(host: Host, path: str) -> Spec:
    try:
        return specfiles.read(_files_with(host, path).read_text(path), path)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}", resolution="name a spec file with --input") from None


def _files_with(host: Host, path: str) -> Files:
    """The files that `path` is one of: in a folder that runtimes read, the node's, as for the runtimes.

    Where a pod has that folder of the node mounted, our own path leads to the same place.
    """
    folder = path.rpartition("/")[0]
    if folder not in specfiles.EVERY_FOLDER:
        return host.files
    there = host.files.identity(folder)
    return host.files if there is not None and there == host.node.identity(folder) else host.node
