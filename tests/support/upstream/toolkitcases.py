"""Recorded cases of NVIDIA's toolkit, played as a user of ours has them; and the deliberate differences.

A case's files are those of a node whose daemon makes of them what `support.fakes.runtimemodel` says. A change
is planned and judged as `runtime apply` does it, and taken back as `runtime revert` does; what upstream's
installer wrote goes as by `runtime revert --strip`. What comes out is compared as values with upstream's
result. For containerd, the drop-in is compared as 1.x or 2.0 get it (the whole section), and as 2.1 gets it:
by what that daemon makes of its files with ours, and with upstream's.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomllib

from driverctl.cli import build_parser
from driverforge_core.errors import DriverforgeError, UsageError
from driverforge_toolkit.runtime import request
from driverforge_toolkit.runtime.backends import imports, oci_hook
from driverforge_toolkit.runtime.backends.distributions import BACKENDS
from driverforge_toolkit.runtime.formats.configfile import toml_file
from driverforge_toolkit.runtime.formats.values import REMOVED, KeyPath, leaves
from driverforge_toolkit.runtime.model import (
    DaemonPath,
    Handler,
    NodePath,
    RuntimeDaemon,
    Supervisor,
    WantedHandlers,
)
from driverforge_toolkit.runtime.transaction.consequences import check_effective, check_servable
from driverforge_toolkit.runtime.transaction.observed import nvidia_handlers_of
from support.fakes.runtimemodel import OnBytes, effective
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
WHOLE_SECTIONS = {2: (1, 7, 24), 3: (2, 0, 4)}  # a containerd that reads a version, and merges no keys
MERGING = (2, 1, 9)
# what containerd takes a handler to have that has no such key; upstream writes some of them down
ZEROS = {"runtime_root": "", "runtime_engine": "", "privileged_without_host_devices": False}
Case = dict[str, Any]  # JSON as it was recorded
Files = dict[str, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """Cases whose result differs on purpose."""

    upstream: str
    ours: str
    because: str
    differs: tuple[str, ...]  # the only keys that differ; () where we refuse
    cases: tuple[str, ...]
    refused: str = ""  # what our refusal says


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


def daemon(kind: str, config: str, drop_in: str, files: Mapping[str, bytes | None]) -> RuntimeDaemon:
    """A daemon with these files. A containerd merges no keys, so that the drop-in is the full one."""
    known = next(each for each in request.KINDS if each == kind)
    root = values(config, files.get(config) or b"") if known == "containerd" else {}
    return RuntimeDaemon(
        kind=known,
        pid=1,
        binary=DaemonPath(""),
        version=WHOLE_SECTIONS[3 if root.get("version") == 3 else 2],
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
    """The files after `runtime apply`. Raises what that raises where it refuses.

    `dump` is what a daemon says that does not go by these files.
    """
    edit = BACKENDS[where.kind]
    before: Files = {**dict.fromkeys(_own(where)), **files}
    view = effective(where, before)
    where = OnBytes(edit).placed(where, before)
    told = view if dump is None else values("dump", dump)
    after = {**files, **OnBytes(edit).patched(where, before, told, wanted)}
    then = effective(where, after)
    check_effective(edit, where, (view, then), wanted)
    check_servable(edit, where, view, then)
    return after


def _own(where: RuntimeDaemon) -> tuple[str, ...]:
    return tuple(path for path in (where.config, where.drop_in) if path)


def reverted(where: RuntimeDaemon, before: Files, after: Files) -> Files:
    """The files `after` a change, which `runtime revert` has taken back."""
    undone = OnBytes(BACKENDS[where.kind]).undone
    return {
        path: undone(path, original=before.get(path), written=data, current=data).data
        for path, data in after.items()
    }


def stripped(where: RuntimeDaemon, files: Files) -> Files:
    """The files after `runtime revert --strip`: without the handlers of NVIDIA's that the daemon sees."""
    edit = BACKENDS[where.kind]
    before: Files = {**dict.fromkeys(_own(where)), **files}
    names = nvidia_handlers_of(edit, effective(where, before))
    return {**files, **OnBytes(edit).stripped(where, before, tuple(names))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Parsed files or a value, ours and upstream's; `what` names the comparison."""

    what: str
    ours: object
    upstream: object

    @property
    def differing(self) -> set[KeyPath]:
        """Keys of which only one side has the value; () where the values are no documents."""
        if not isinstance(self.ours, dict) or not isinstance(self.upstream, dict):
            return set() if self.ours == self.upstream else {()}
        ours, upstream = _said(self.ours), _said(self.upstream)
        return {
            path for path in {**ours, **upstream} if ours.get(path, REMOVED) != upstream.get(path, REMOVED)
        }


def _said(document: Mapping[str, object]) -> dict[KeyPath, object]:
    """The keys of a document, but for a handler's zeros, which say nothing."""
    return {
        path: value
        for path, value in leaves(document)
        if not (path[-3:-2] == ("runtimes",) and path[-1] in ZEROS and value == ZEROS[path[-1]])
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of a case: comparisons, or `refused`, our error."""

    compared: tuple[Compared, ...] = ()
    before: Files
    after: Files
    where: RuntimeDaemon | None = None
    refused: DriverforgeError | None = None

    @property
    def differing(self) -> set[KeyPath]:
        return {path for each in self.compared for path in each.differing}


def play(case: Case) -> Played:
    """Play a case. Raises KeyError for an operation that is not known."""
    return PLAYERS[case["operation"]](case)


def _input(case: Case, config: str) -> Files:
    given = case["input"]
    if "files" in given:
        return recorded(given["files"])
    text = given["text"] if "text" in given else json.dumps(given["parsed"])
    return {config: text.encode()} if given.get("parsed") or text.strip() not in ("", "{}") else {}


def _outcome(case: Case, what: str, where: RuntimeDaemon, after: Files) -> Compared:
    """Compare what `expected` has: all files, one document, or one key of it."""
    expected = case["expected"]
    found = parsed(after)
    if "files" in expected:
        return Compared(what=what, ours=found, upstream=parsed(recorded(expected["files"])))
    if "default-runtime" in expected:
        ours = _document(found, where.config).get("default-runtime")
        return Compared(what=what, ours=ours, upstream=expected["default-runtime"])
    ours = _document(found, where.drop_in or where.config)
    return Compared(what=what, ours=ours, upstream=expected["parsed"])


def _document(found: Mapping[str, object], path: str) -> dict[str, object]:
    document = found.get(path, {})
    return document if isinstance(document, dict) else {}


def _change(case: Case, where: RuntimeDaemon, wanted: WantedHandlers) -> Played:
    before = _input(case, where.config)
    where = replace(where, version=daemon(where.kind, where.config, where.drop_in, before).version)
    try:
        after = patched(where, before, wanted)
        newer = _where_keys_are_merged(where, before, wanted, _upstream(case, where, after))
    except DriverforgeError as error:
        return Played(before=before, after=before, where=where, refused=error)
    first = _outcome(case, "runtime apply", where, _as_recorded(case, after))
    return Played(compared=(first, *newer), before=before, after=after, where=where)


def _upstream(case: Case, where: RuntimeDaemon, after: Files) -> Files:
    """The node's files with upstream's result; its root file is ours where only the drop-in was recorded."""
    expected = case["expected"]
    if "files" in expected:
        return _as_node(case, recorded(expected["files"]))
    if where.kind != "containerd":
        return {}
    drop_in = toml_file(where.drop_in).rewritten(expected["parsed"]).data
    return {where.config: after[where.config], where.drop_in: drop_in}


def _where_keys_are_merged(
    where: RuntimeDaemon, before: Files, wanted: WantedHandlers, upstream: Files
) -> tuple[Compared, ...]:
    """What containerd 2.1 makes of its files with ours, and with upstream's."""
    if where.kind != "containerd":
        return ()
    newer = replace(where, version=MERGING)
    ours, theirs = patched(newer, before, wanted), {**dict.fromkeys(_own(newer)), **upstream}
    return (Compared(what="containerd 2.1", ours=effective(newer, ours), upstream=effective(newer, theirs)),)


def _add(case: Case) -> Played:
    options = case["options"]
    programs = (
        options["runtimes"] if "runtimes" in options else {options["runtime_name"]: options["runtime_path"]}
    )
    handlers = tuple(Handler(name=name, binary=binary) for name, binary in programs.items() if name)
    default = options["runtime_name"] if options["set_as_default"] else ""
    return _change(
        case,
        daemon(case["runtime"], *DEFAULTS[case["runtime"]], {}),
        WantedHandlers(handlers=handlers, default=default, release_default=not default),
    )


def _lifecycle(case: Case) -> RuntimeDaemon:
    options, default = case["options"], DEFAULTS[case["runtime"]]
    drop_in = options.get("drop_in_config_host_path") or options.get("drop_in_config") or default[1]
    return daemon(case["runtime"], options.get("config") or default[0], drop_in, {})


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
        path, before = _hook(case), _input(case, "")
        after = {**before, path: oci_hook.rendered(_hook_program(case))}
        return Played(compared=(_outcome(case, "hook", where, after),), before=before, after=after)
    wanted = request.wanted_handlers(
        folder=options["runtime_dir"],
        name=options["runtime_name"] or "nvidia",
        default=options["set_as_default"],
        cdi=options.get("enable_cdi_in_runtime", False),
        prefixes=options.get("cdi_annotation_prefixes") or (),
    )
    return _change(case, where, wanted)


def _hook(case: Case) -> str:
    return f"{case['options']['hooks_dir']}/{case['options']['hook_filename']}"


def _hook_program(case: Case) -> str:
    return f"{case['options']['runtime_dir']}/nvidia-container-runtime-hook"


def _cleanup(case: Case) -> Played:
    """Taken back where we made the change, and where upstream did."""
    if case["options"].get("config_mode") == "hook":
        return _hook_cleanup(case)
    where, before = _lifecycle(case), _as_node(case, _input(case, _lifecycle(case).config))
    where = replace(where, version=daemon(where.kind, where.config, where.drop_in, before).version)
    theirs = _outcome(case, "runtime revert --strip", where, _as_recorded(case, stripped(where, before)))
    if case["operation"] == "remove":  # of one file, and nobody says what was in it before
        return Played(compared=(theirs,), before=before, after=before, where=where)
    made = _setup(_setup_of(case))
    left = reverted(where, made.before, made.after)
    ours = _outcome(case, "runtime revert", where, _as_recorded(case, left))
    return Played(compared=(ours, theirs), before=made.before, after=made.after, where=where)


def _setup_of(case: Case) -> Case:
    """The first half of a recorded lifecycle."""
    (found,) = (
        other for other in load("runtime") if other["id"] == case["id"].replace("-cleanup-", "-setup-")
    )
    return found


def _hook_cleanup(case: Case) -> Played:
    path, before = _hook(case), _input(case, "")
    written = oci_hook.rendered(_hook_program(case))
    ours = oci_hook.undone(original=None, written=written, current=written)
    compared = tuple(
        _outcome(case, what, _lifecycle(case), {**before, path: data})
        for what, data in (
            ("at a stop", ours),
            ("upstream's hook", oci_hook.stripped(before.get(path), path)),
        )
    )
    return Played(compared=compared, before=before, after=before)


def _value(ours: object, upstream: object) -> Played:
    return Played(compared=(Compared(what="value", ours=ours, upstream=upstream),), before={}, after={})


def _ensure_imports(case: Case) -> Played:
    ours = imports.imports_with(
        case["input"]["parsed"], case["options"]["drop_in_path"], "/etc/containerd/config.toml"
    )
    return _value(ours, case["expected"]["imports"])


def _get_binary_path(case: Case) -> Played:
    ours = (
        BACKENDS[case["runtime"]].handlers(case["input"]["parsed"]).get(case["options"]["runtime_name"], "")
    )
    return _value(ours, case["expected"]["binary_path"])


def _override(case: Case) -> Played:
    ours = dict(request.wanted_handlers(override=case["input"]["json_text"]).options)
    return _value(ours, case["expected"]["parsed"] or {})


def _options(words: list[str]) -> dict[str, str]:
    """Options of `nvidia-ctk runtime configure`, switches as 'true'."""
    switches = ("--dry-run", "--nvidia-set-as-default", "--cdi.enabled")
    found, rest = {}, list(words)
    while rest:
        word = rest.pop(0)
        found[word] = "true" if word in switches else rest.pop(0)
    return found


def _dump(given: Mapping[str, str], files: Files) -> bytes | None:
    """What the recording's stand-in for containerd prints: in the cases, the content of that program."""
    return (
        files.get(given.get("--executable-path", "")) if given.get("--config-source") == "command" else None
    )


def _configure(case: Case) -> Played:
    given, written = _options(case["options"]["args"]), recorded(case["expected"]["files_observed"])
    kind, upstream = given.get("--runtime", "docker"), _without_programs(written)
    if given.get("--config-mode") == "oci-hook":
        after: Files = {given["--oci-hook-path"]: oci_hook.rendered("/usr/bin/nvidia-container-runtime-hook")}
        compared = Compared(what="hook", ours=parsed(after), upstream=parsed(upstream))
        return Played(compared=(compared,), before={}, after=after)
    try:
        build_parser("runtime").parse_args(["runtime", "apply", "--runtime", kind])
    except UsageError as error:
        # our command line refuses a kind in its own words, and names what was given
        return _value(bool(case["expected"]["error_contains"]) and f"'{kind}'" in error.brief, True)
    return _configured(case, given, kind, upstream)


def _configured(case: Case, given: Mapping[str, str], kind: str, upstream: Files) -> Played:
    every = _input(case, "")
    before, dump = _without_programs(every), _dump(given, every)
    where = daemon(kind, given["--config"], given.get("--drop-in-config", ""), before)
    wanted = _asked(given, kind)
    after = patched(where, before, wanted, dump)
    if "--dry-run" in given:
        compared = Compared(what="dry run", ours=parsed(before), upstream=parsed(upstream))
        return Played(compared=(compared,), before=before, after=before, where=where)
    first = Compared(what="runtime apply", ours=parsed(after), upstream=parsed(upstream))
    newer = _where_keys_are_merged(where, before, wanted, upstream)
    return Played(compared=(first, *newer), before=before, after=after, where=where)


def _asked(given: Mapping[str, str], kind: str) -> WantedHandlers:
    usual = "nvidia-container-runtime" if kind == "docker" else "/usr/bin/nvidia-container-runtime"
    name = given.get("--nvidia-runtime-name", "nvidia")
    default = name if "--nvidia-set-as-default" in given else ""
    return WantedHandlers(
        handlers=(Handler(name=name, binary=given.get("--nvidia-runtime-path", usual)),),
        default=default,
        release_default=not default,
        cdi="--cdi.enabled" in given,
    )


def _without_programs(files: Files) -> Files:
    return {path: data for path, data in files.items() if "/bin/" not in path}


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
