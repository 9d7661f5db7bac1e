"""What the daemon's own program makes of a set of files, before they are in force.

containerd and CRI-O read copies (`candidates`). A set that is on disk already is read where it is. docker has
no such command: its document is what it is, and `dockerd --validate` judges it.
"""

from __future__ import annotations

from collections.abc import Mapping

from driverforge_core.errors import InputError
from driverforge_host.ports import Host, Result
from driverforge_toolkit.runtime.backends import config_files, crio, docker, imports
from driverforge_toolkit.runtime.backends.candidates import Copier, candidate_folder
from driverforge_toolkit.runtime.find.daemon import enter
from driverforge_toolkit.runtime.find.procfs import option_value, option_values, options_of
from driverforge_toolkit.runtime.formats.configfile import Contents, data_of, values_of
from driverforge_toolkit.runtime.formats.tomledit import parse
from driverforge_toolkit.runtime.model import RuntimeDaemon

TIMEOUT = 60.0


def effective_configuration(
    host: Host, daemon: RuntimeDaemon, files: Contents, disk: Contents
) -> Mapping[str, object]:
    """The daemon's view of `files`; `disk` is what is there now.

    Raises InputError, with the daemon's own message, where it does not accept them; Unavailable where its
    program cannot be run.
    """
    if daemon.kind == "containerd":
        return _containerd(host, daemon, files, disk)
    if daemon.kind == "crio":
        return _crio(host, daemon, files)
    return _docker(host, daemon, files)


def _containerd(host: Host, daemon: RuntimeDaemon, files: Contents, disk: Contents) -> Mapping[str, object]:
    if data_of(files, daemon.config) is not None and not config_files.changed_paths(files, disk):
        shown = _run(host, daemon, "--config", daemon.config, "config", "dump")
    else:
        with candidate_folder(host) as folder:
            copier = Copier(host=host, daemon=daemon, files=files, disk=disk, folder=folder)
            copy = copier.copied().get(daemon.config, daemon.config)
            shown = _run(host, daemon, "--config", copy, "config", "dump")
    seen = parse(_accepted(shown, daemon).encode(), "containerd's effective configuration")
    # the dump names the copies
    seen["imports"] = imports.declared_imports(values_of(files, daemon.config), daemon.config)
    return seen


def _crio(host: Host, daemon: RuntimeDaemon, files: Contents) -> dict[str, object]:
    """Its built-in configuration, with what `crio config` prints: defaults are comments there, since 1.21.

    That is so in the releases that print them at all (cri-o/cri-o#4506, #5007).
    """
    above = daemon.drop_in.rpartition("/")[0]
    # these win over the files, and only these change runtimes (internal/criocli)
    own = options_of(host.node, daemon.pid)
    options = [
        f"{name}={value}"
        for name in ("--default-runtime", "--runtimes")
        for value in option_values(own, (name,))
    ]
    with candidate_folder(host) as folder:
        root = f"{folder}/{daemon.config.rpartition('/')[2]}"
        host.node.make_dirs(f"{folder}/conf.d", mode=0o700)
        host.node.write_atomic(root, data_of(files, daemon.config) or b"", mode=0o600)
        for path, file in files.items():
            if file.data is not None and path != daemon.config:
                copy = f"{folder}/conf.d{path.removeprefix(above)}"
                host.node.make_dirs(copy.rpartition("/")[0], mode=0o700)
                host.node.write_atomic(copy, file.data, mode=0o600)
        words = ("--config", root, "--config-dir", f"{folder}/conf.d", *options, "config")
        shown = _run(host, daemon, *words)
        built_in = _run(host, daemon, *words, "--default")
    seen = parse(_accepted(shown, daemon).encode(), "CRI-O's effective configuration")
    return crio.layered(_printed(built_in), seen)


def _printed(shown: Result) -> dict[str, object]:
    """The document that a program printed; {} where it printed none."""
    try:
        return parse(shown.stdout.encode(), "CRI-O's built-in configuration") if shown.ok else {}
    except InputError:
        return {}


def _docker(host: Host, daemon: RuntimeDaemon, files: Contents) -> Mapping[str, object]:
    data, document = data_of(files, daemon.config), values_of(files, daemon.config)
    # its other options count: one that is in the file as well makes it refuse to start
    options = [word for word in options_of(host.node, daemon.pid) if word != "--validate"]
    if data is None:
        return docker.with_options(document, options)
    named = option_value(options, ("--config-file",))
    options = [word for word in options if word not in ("--config-file", named, f"--config-file={named}")]
    with candidate_folder(host) as folder:
        host.node.write_atomic(f"{folder}/daemon.json", data, mode=0o600)
        shown = _run(host, daemon, *options, "--validate", "--config-file", f"{folder}/daemon.json")
    if "unknown flag: --validate" not in shown.stderr:  # docker before 23
        _accepted(shown, daemon)
    return docker.with_options(document, options)


def _run(host: Host, daemon: RuntimeDaemon, *words: str) -> Result:
    entered = enter(host, daemon)
    # where older ones start relative imports; nsenter goes to /, where services have theirs
    here = daemon.folder if not entered and host.node.is_dir(daemon.folder) else None
    return host.commands.run([*entered, daemon.binary, *words], check=False, timeout=TIMEOUT, cwd=here)


def _accepted(shown: Result, daemon: RuntimeDaemon) -> str:
    if shown.ok:
        return shown.stdout
    lines = [line for line in (shown.stdout + shown.stderr).splitlines() if line.strip()]
    raise InputError(
        f"{daemon.kind} does not accept {daemon.config}",
        details=lines,
        resolution="repair the file; driverctl changed nothing",
    )
