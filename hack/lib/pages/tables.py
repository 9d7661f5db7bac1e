"""The pages of docs/ that are made of tables which driverctl itself reads."""

from __future__ import annotations

from driverforge_driver.state import variables
from driverforge_toolkit.doctor import rules
from driverforge_toolkit.toolkit import options
from driverforge_toolkit.validate import validator_settings


def contents() -> dict[str, str]:
    """Each page's path to its text."""
    return {
        "docs/environment.md": driver_page(),
        "docs/toolkit-environment.md": toolkit_page(),
        "docs/validator-environment.md": validator_page(),
        "docs/doctor.md": doctor_page(),
    }


def driver_page() -> str:
    """docs/environment.md, in full."""
    lines = [
        "# Environment variables",
        "",
        "What `driverctl init`, `load`, `unload`, `build` and `status` (and the name `nvidia-driver`) read",
        "from their environment. Any other value than an allowed one ends with exit status 65 (that name:",
        "1) and a message that lists every bad value. What NVIDIA's images read and these do not:",
        "[compatibility](compatibility.md#not-yet).",
        "",
        "This page is generated from `entrypoints/driverforge_driver/state/variables.py` by",
        "`hack/environment-page`.",
        "",
        "| variable | meaning | allowed | default | set by |",
        "|---|---|---|---|---|",
    ]
    for v in variables.VARIABLES:
        allowed = ", ".join(f"`{word}`" for word in v.allowed) or "any text"
        default = f"`{v.default}`" if v.default else "not set"
        lines.append(f"| `{v.name}` | {v.meaning} | {allowed} | {default} | {v.set_by} |")
    return "\n".join(lines) + "\n"


_TOOLKIT = """# Options and environment variables of the toolkit

What `driverctl toolkit` and the name `nvidia-toolkit` read. A flag counts before a variable. Of several
variables, the first that is set and not empty counts. Of another runtime than `RUNTIME`, the configuration
file, the socket and what only that runtime has do not count (`DOCKER_CONFIG` with `RUNTIME=containerd`); its
other variables do (`CONTAINERD_RESTART_MODE` with `RUNTIME=docker`), as upstream's. `DOCKER_CONFIG` counts
only where it names a file: docker's own client calls its folder so. Lists are separated by commas. A path
on one of this container's mounts, as NVIDIA's operator sets them, is translated to the node's name for it.
Any other path is the node's own. Every bad value is told at once, before anything is changed.

This page is generated from `entrypoints/driverforge_toolkit/toolkit/options.py` by `hack/environment-page`.
"""


def toolkit_page() -> str:
    """docs/toolkit-environment.md, in full."""
    lines = _TOOLKIT.splitlines()
    for title, rows in options.SECTIONS:
        lines += [
            "",
            f"## {title}",
            "",
            "| flag | variable | meaning | allowed | default |",
            "|---|---|---|---|---|",
        ]
        lines += [_row(option) for option in rows]
    return "\n".join(lines) + "\n"


def _row(option: options.Option) -> str:
    def code(words: tuple[str, ...]) -> str:
        return ", ".join(f"`{word}`" for word in words)

    allowed = (
        {"bool": "`true`, `false`", "list": "a list", "seconds": "seconds"}.get(option.kind)
        or code(option.allowed)
        or "any text"
    )
    default = f"`{option.default}`" if option.default else "not set"
    return (
        f"| {code(option.flags)} | {code(option.variables) or 'none'} | {option.meaning} | {allowed} | "
        f"{default} |"
    )


def validator_page() -> str:
    """docs/validator-environment.md, in full."""
    lines = [
        "# Environment variables of the validator",
        "",
        "What `nvidia-validator` and `driverctl validate` read; each has a flag of the same name",
        "(`WITH_WAIT`: `--with-wait true`). [What it looks at](validate.md).",
        "",
        "This page is generated from `entrypoints/driverforge_toolkit/validate/validator_settings.py` by",
        "`hack/environment-page`.",
        "",
        "| variable | meaning | allowed | default |",
        "|---|---|---|---|",
    ]
    kinds = {"bool": "`true`, `false`", "number": "0 to 65535", "text": "any text"}
    for v in validator_settings.VARIABLES:
        allowed = ", ".join(f"`{word}`" for word in v.allowed) or kinds[v.kind]
        lines.append(
            f"| `{v.name}` | {v.meaning} | {allowed} | {f'`{v.default}`' if v.default else 'not set'} |"
        )
    return "\n".join(lines) + "\n"


def doctor_page() -> str:
    """docs/doctor.md, in full."""
    rows = [
        f"| `{rule.id}` | {rule.symptom} | {rule.cause} | {', '.join(rule.issues) or 'found by us'} |"
        for rule in rules.RULES
    ]
    return "\n".join([_DOCTOR, *rows, _BELOW])


_DOCTOR = """\
# What is wrong with this node?

    driverctl doctor                    # on the node, or in a privileged pod with hostPID
    driverctl doctor --root DIR         # a copy of a node's files, as must-gather makes it
    driverctl doctor --json

The doctor looks for known problems of the container runtime, CDI specs and the toolkit. It prints each that
shows, with its evidence and the next command, which a shell takes as it is: behind a `#` stands what a person
has to know or to do. It changes nothing; with `--root` it also asks no process and starts no program. On a
node it rehearses containerd's next start ([how](runtime.md#what-happens-in-order)). The last line says what
there was to look at, and names a runtime that does not run.

Exit status 0: nothing was found; 1: something was; any other: the look failed (77: it needs root).

CDI specs of kinds that `driverctl cdi generate` does not write are left to the tool that wrote them.

In a dump, a file counts at its place below DIR: `etc/containerd`, `etc/k0s`, `etc/crio`, `etc/docker`,
`etc/cdi`, `var/run/cdi`, `var/lib/rancher`, `var/snap/microk8s/current/args`, `var/lib/kubelet`,
`var/lib/driverforge`, `usr/local/nvidia`, `run/nvidia`, `proc/devices`, `sys/module/nvidia/version`,
`var/log`. `--log FILE` adds a log from elsewhere (`journalctl -u containerd > FILE`). What a dump cannot show
is not judged: the handlers that the running process has, device files, and links in /dev/char.

| id | what is seen | cause | upstream |
|---|---|---|---|"""
_BELOW = """
`toolkit` is NVIDIA/nvidia-container-toolkit, `dra` is NVIDIA/k8s-dra-driver-gpu. A running node can be
watched for the same problems: [watch.md](watch.md). `hack/environment-page` generates this page from
`entrypoints/driverforge_toolkit/doctor/rules.py`.
"""
