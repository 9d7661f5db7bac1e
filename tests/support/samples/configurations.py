"""Root configurations of real nodes, for runs of `driverctl runtime apply|revert` against real daemons.

Some are of the kinds that upstream's installer was measured on: bare, docker-ce's, sandbox image, registries,
other runtimes. The others have what people's files look like besides: imports, comments, other line ends,
inline tables, dotted keys, links, leftovers of another installer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

V1 = ("1.6", "1.7")
V4 = ("2.3", "2.4")  # whose own configuration has version 4
V2 = ("2.1", *V4)
ALL = (*V1, *V2)
CRI2 = 'plugins."io.containerd.grpc.v1.cri"'
CRI3 = "plugins.'io.containerd.cri.v1.runtime'"
IMAGES3 = "plugins.'io.containerd.cri.v1.images'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A root file (None: there is none) and what lies beside it, by path under its folder.

    `refused` is a piece of the sentence with which it must be refused, '' where it must work. `default` asks
    the daemon for its own default configuration and puts `root` behind it.
    """

    id: str
    root: str | None
    daemons: tuple[str, ...] = ALL
    always: str = ""  # the daemon that it meets in every run, which is the one that it is about
    files: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""
    default: bool = False
    link: bool = False  # the root file is a symbolic link to a file in another folder
    mode: int = 0o644
    read_only: bool = False  # the folder of the root file is mounted read-only


def runc2(extra: str = "") -> str:
    return f"""[{CRI2}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[{CRI2}.containerd.runtimes.runc.options]
  SystemdCgroup = false
{extra}"""


UPSTREAM_DROP_IN = f"""version = 2

[plugins]

  [{CRI2}]

    [{CRI2}.containerd]

      [{CRI2}.containerd.runtimes]

        [{CRI2}.containerd.runtimes.nvidia]
          runtime_type = "io.containerd.runc.v2"

          [{CRI2}.containerd.runtimes.nvidia.options]
            BinaryName = "/usr/local/nvidia/toolkit-of-before/nvidia-container-runtime"

        [{CRI2}.containerd.runtimes.runc]
          runtime_type = "io.containerd.runc.v2"
"""

FULL = f"""version = 2
[{CRI2}]
  max_container_log_line_size = 65536
[{CRI2}.cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "/etc/cni/net.d"
[{CRI2}.registry]
  config_path = "/etc/containerd/certs.d"
[{CRI2}.containerd]
  default_runtime_name = "runc"
  snapshotter = "overlayfs"
{runc2()}[{CRI2}.containerd.runtimes.kata]
  runtime_type = "io.containerd.kata.v2"
"""

CONTAINERD: tuple[Configuration, ...] = (
    Configuration(id="no-file", root=None),
    Configuration(id="empty", root=""),
    Configuration(id="comments-only", root="# managed by nobody\n# empty\n"),
    Configuration(id="version-2-alone", root="version = 2\n"),
    Configuration(
        id="registry-and-systemd-cgroup",
        root=f"version = 2\n[{CRI2}]\n  max_container_log_line_size = 16384\n[{CRI2}.registry]\n"
        f'  config_path = "/etc/containerd/certs.d"\n{runc2()}',
    ),
    Configuration(id="full", root=FULL),
    Configuration(id="default-of-1.x", root="", default=True, daemons=V1),
    Configuration(id="default-of-2.x", root="", default=True, daemons=V2),
    Configuration(
        id="registry-mirrors",
        root=f'version = 2\n[{CRI2}.registry.mirrors."docker.io"]\n'
        '  endpoint = ["https://mirror.site", "https://second.site"]\n',
    ),
    Configuration(
        id="registry-auth",
        root=f'version = 2\n[{CRI2}.registry.configs."registry.site".auth]\n  username = "node"\n'
        '  password = "p\\"w"\n',
        daemons=V1,
    ),
    Configuration(
        id="another-default-runtime",
        root=f'version = 2\n[{CRI2}.containerd]\n  default_runtime_name = "plain"\n'
        f"[{CRI2}.containerd.runtimes.plain]\n"
        f'  runtime_type = "io.containerd.runc.v2"\n  pod_annotations = ["site.*"]\n'
        f"[{CRI2}.containerd.runtimes.plain.options]\n  NoPivotRoot = false\n",
    ),
    Configuration(
        id="gvisor-beside-runc",
        root=f"version = 2\n{runc2()}[{CRI2}.containerd.runtimes.runsc]\n"
        '  runtime_type = "io.containerd.runsc.v1"\n'
        f'[{CRI2}.containerd.runtimes.runsc.options]\n  TypeUrl = "io.containerd.runsc.v1.options"\n'
        '  ConfigPath = "/etc/runsc.toml"\n',
    ),
    Configuration(
        id="imports-without-cri",
        root='version = 2\nimports = ["extra.d/*.toml"]\n',
        files={"extra.d/10-metrics.toml": "version = 2\n[metrics]\n  grpc_histogram = true\n"},
    ),
    Configuration(
        id="imports-absolute-with-cri",
        root='version = 2\nimports = ["@/extra.d/*.toml"]\n',
        files={
            "extra.d/20-cri.toml": (
                f'version = 2\n[{CRI2}.registry]\n  config_path = "/etc/containerd/certs.d"\n{runc2()}'
            )
        },
    ),
    Configuration(
        id="imports-cover-the-drop-in",
        root=f'version = 2\nimports = ["@/conf.d/*.toml"]\n{runc2()}',
        files={"conf.d/10-site.toml": 'version = 2\n[debug]\n  level = "info"\n'},
    ),
    Configuration(
        id="a-neighbour-that-nobody-imports",
        root=FULL,
        files={"conf.d/old.toml": "broken [", "conf.d/other.toml": "version = 2\noom_score = -500\n"},
    ),
    Configuration(
        id="a-section-that-is-read-later",
        root='version = 2\nimports = ["@/conf.d/*.toml"]\n',
        files={
            "conf.d/zz-site.toml": (
                f'version = 2\n[{CRI2}.registry]\n  config_path = "/etc/containerd/certs.d"\n{runc2()}'
            )
        },
    ),
    Configuration(
        id="a-section-of-a-later-import",
        root='version = 2\nimports = ["@/conf.d/*.toml", "@/site.toml"]\n',
        files={"site.toml": f"version = 2\n[{CRI2}]\n  max_container_log_line_size = 8192\n{runc2()}"},
    ),
    Configuration(
        id="relative-imports",  # 1.6 starts them at its working folder, which is another one
        root='version = 2\nimports = ["conf.d/*.toml"]\n',
        files={
            "conf.d/10-site.toml": f"version = 2\n[{CRI2}]\n  max_container_log_line_size = 4096\n{runc2()}"
        },
    ),
    Configuration(
        id="options-in-another-spelling",  # kubespray's
        root=f'version = 2\n{runc2().replace("SystemdCgroup", "systemdCgroup")}  binaryName = "runc"\n',
    ),
    Configuration(
        id="an-option-in-two-spellings",  # gpu-operator#1374: a tool's BinaryName beside kubespray's
        root=f"version = 2\n{runc2()}[{CRI2}.containerd.runtimes.nvidia]\n"
        f'  runtime_type = "io.containerd.runc.v2"\n[{CRI2}.containerd.runtimes.nvidia.options]\n'
        '  BinaryName = "/usr/bin/nvidia-container-runtime"\n  binaryName = "runc"\n'
        "  systemdCgroup = false\n",
        always="2.1",
    ),
    Configuration(
        id="two-imports",
        root='version = 2\nimports = ["@/a.d/*.toml", "@/b.toml"]\noom_score = 0\n',
        files={
            "a.d/1.toml": f"version = 2\n[{CRI2}]\n  max_container_log_line_size = 4096\n",
            "b.toml": f"version = 2\n[{CRI2}]\n  max_container_log_line_size = 8192\n{runc2()}",
        },
    ),
    Configuration(
        id="comments-everywhere",
        root=f"# top\nversion = 2 # two\n\n# about CRI\n[{CRI2}] # here\n  # size\n"
        "  max_container_log_line_size = 16384 # bytes\n"
        f"{runc2('  # end of options')}\n# the end",
    ),
    Configuration(id="crlf", root=FULL.replace("\n", "\r\n")),
    Configuration(id="no-final-newline", root=FULL.rstrip("\n")),
    Configuration(
        id="inline-tables",
        root=f"version = 2\n[{CRI2}.containerd]\n"
        'runtimes = {runc = {runtime_type = "io.containerd.runc.v2", options = {SystemdCgroup = false}}}\n',
    ),
    Configuration(
        id="toml-1.1",  # 2.3.7 is built with a library that does not read it
        root=f"version = 2\n[{CRI2}.containerd]\nruntimes = {{\n"
        '  runc = { runtime_type = "io.containerd.runc.v2" }, # ours\n}\n'
        f'[{CRI2}.registry.headers]\n  X-Site = ["\\x41\\e[0m"]\n',
        daemons=("2.1", "2.4"),
    ),
    Configuration(
        id="dotted-keys",
        root="version = 2\n"
        'plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.runtime_type = '
        '"io.containerd.runc.v2"\n'
        'plugins."io.containerd.grpc.v1.cri".registry.config_path = "/etc/containerd/certs.d"\n',
    ),
    Configuration(
        id="dotted-below-a-header",
        root="version = 2\n[plugins]\n"
        '"io.containerd.grpc.v1.cri".containerd.runtimes.runc.runtime_type = "io.containerd.runc.v2"\n',
    ),
    Configuration(id="literal-strings", root=FULL.replace('"', "'")),
    Configuration(id="tabs-and-blanks", root=FULL.replace("  ", "\t").replace(" = ", "   =   ")),
    Configuration(
        id="tables-out-of-order",
        root=f"version = 2\n[{CRI2}.containerd.runtimes.runc.options]\nSystemdCgroup = false\n[metrics]\n"
        "grpc_histogram = true\n"
        f'[{CRI2}.containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n[{CRI2}.registry]\n'
        'config_path = "/etc/containerd/certs.d"\n',
    ),
    Configuration(
        id="stream-processors",
        root="version = 2\n[stream_processors]\n"
        '  [stream_processors."io.containerd.ocicrypt.decoder.v1.tar"]\n'
        '    accepts = ["application/vnd.oci.image.layer.v1.tar+encrypted"]\n'
        '    returns = "application/vnd.oci.image.layer.v1.tar"\n'
        '    path = "ctd-decoder"\n    args = ["--decryption-keys-path", "/etc/containerd/ocicrypt/keys"]\n',
    ),
    Configuration(
        id="another-plugin-disabled",
        root='version = 2\ndisabled_plugins = ["io.containerd.snapshotter.v1.btrfs"]\n',
    ),
    Configuration(
        id="unicode-and-multi-line",
        root=f'version = 2\n# Knöten €\n[{CRI2}.registry]\nconfig_path = """/etc/containerd/\\\n'
        '   certs.d"""\n',
    ),
    Configuration(
        id="old-nvidia-handler",
        root=f'version = 2\n[{CRI2}.containerd]\n  default_runtime_name = "nvidia"\n'
        f"{runc2()}[{CRI2}.containerd.runtimes.nvidia]\n"
        f'  runtime_type = "io.containerd.runc.v2"\n'
        f'[{CRI2}.containerd.runtimes.nvidia.options]\n  BinaryName = "/usr/bin/nvidia-container-runtime"\n',
    ),
    Configuration(
        id="upstreams-drop-in",
        root='imports = ["@/conf.d/*.toml"]\nversion = 2\n',
        files={"conf.d/99-nvidia.toml": UPSTREAM_DROP_IN},
    ),
    Configuration(
        id="deprecated-default-runtime",
        root=f'version = 2\n[{CRI2}.containerd]\n  default_runtime_name = "runc"\n  no_pivot = false\n'
        f"{runc2()}",
    ),
    Configuration(
        id="cdi-on",
        root=f'version = 2\n[{CRI2}]\n  enable_cdi = true\n  cdi_spec_dirs = ["/etc/cdi", "/run/cdi"]\n',
        daemons=("1.7",),
    ),
    Configuration(
        id="nri-on",
        root='version = 2\n[plugins."io.containerd.nri.v1.nri"]\n  disable = true\n'
        '  socket_path = "/run/nri/own.sock"\n',
        daemons=("1.7", *V2),
    ),
    Configuration(id="link", root=FULL, link=True),
    Configuration(id="mode-600", root=FULL, mode=0o600),
    Configuration(
        id="many-comments",
        root="version = 2\n" + "# a line of words that nobody reads but that somebody wrote\n" * 20000,
    ),
    Configuration(id="version-3-alone", root="version = 3\n", daemons=V2),
    Configuration(
        id="version-3-registry-and-runc",
        root=f"version = 3\n[{IMAGES3}.registry]\n  config_path = '/etc/containerd/certs.d'\n"
        f"[{CRI3}.containerd.runtimes.runc]\n"
        f"  runtime_type = 'io.containerd.runc.v2'\n[{CRI3}.containerd.runtimes.runc.options]\n"
        "  SystemdCgroup = false\n",
        daemons=V2,
    ),
    Configuration(
        id="version-3-imports",
        root=f"version = 3\nimports = ['@/extra.d/*.toml']\n[{CRI3}]\n  max_container_log_line_size = 4096\n",
        files={"extra.d/5-old.toml": f"version = 2\n[{CRI2}]\n  enable_unprivileged_ports = true\n"},
        daemons=V2,
    ),
    Configuration(
        id="version-3-another-default",
        root=f"version = 3\n[{CRI3}.containerd]\n  default_runtime_name = 'plain'\n"
        f"[{CRI3}.containerd.runtimes]\n"
        f"  [{CRI3}.containerd.runtimes.plain]\n"
        f"    runtime_type = 'io.containerd.runc.v2'\n    sandboxer = 'podsandbox'\n"
        f"    [{CRI3}.containerd.runtimes.plain.options]\n      NoNewKeyring = true\n",
        daemons=V2,
    ),
    Configuration(
        id="version-3-old-section",
        root=f'version = 3\n[{CRI2}]\n  stream_server_port = "0"\n  max_container_log_line_size = 4096\n'
        f"[{CRI2}.containerd.runtimes.nvidia]\n"
        '  runtime_type = "io.containerd.runc.v2"\n'
        f"[{CRI2}.containerd.runtimes.nvidia.options]\n  NoNewKeyring = true\n",
        daemons=V4,
    ),
    Configuration(
        id="version-4",
        root=f"version = 4\n[plugins.'io.containerd.server.v1.grpc']\n  gid = 0\n"
        f"[{CRI3}]\n  max_container_log_line_size = 4096\n",
        daemons=V4,
    ),
    # refused, and the node untouched: no correct result exists
    Configuration(id="docker-ce", root='disabled_plugins = ["cri"]\n', daemons=V1, refused="CRI"),
    Configuration(
        id="cri-disabled",
        root='version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n',
        refused="CRI",
    ),
    Configuration(
        id="version-1",
        root="[plugins.cri]\n  max_container_log_line_size = 16384\n",
        daemons=V1,
        refused="version 1",
    ),
    Configuration(
        id="toml-1.1-before-2.0", root='version = 2\ntemp = "\\e"\n', daemons=V1, refused="does not accept"
    ),
    Configuration(id="read-only-folder", root="version = 2\n", read_only=True, refused="read-only"),
)

DOCKER: tuple[Configuration, ...] = tuple(
    Configuration(id=name, root=root, daemons=("26", "28"), refused=refused)
    for name, root, refused in (
        ("empty-object", "{}", ""),
        (
            "features",
            '{\n  "features": {"buildkit": true, "containerd-snapshotter": false},\n  "debug": false\n}\n',
            "",
        ),
        (
            "another-runtime",
            (
                '{\n    "runtimes": {\n        "plain": {\n            "path": "runc"\n        }\n    },\n'
                '    "default-runtime": "plain"\n}\n'
            ),
            "",
        ),
        ("tabs", '{\n\t"log-opts": {\n\t\t"max-size": "10m",\n\t\t"max-file": "3"\n\t}\n}\n', ""),
        ("one-line", '{"log-level":"info","max-concurrent-downloads":3}', ""),
        ("crlf", '{\r\n  "log-level": "info",\r\n  "experimental": false\r\n}\r\n', ""),
        (
            "registries",
            '{\n "insecure-registries" : [ "registry.site:5000" , "10.0.0.0/8" ] ,\n "labels" : [ ]\n}',
            "",
        ),
        ("escapes", '{\n  "labels": ["where=K\\u00f6ln", "a=\\"b\\""]\n}\n', ""),
        (
            "numbers",
            (
                '{\n  "max-concurrent-uploads": 5,\n'
                '  "default-ulimits": {"nofile": {"Name": "nofile", "Hard": 20000, "Soft": 20000}}\n}\n'
            ),
            "",
        ),
        (
            "old-nvidia",
            (
                '{"default-runtime":"nvidia","runtimes":'
                '{"nvidia":{"path":"/usr/bin/nvidia-container-runtime","args":[]}}}\n'
            ),
            "",
        ),
    )
)
