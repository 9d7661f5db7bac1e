"""driverctl cdi generate|list|verify|transform: the specs by which container runtimes give GPUs to containers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from driverforge_node.cdi.generate import Request
    from driverforge_node.cdi.spec import Spec
    from driverforge_node.host.ports import Files, Host

# option -> variables, the first that is set counts; the names are nvidia-ctk's and the toolkit pod's
VARIABLES = {
    "mode": ("NVIDIA_CTK_CDI_GENERATE_MODE",),
    "output": ("NVIDIA_CTK_CDI_OUTPUT_FILE_PATH",),
    "format": ("NVIDIA_CTK_CDI_OUTPUT_FORMAT",),
    "driver_root": ("NVIDIA_CTK_DRIVER_ROOT", "NVIDIA_DRIVER_ROOT", "DRIVER_ROOT"),
    "driver_root_ctr_path": ("DRIVER_ROOT_CTR_PATH",),
    "dev_root": ("NVIDIA_CTK_DEV_ROOT", "NVIDIA_DEV_ROOT", "DEV_ROOT"),
    "dev_root_ctr_path": ("DEV_ROOT_CTR_PATH",),
    "nvidia_cdi_hook_path": ("NVIDIA_CTK_CDI_HOOK_PATH",),
}
FLAGS = ("no-additional-gids-for-device-nodes", "disable-ipc-discoverer", "enable-explicit-driver-libraries")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_generate(actions.add_parser("generate", help="write a spec of this node's devices and driver"))
    listing = actions.add_parser("list", help="list the devices that specs define, with their files")
    verify = actions.add_parser(
        "verify", help="compare specs with the node; exit 1 when a container could not get what one says"
    )
    for one in (listing, verify):
        one.add_argument(
            "--spec-dir",
            metavar="DIR",
            action="append",
            help="default: /etc/cdi and /var/run/cdi; may be repeated",
        )
    verify.add_argument("file", nargs="*", help="spec files on the node; default: all in the folders")
    _add_transform(actions.add_parser("transform", help="give a spec's paths another root"))


def _add_generate(parser: argparse.ArgumentParser) -> None:
    from driverforge_node.cdi.generate import ELSEWHERE, MODES

    def add(name: str, help_: str, metavar: str = "PATH") -> None:
        parser.add_argument(name, metavar=metavar, help=help_)

    parser.add_argument(
        "--mode",
        choices=(*MODES, *ELSEWHERE),
        help="what to describe; default: auto (NVML where it answers, else static)",
    )
    add("--output", "file to write; default: standard output")
    parser.add_argument("--format", choices=("yaml", "json"), help="default: by the file's name, else yaml")
    add("--vendor", "first part of the kind; default: the mode's (nvidia.com, management.nvidia.com)", "NAME")
    add("--class", "second part of the kind; default: the mode's (gpu, imex-channel, gds, …)", "NAME")
    add(
        "--driver-root",
        "folder with the driver's files, on the host; default: /, with $DRIVER_ROOT_CTR_PATH /run/nvidia/driver",
        "DIR",
    )
    add("--driver-root-ctr-path", "the same folder as this process sees it; default: the same path", "DIR")
    add("--dev-root", "folder that has dev/, on the host; default: the driver root", "DIR")
    add("--dev-root-ctr-path", "the same folder as this process sees it; default: the same path", "DIR")
    parser.add_argument("--device-name-strategy", metavar="NAME", action="append",
        help="index, uuid or type-index; may be repeated; default: index and uuid")  # fmt: skip
    parser.add_argument("--device-id", "--device-ids", metavar="ID", action="append",
        help="all, none, an index, a UUID, GPU:MIG, or an IMEX channel; may be repeated; default: all")  # fmt: skip
    parser.add_argument("--no-all-device", action="store_true", help="no device 'all'")
    add(
        "--nvidia-cdi-hook-path",
        "the hook program on the host; default: /usr/bin/nvidia-cdi-hook, or the toolkit's if only that is there",
    )
    add("--ldconfig-path", "another ldconfig for the update-ldcache hook")
    for word in ("disable", "enable"):
        parser.add_argument(
            f"--{word}-hook",
            f"--{word}-hooks",
            metavar="NAME",
            action="append",
            help=f"{word} this hook; may be repeated",
        )
    parser.add_argument(
        "--feature-flag",
        "--feature-flags",
        metavar="NAME",
        action="append",
        choices=FLAGS,
        help=", ".join(FLAGS),
    )
    parser.add_argument(
        "--library-search-path",
        metavar="DIR",
        action="append",
        help="look here first for libraries, below the driver root",
    )
    parser.add_argument(
        "--config-search-path",
        metavar="DIR",
        action="append",
        help="look here for graphics configuration instead",
    )


def _add_transform(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", nargs="?", choices=("root",), default="root", help="root, the only kind; may be left out"
    )
    parser.add_argument(
        "--from", dest="source", metavar="DIR", default="/", help="the root to replace; default: %(default)s"
    )
    parser.add_argument(
        "--to", dest="target", metavar="DIR", default="/", help="the root to put there; default: %(default)s"
    )
    parser.add_argument(
        "--relative-to",
        choices=("host", "container"),
        default="host",
        help="which paths; default: %(default)s",
    )
    parser.add_argument("--input", metavar="PATH", default="-", help="default: standard input")
    parser.add_argument("--output", metavar="PATH", default="-", help="default: standard output")


def run(args: argparse.Namespace, host: Host) -> int:
    actions = {"generate": generate, "list": list_devices, "verify": verify, "transform": transform}
    return actions[args.action](args, host)


def generate(args: argparse.Namespace, host: Host) -> int:
    from driverforge_node import log
    from driverforge_node.cdi import document, stale
    from driverforge_node.cdi.generate import make_spec, write_spec
    from driverforge_node.host.nvml import PyNvml

    request = request_of(args, host)
    spec = make_spec(host, request, PyNvml)
    output = _file(_value(args, host, "output"))
    form = _value(args, host, "format") or document.format_of(output)
    comments = stale.comments(stale.observe(host, request.roots))
    if not output:
        print(document.write(spec, form, comments=comments), end="")
        return 0
    if not output.endswith((".json", ".yaml")):
        log.warning("container runtimes read files that end in .yaml or .json only", file=output)
    wrote = write_spec(_place(host, output), output, spec, form, comments=comments)
    print(f"wrote {output}" if wrote else "nothing to do")
    return 0


def request_of(args: argparse.Namespace, host: Host) -> Request:
    """The options and variables as a value. Raises UsageError with every wrong name at once."""
    from driverforge_node.cdi.driverfiles import Wish
    from driverforge_node.cdi.generate import Request, default_kind
    from driverforge_node.cdi.gpus import STRATEGIES
    from driverforge_node.cdi.hooks import ALL, NAMES, Hooks
    from driverforge_node.cdi.modes import Selection
    from driverforge_node.cdi.roots import Roots, driver_root_of

    mode = _value(args, host, "mode") or "auto"
    vendor, _, name = default_kind(mode).partition("/")
    strategies = _words(args.device_name_strategy) or ("index", "uuid")
    disabled, enabled = _words(args.disable_hook), _words(args.enable_hook)
    _refuse_unknown(
        ("--device-name-strategy", strategies, STRATEGIES),
        ("--disable-hook", disabled, (*NAMES, ALL)),
        ("--enable-hook", enabled, NAMES),
    )
    hooks = Hooks(
        program=_value(args, host, "nvidia_cdi_hook_path") or _hook_program(host),
        disabled=frozenset(disabled),
        enabled=frozenset(enabled),
        ldconfig=args.ldconfig_path or "",
    )
    return Request(
        mode=mode,
        kind=f"{args.vendor or vendor}/{getattr(args, 'class') or name}",
        roots=Roots(
            driver=_value(args, host, "driver_root")
            or ("/" if args.driver_root_ctr_path else driver_root_of(host.environ)),
            driver_here=_value(args, host, "driver_root_ctr_path"),
            dev=_value(args, host, "dev_root"),
            dev_here=_value(args, host, "dev_root_ctr_path"),
        ),
        wish=Wish(
            hooks=hooks,
            flags=frozenset(args.feature_flag or ()),
            config_folders=_words(args.config_search_path),
        ),
        selection=Selection(strategies=strategies, ids=_words(args.device_id) or ("all",)),
        merged=not args.no_all_device,
        library_folders=_words(args.library_search_path),
    )


def _value(args: argparse.Namespace, host: Host, name: str) -> str:
    given: str | None = getattr(args, name)
    if given is not None:
        return given
    return next((host.environ[variable] for variable in VARIABLES[name] if host.environ.get(variable)), "")


def _hook_program(host: Host) -> str:
    """Upstream's place; the toolkit's own program on a node that has only that."""
    from driverforge_node.cdi.hooks import DEFAULT_PROGRAM
    from driverforge_node.runtime.environment import install_dir

    installed = f"{install_dir(host.environ)}/toolkit/nvidia-cdi-hook"
    return (
        installed
        if host.node.exists(installed) and not host.node.exists(DEFAULT_PROGRAM)
        else DEFAULT_PROGRAM
    )


def _words(values: Sequence[str] | None) -> tuple[str, ...]:
    """Repeated options and comma-separated lists alike."""
    return tuple(word.strip() for value in values or () for word in value.split(",") if word.strip())


def _refuse_unknown(*options: tuple[str, tuple[str, ...], tuple[str, ...]]) -> None:
    """Each option with its words and the known ones."""
    from driverforge_core.errors import UsageError

    wrong = [
        f"{option} {word}: there are {', '.join(known)}"
        for option, words, known in options
        for word in words
        if word not in known
    ]
    if wrong:
        raise UsageError(
            "driverctl cdi generate: unknown names", details=wrong, resolution="driverctl cdi generate --help"
        )


def list_devices(args: argparse.Namespace, host: Host) -> int:
    """NAME and FILE, as runtimes would resolve them: a name in a later folder hides the same one in an earlier."""
    from driverforge_node.cdi import specdirs

    folders = args.spec_dir or specdirs.FOLDERS
    specs = specdirs.load(host.node, folders)
    if not specs:
        print(f"there are no spec files in {' and '.join(folders)}", file=sys.stderr)
    for file in specs:
        for name in file.names:
            print(f"{name}\t{file.path}")
        for problem in file.problems:
            print(problem, file=sys.stderr)
    return 0


def verify(args: argparse.Namespace, host: Host) -> int:
    from driverforge_node.cdi import specdirs
    from driverforge_node.cdi.verify import verify as findings_of

    folders = args.spec_dir or specdirs.FOLDERS
    if args.file:
        specs = tuple(specdirs.load_file(host.node, path, path.rpartition("/")[0]) for path in args.file)
    else:
        specs = specdirs.load(host.node, folders)
    if not specs:
        print(f"nothing to verify: there are no spec files in {' and '.join(folders)}")
        return 0
    findings = findings_of(host, specs)
    for finding in findings:
        print(finding.line())
    bad = [finding for finding in findings if not finding.note]
    if not bad:
        print(
            f"{len(specs)} spec file{'' if len(specs) == 1 else 's'} agree{'s' if len(specs) == 1 else ''} with the node"
        )
    return 1 if bad else 0


def transform(args: argparse.Namespace, host: Host) -> int:
    from driverforge_node.cdi import document
    from driverforge_node.cdi.generate import write_spec
    from driverforge_node.cdi.transform import container_moved, host_moved

    spec, output = _read_spec(args.input, host), _file(args.output)
    moved = (host_moved if args.relative_to == "host" else container_moved)(spec, args.source, args.target)
    form = document.format_of(output or args.input)
    if not output:
        print(document.write(moved, form), end="")
        return 0
    wrote = write_spec(_place(host, output), output, moved, form)
    print(f"wrote {output}" if wrote else "nothing to do")
    return 0


def _file(output: str) -> str:
    """The file to write, '' for standard output."""
    return "" if output in ("-", "/dev/stdout") else output


def _place(host: Host, path: str) -> Files:
    """Whose file `path` is: a pod that does not have the node's folder of specs mounted means the node's all the same, as runtimes do."""
    from driverforge_node.cdi.specdirs import FOLDERS

    folder = path.rpartition("/")[0]
    if folder not in (*FOLDERS, "/run/cdi"):
        return host.files
    there = host.files.identity(folder)
    return host.files if there is not None and there == host.node.identity(folder) else host.node


def _read_spec(path: str, host: Host) -> Spec:
    from driverforge_core.errors import InputError
    from driverforge_node.cdi import document

    if path in ("-", "/dev/stdin"):
        return document.read(sys.stdin.read(), "standard input")
    try:
        return document.read(_place(host, path).read_text(path), path)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}", resolution="name a spec file with --input") from None
