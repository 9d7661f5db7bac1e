"""Recorded cases of NVIDIA's toolkit, played against our runtime backends; and the deliberate differences.

A case is played as upstream's tests play it: full layout, the configuration file as the only source. What
comes out is compared as values.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomllib

from driverforge_core.errors import DriverforgeError, UsageError
from driverforge_node.cli import build_parser
from driverforge_node.runtime import request
from driverforge_node.runtime.backends import imports, oci_hook
from driverforge_node.runtime.backends.distributions import BACKENDS
from driverforge_node.runtime.formats.values import REMOVED, KeyPath, leaves
from driverforge_node.runtime.model import (
    DaemonPath,
    Handler,
    NodePath,
    RuntimeDaemon,
    Supervisor,
    WantedHandlers,
)
from support.upstream.cdicases import not_used

CASES = Path(__file__).resolve().parents[2] / "cases" / "toolkit"
DEVIATIONS = CASES / "deviations.json"
CORE = ("runtime", "configure", "installer")  # every recorded case of these is played
ROOT = "/root-of-test"  # stands for the temporary folder of the recording
DEFAULTS = {
    "containerd": ("/etc/containerd/config.toml", "/etc/containerd/conf.d/99-nvidia.toml"),
    "crio": ("/etc/crio/crio.conf", "/etc/crio/crio.conf.d/99-nvidia.toml"),
    "docker": ("/etc/docker/daemon.json", ""),
}
Case = dict[str, Any]  # JSON as it was recorded
Files = dict[str, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """Cases whose result differs on purpose."""

    upstream: str
    ours: str
    because: str
    differs: tuple[str, ...]  # the only keys that differ, or 'refused'
    cases: tuple[str, ...]


def load(*folders: str) -> list[Case]:
    paths = [path for folder in folders for path in sorted((CASES / folder).glob("*.json"))]
    return [json.loads(path.read_text().replace("{{ .testRoot }}", ROOT)) for path in paths]


def deviations() -> tuple[Deviation, ...]:
    groups = json.loads(DEVIATIONS.read_text())
    lists = ("differs", "cases")
    return tuple(Deviation(**{**group, **{key: tuple(group[key]) for key in lists}}) for group in groups)


def table() -> str:
    """The section of docs/compatibility.md."""
    lines = [
        f"| {group.upstream} | {group.ours} | {group.because} "
        f"| {'<br>'.join(f'`{case}`' for case in group.cases)} |"
        for group in deviations()
    ]
    return "\n".join(["| NVIDIA's toolkit does | we do | because | cases |", "|---|---|---|---|", *lines])


def counted() -> str:
    """How many of the recorded cases are equal: another table of docs/compatibility.md."""
    declared = Counter(case.partition("/")[0] for group in deviations() for case in group.cases)
    rows = [_counts(folder, declared[folder]) for folder in (*CORE, "toolkit-config", "cdi", "system")]
    core = ("the core: these three", *map(sum, list(zip(*rows[: len(CORE)], strict=True))[1:]))
    lines = [f"| {' | '.join(map(str, row))} |" for row in (*rows[: len(CORE)], core, *rows[len(CORE) :])]
    head = "| cases | recorded | equal | declared differences | not used |"
    return "\n".join([head, "|---|---|---|---|---|", *lines])


def _counts(folder: str, declared: int) -> tuple[str, int, int, int, int]:
    here = len(list((CASES / folder).glob("*.json")))
    unused = 0 if folder in CORE else sum(not_used(folder).values())
    return f"`{folder}`", here + unused, here - declared, declared, unused


def daemon(kind: str, config: str, drop_in: str) -> RuntimeDaemon:
    """A daemon that merges no keys, so that the drop-in is the full one."""
    known = next(each for each in request.KINDS if each == kind)
    return RuntimeDaemon(
        kind=known,
        pid=1,
        binary=DaemonPath(""),
        version=(1, 7),
        socket=NodePath(""),
        config=NodePath(config),
        drop_in=NodePath(drop_in),
        supervisor=Supervisor(kind=""),
    )


def values(name: str, data: bytes) -> dict[str, object]:
    text = data.decode()
    if name.endswith(".json"):
        return json.loads(text)  # type: ignore[no-any-return]
    return tomllib.loads(text)


def parsed(files: Files) -> dict[str, object]:
    return {path: values(path, data) for path, data in files.items() if data is not None}


def recorded(section: Mapping[str, dict[str, str]]) -> Files:
    return {f"{ROOT}/{name}": file["content"].encode() for name, file in section.items()}


def patched(where: RuntimeDaemon, files: Files, wanted: WantedHandlers, dump: bytes | None = None) -> Files:
    """The files after `runtime apply`; `dump` is what the daemon says, else it says what the files do."""
    paths = [path for path in (where.config, where.drop_in) if path]
    before: Files = {**dict.fromkeys(paths), **files}
    source = before[where.config] if dump is None else dump
    effective = {} if source is None else values(where.config, source)
    return {**files, **BACKENDS[where.kind].patched(where, before, effective, wanted)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of a case: parsed files or a value, ours and upstream's.

    `refused` is our error where there is one.
    """

    ours: object
    upstream: object
    before: Files
    after: Files
    where: RuntimeDaemon | None = None
    refused: DriverforgeError | None = None

    @property
    def differing(self) -> set[KeyPath]:
        """Keys of which only one side has the value; () where the values are no documents."""
        if self.refused is not None:
            return {("refused",)}
        if not isinstance(self.ours, dict) or not isinstance(self.upstream, dict):
            return set() if self.ours == self.upstream else {()}
        ours, upstream = dict(leaves(self.ours)), dict(leaves(self.upstream))
        return {
            path for path in {**ours, **upstream} if ours.get(path, REMOVED) != upstream.get(path, REMOVED)
        }


def play(case: Case) -> Played:
    """Play a case. Raises KeyError for an operation that is not known."""
    return PLAYERS[case["operation"]](case)


def _input(case: Case, config: str) -> Files:
    given = case["input"]
    if "files" in given:
        return recorded(given["files"])
    text = given["text"] if "text" in given else json.dumps(given["parsed"])
    return {config: text.encode()} if given.get("parsed") or text.strip() not in ("", "{}") else {}


def _outcome(case: Case, where: RuntimeDaemon, before: Files, after: Files) -> Played:
    """Compare what `expected` has: all files, one document, or one key of it."""
    expected = case["expected"]
    found = parsed(after)
    if "files" in expected:
        theirs: object = parsed(recorded(expected["files"]))
        ours: object = found
    elif "default-runtime" in expected:
        theirs, ours = expected["default-runtime"], _document(found, where.config).get("default-runtime")
    else:
        theirs, ours = expected["parsed"], _document(found, where.drop_in or where.config)
    return Played(ours=ours, upstream=theirs, before=before, after=after, where=where)


def _document(found: Mapping[str, object], path: str) -> dict[str, object]:
    document = found.get(path, {})
    return document if isinstance(document, dict) else {}


def _change(case: Case, where: RuntimeDaemon, wanted: WantedHandlers) -> Played:
    before = _input(case, where.config)
    try:
        after = patched(where, before, wanted)
    except DriverforgeError as error:
        return Played(ours=None, upstream=None, before=before, after=before, where=where, refused=error)
    return _outcome(case, where, before, after)


def _add(case: Case) -> Played:
    options = case["options"]
    programs = (
        options["runtimes"] if "runtimes" in options else {options["runtime_name"]: options["runtime_path"]}
    )
    handlers = tuple(Handler(name=name, binary=binary) for name, binary in programs.items() if name)
    default = options["runtime_name"] if options["set_as_default"] else ""
    return _change(
        case,
        daemon(case["runtime"], *DEFAULTS[case["runtime"]]),
        WantedHandlers(handlers=handlers, default=default, release_default=not default),
    )


def _lifecycle(case: Case) -> RuntimeDaemon:
    options, default = case["options"], DEFAULTS[case["runtime"]]
    drop_in = options.get("drop_in_config_host_path") or options.get("drop_in_config") or default[1]
    return daemon(case["runtime"], options.get("config") or default[0], drop_in)


def _as_recorded(case: Case, files: Files) -> Files:
    """The pod's name of a drop-in that the node knows by another one."""
    node, pod = case["options"].get("drop_in_config_host_path"), case["options"].get("drop_in_config")
    return {pod if node and path == node else path: data for path, data in files.items()}


def _as_node(case: Case, files: Files) -> Files:
    node, pod = case["options"].get("drop_in_config_host_path"), case["options"].get("drop_in_config")
    return {node if node and path == pod else path: data for path, data in files.items()}


def _setup(case: Case) -> Played:
    options, where = case["options"], _lifecycle(case)
    if options.get("config_mode") == "hook":
        return _hook(case, oci_hook.rendered(f"{options['runtime_dir']}/nvidia-container-runtime-hook"))
    wanted = request.wanted_handlers(
        folder=options["runtime_dir"],
        name=options["runtime_name"] or "nvidia",
        default=options["set_as_default"],
        cdi=options.get("enable_cdi_in_runtime", False),
        prefixes=options.get("cdi_annotation_prefixes") or (),
    )
    played = _change(case, where, wanted)
    return (
        played if played.refused else _outcome(case, where, played.before, _as_recorded(case, played.after))
    )


def _hook(case: Case, data: bytes | None) -> Played:
    options = case["options"]
    path, before = f"{options['hooks_dir']}/{options['hook_filename']}", _input(case, "")
    return _outcome(case, daemon("crio", *DEFAULTS["crio"]), before, {**before, path: data})


def _cleanup(case: Case) -> Played:
    options, where = case["options"], _lifecycle(case)
    before = _input(case, where.config)
    if options.get("config_mode") == "hook":
        path = f"{options['hooks_dir']}/{options['hook_filename']}"
        return _hook(case, oci_hook.stripped(before.get(path), path))
    names = (options["runtime_name"], "nvidia-cdi", "nvidia-legacy")
    node = _as_node(case, before)
    after = {**node, **BACKENDS[where.kind].stripped(where, node, names)}
    return _outcome(case, where, before, _as_recorded(case, after))


def _ensure_imports(case: Case) -> Played:
    ours = imports.imports_with(
        case["input"]["parsed"], case["options"]["drop_in_path"], "/etc/containerd/config.toml"
    )
    return Played(ours=ours, upstream=case["expected"]["imports"], before={}, after={})


def _get_binary_path(case: Case) -> Played:
    ours = (
        BACKENDS[case["runtime"]].handlers(case["input"]["parsed"]).get(case["options"]["runtime_name"], "")
    )
    return Played(ours=ours, upstream=case["expected"]["binary_path"], before={}, after={})


def _override(case: Case) -> Played:
    ours = dict(request.wanted_handlers(override=case["input"]["json_text"]).options)
    return Played(ours=ours, upstream=case["expected"]["parsed"] or {}, before={}, after={})


def _options(words: list[str]) -> dict[str, str]:
    """Options of `nvidia-ctk runtime configure`, switches as 'true'."""
    switches = ("--dry-run", "--nvidia-set-as-default", "--cdi.enabled")
    found, rest = {}, list(words)
    while rest:
        word = rest.pop(0)
        found[word] = "true" if word in switches else rest.pop(0)
    return found


def _dump(given: Mapping[str, str], files: Files) -> bytes | None:
    """What the recording's stand-in for containerd prints."""
    script = (
        files.get(given.get("--executable-path", "")) if given.get("--config-source") == "command" else None
    )
    return script.partition(b"<<EOF\n")[2].partition(b"\nEOF\n")[0] if script else None


def _configure(case: Case) -> Played:
    given = _options(case["options"]["args"])
    kind, before = given.get("--runtime", "docker"), _input(case, "")
    upstream = parsed(
        {
            path: data
            for path, data in recorded(case["expected"]["files_observed"]).items()
            if "/bin/" not in path
        }
    )
    if given.get("--config-mode") == "oci-hook":
        after: Files = {given["--oci-hook-path"]: oci_hook.rendered("/usr/bin/nvidia-container-runtime-hook")}
        return Played(ours=parsed(after), upstream=upstream, before=before, after=after)
    program = given.get(
        "--nvidia-runtime-path",
        "nvidia-container-runtime" if kind == "docker" else "/usr/bin/nvidia-container-runtime",
    )
    handler = Handler(name=given.get("--nvidia-runtime-name", "nvidia"), binary=program)
    default = handler.name if "--nvidia-set-as-default" in given else ""
    try:
        build_parser("runtime").parse_args(["runtime", "apply", "--runtime", kind])
        where = daemon(kind, given["--config"], given.get("--drop-in-config", ""))
        files = {path: data for path, data in before.items() if "/bin/" not in path}
        after = patched(
            where,
            files,
            WantedHandlers(
                handlers=(handler,),
                default=default,
                release_default=not default,
                cdi="--cdi.enabled" in given,
            ),
            _dump(given, before),
        )
    except UsageError as error:
        # our command line refuses a kind in its own words, and names what was given
        ours = bool(case["expected"]["error_contains"]) and f"'{kind}'" in error.brief
        return Played(ours=ours, upstream=True, before=before, after=before)
    except DriverforgeError as error:
        expected = case["expected"]["error_contains"]
        if expected:
            return Played(ours=expected in error.brief, upstream=True, before=before, after=before)
        return Played(ours=None, upstream=upstream, before=before, after=before, refused=error)
    after = files if "--dry-run" in given else after
    return Played(ours=parsed(after), upstream=upstream, before=files, after=after, where=where)


PLAYERS = {
    "add": _add,
    "setup": _setup,
    "cleanup": _cleanup,
    "remove": _cleanup,
    "ensure_imports": _ensure_imports,
    "get_binary_path": _get_binary_path,
    "parse_runtime_config_override": _override,
    "nvidia-ctk-runtime-configure": _configure,
}
