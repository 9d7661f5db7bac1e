"""driverctl cdi generate|list|verify|transform: the specs by which containers get GPUs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from driverforge_core.errors import UsageError
from driverforge_host.gpu.roots import DriverRoots, driver_root_of
from driverforge_toolkit.adapters.nvml import PyNvml
from driverforge_toolkit.app.cdi_specs import (
    generate_spec,
    hook_program,
    installed_specs,
    transform_spec,
    verify_specs,
)
from driverforge_toolkit.cdi.driverfiles import EditOptions, FeatureFlag
from driverforge_toolkit.cdi.generate import SpecRequest, default_kind
from driverforge_toolkit.cdi.gpu_devices import DeviceSelection, NameStrategy
from driverforge_toolkit.cdi.hooks import ALL, NAMES, HookProgram
from driverforge_toolkit.cdi.modes import SpecMode
from driverforge_toolkit.cdi.specfiles import FOLDERS, SpecFormat
from driverforge_toolkit.cdi.transform import PathSide

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from driverforge_host.ports import Host
    from driverforge_toolkit.app.cdi_specs import SpecOutput

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
    flags = [flag.value for flag in FeatureFlag]

    def add(name: str, help_: str, metavar: str = "PATH") -> None:
        parser.add_argument(name, metavar=metavar, help=help_)

    parser.add_argument(
        "--mode",
        type=str.lower,
        choices=[mode.value for mode in SpecMode],
        help="what to describe; default: auto (NVML where it answers, else static)",
    )
    add("--output", "file to write; default: standard output")
    parser.add_argument(
        "--format",
        type=str.lower,
        choices=[form.value for form in SpecFormat],
        help="default: by the file's name, else yaml",
    )
    add("--vendor", "first part of the kind; default: the mode's (nvidia.com, management.nvidia.com)", "NAME")
    add("--class", "second part of the kind; default: the mode's (gpu, imex-channel, gds, …)", "NAME")
    add(
        "--driver-root",
        "folder with the driver's files, on the host; default: /, "
        "with $DRIVER_ROOT_CTR_PATH /run/nvidia/driver",
        "DIR",
    )
    add("--driver-root-ctr-path", "the same folder as this process sees it; default: the same path", "DIR")
    add("--dev-root", "folder that has dev/, on the host; default: the driver root", "DIR")
    add("--dev-root-ctr-path", "the same folder as this process sees it; default: the same path", "DIR")
    parser.add_argument(
        "--device-name-strategy",
        metavar="NAME",
        action="append",
        help="index, uuid or type-index; may be repeated; default: index and uuid",
    )
    parser.add_argument(
        "--device-id",
        "--device-ids",
        metavar="ID",
        action="append",
        help="all, none, an index, a UUID, GPU:MIG, or an IMEX channel; may be repeated; default: all",
    )
    parser.add_argument("--no-all-device", action="store_true", help="no device 'all'")
    add(
        "--nvidia-cdi-hook-path",
        "the hook program on the host; default: /usr/bin/nvidia-cdi-hook, "
        "or the toolkit's if only that is there",
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
        choices=flags,
        help=", ".join(flags),
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
        choices=[side.value for side in PathSide],
        default="host",
        help="which paths; default: %(default)s",
    )
    parser.add_argument("--input", metavar="PATH", default="-", help="default: standard input")
    parser.add_argument("--output", metavar="PATH", default="-", help="default: standard output")


def run(args: argparse.Namespace, host: Host) -> int:
    actions = {"generate": generate, "list": list_devices, "verify": verify, "transform": transform}
    return actions[args.action](args, host)


def generate(args: argparse.Namespace, host: Host) -> int:
    request = request_of(args, host)
    format_ = _word(args, host, "format")
    return _show(
        generate_spec(
            host,
            request,
            PyNvml,
            output=_file(_value(args, host, "output")),
            format_=SpecFormat(format_) if format_ else None,
        )
    )


def request_of(args: argparse.Namespace, host: Host) -> SpecRequest:
    """The options and variables as a value. Raises UsageError with every wrong name at once."""
    mode = _word(args, host, "mode") or SpecMode.AUTO.value
    format_ = _word(args, host, "format") or SpecFormat.YAML.value
    strategies = _words(args.device_name_strategy) or ("index", "uuid")
    disabled, enabled = _words(args.disable_hook), _words(args.enable_hook)
    _refuse_unknown(
        # the parser has refused an option with such a word; a variable comes this far
        (VARIABLES["mode"][0], (mode,), tuple(mode.value for mode in SpecMode)),
        (VARIABLES["format"][0], (format_,), tuple(form.value for form in SpecFormat)),
        ("--device-name-strategy", strategies, tuple(strategy.value for strategy in NameStrategy)),
        ("--disable-hook", disabled, (*NAMES, ALL)),
        ("--enable-hook", enabled, NAMES),
    )
    vendor, _, name = default_kind(SpecMode(mode)).partition("/")
    hooks = HookProgram(
        path=_value(args, host, "nvidia_cdi_hook_path") or hook_program(host),
        disabled=frozenset(disabled),
        enabled=frozenset(enabled),
        ldconfig=args.ldconfig_path or "",
    )
    return SpecRequest(
        mode=SpecMode(mode),
        kind=f"{args.vendor or vendor}/{getattr(args, 'class') or name}",
        roots=_roots(args, host),
        options=EditOptions(
            hooks=hooks,
            flags=frozenset(map(FeatureFlag, args.feature_flag or ())),
            config_folders=_words(args.config_search_path),
        ),
        selection=DeviceSelection(
            strategies=tuple(map(NameStrategy, strategies)), ids=_words(args.device_id) or ("all",)
        ),
        merged=not args.no_all_device,
        library_folders=_words(args.library_search_path),
    )


def _roots(args: argparse.Namespace, host: Host) -> DriverRoots:
    # who names the folder in this process by option, and no other, means the host's own driver
    usual = "/" if args.driver_root_ctr_path else driver_root_of(host.environ)
    return DriverRoots(
        driver=_value(args, host, "driver_root") or usual,
        driver_here=_value(args, host, "driver_root_ctr_path"),
        dev=_value(args, host, "dev_root"),
        dev_here=_value(args, host, "dev_root_ctr_path"),
    )


def _word(args: argparse.Namespace, host: Host, name: str) -> str:
    """One of a closed set of words. nvidia-ctk takes them in upper case too."""
    return _value(args, host, name).strip().lower()


def _value(args: argparse.Namespace, host: Host, name: str) -> str:
    given: str | None = getattr(args, name)
    if given is not None:
        return given
    return next((host.environ[variable] for variable in VARIABLES[name] if host.environ.get(variable)), "")


def _words(values: Sequence[str] | None) -> tuple[str, ...]:
    """Repeated options and comma-separated lists alike."""
    return tuple(word.strip() for value in values or () for word in value.split(",") if word.strip())


def _refuse_unknown(*options: tuple[str, tuple[str, ...], tuple[str, ...]]) -> None:
    """Each option with its words and the known ones."""
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
    """Print NAME and FILE, and on standard error what is wrong with a file."""
    folders = _folders(args)
    specs = installed_specs(host, folders)
    if not specs:
        print(f"there are no spec files in {' and '.join(folders)}", file=sys.stderr)
    for file in specs:
        for name in file.names:
            print(f"{name}\t{file.path}")
        for problem in file.problems:
            print(problem, file=sys.stderr)
    return 0


def verify(args: argparse.Namespace, host: Host) -> int:
    """Exit status 1 where a container could not get what a spec says."""
    folders = _folders(args)
    check = verify_specs(host, args.file, folders)
    if not check.files:
        print(f"nothing to verify: there are no spec files in {' and '.join(folders)}")
        return 0
    for problem in check.problems:
        print(problem.line())
    if check.failed:
        return 1
    one = len(check.files) == 1
    print(f"{len(check.files)} spec file{'' if one else 's'} agree{'s' if one else ''} with the node")
    return 0


def _folders(args: argparse.Namespace) -> Sequence[str]:
    return args.spec_dir or FOLDERS


def transform(args: argparse.Namespace, host: Host) -> int:
    return _show(
        transform_spec(
            host,
            source=args.input,
            text=sys.stdin.read() if args.input in ("-", "/dev/stdin") else None,
            output=_file(args.output),
            side=PathSide(args.relative_to),
            root=args.source,
            target=args.target,
        )
    )


def _file(output: str) -> str:
    """The file to write, '' for standard output."""
    return "" if output in ("-", "/dev/stdout") else output


def _show(made: SpecOutput) -> int:
    """Print the spec, or what became of its file."""
    if not made.path:
        print(made.text, end="")
    else:
        print(f"wrote {made.path}" if made.written else "nothing to do")
    return 0
