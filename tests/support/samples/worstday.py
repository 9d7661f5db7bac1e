"""A day on which somebody edits what a containerd has read, file by file, while it runs."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

CRI = 'plugins."io.containerd.grpc.v1.cri"'
RUNC = f'[{CRI}.containerd.runtimes.runc]\n  runtime_type = "io.containerd.runc.v2"\n'
SPEC = '  base_runtime_spec = "@ETC@/spec.json"\n'
FILES = {
    "config.toml": f'version = 2\nimports = ["@ETC@/site.toml", "@ETC@/conf.d/*.toml"]\n{RUNC}{SPEC}',
    "site.toml": f"version = 2\n[{CRI}]\n  max_container_log_line_size = 4096\n{RUNC}{SPEC}",
    "conf.d/10-debug.toml": 'version = 2\n[debug]\n  level = "info"\n',
    "spec.json": '{"ociVersion": "1.0.2"}',
    "certs.d/docker.io/hosts.toml": 'server = "https://registry.example"\n',
    "net.d/10-net.conflist": '{"cniVersion": "0.4.0", "name": "net", "plugins": [{"type": "loopback"}]}',
}
Edit = Callable[[Path, random.Random], None]


def start_files(etc: Path) -> dict[str, str]:
    """What the daemon reads at its start."""
    return {name: text.replace("@ETC@", str(etc)) for name, text in FILES.items()}


def edit(etc: Path, draw: random.Random) -> list[str]:
    """Make one to three edits below `etc`. Returns their names."""
    names = draw.sample(sorted(EDITS), draw.randint(1, 3))
    for name in names:
        EDITS[name](etc, draw)
    return names


def _some(etc: Path, draw: random.Random) -> Path:
    there = sorted(path for path in etc.rglob("*") if path.is_file() and not path.name.startswith("99-"))
    return draw.choice(there)


def _remove(etc: Path, draw: random.Random) -> None:
    _some(etc, draw).unlink()


def _empty(etc: Path, draw: random.Random) -> None:
    _some(etc, draw).write_text("")


def _cut(etc: Path, draw: random.Random) -> None:
    path = _some(etc, draw)
    data = path.read_bytes()
    path.write_bytes(data[: draw.randint(0, len(data))])


def _folder(etc: Path, draw: random.Random) -> None:
    path = _some(etc, draw)
    path.unlink()
    path.mkdir()


def _link_to_nothing(etc: Path, draw: random.Random) -> None:
    path = _some(etc, draw)
    path.unlink()
    path.symlink_to(etc / "nothing")


def _comment(etc: Path, draw: random.Random) -> None:
    path = etc / draw.choice(("config.toml", "site.toml", "conf.d/10-debug.toml"))
    if path.is_file():
        path.write_text(f"# edited\n{path.read_text()}")


def _no_folder(etc: Path, draw: random.Random) -> None:
    shutil.rmtree(etc / draw.choice(("certs.d", "net.d", "conf.d")), ignore_errors=True)


def _setting(section: str, *lines: str) -> Edit:
    """In a drop-in of its own, which is read last, or in the site's file."""

    def make(etc: Path, draw: random.Random) -> None:
        text = "".join(f"{line}\n" for line in lines).replace("@ETC@", str(etc))
        head = f"[{section}]\n" if section else ""
        site = etc / "site.toml"
        if draw.random() < 0.5 and section and site.is_file() and head not in site.read_text():
            site.write_text(f"{site.read_text()}{head}{text}")
            return
        whole = f"{head}{text}" if f"[{CRI}" not in head or "runtimes" in head else f"{head}{text}{RUNC}"
        (etc / "conf.d").mkdir(exist_ok=True)
        (etc / f"conf.d/{draw.randint(11, 98)}-new.toml").write_text(f"version = 2\n{whole}")

    return make


EDITS: dict[str, Edit] = {
    "a file goes": _remove,
    "another file goes": _remove,
    "a file is emptied": _empty,
    "a file is cut": _cut,
    "a folder in a file's place": _folder,
    "a link to nothing in a file's place": _link_to_nothing,
    "a comment": _comment,
    "a folder goes": _no_folder,
    "mirrors beside config_path": _setting(
        f"{CRI}.registry",
        '  config_path = "@ETC@/certs.d"',
        f'[{CRI}.registry.mirrors."docker.io"]',
        '  endpoint = ["https://mirror.example"]',
    ),
    "config_path": _setting(f"{CRI}.registry", '  config_path = "@ETC@/certs.d"'),
    "tls beside config_path": _setting(
        f"{CRI}.registry",
        '  config_path = "@ETC@/certs.d"',
        f'[{CRI}.registry.configs."r.example".tls]',
        "  insecure_skip_verify = true",
    ),
    "a default that is no runtime": _setting(f"{CRI}.containerd", '  default_runtime_name = "kata"'),
    "a snapshotter that is none": _setting(f"{CRI}.containerd", '  snapshotter = "stargz"'),
    "the native snapshotter": _setting(f"{CRI}.containerd", '  snapshotter = "native"'),
    "a proxy snapshotter": _setting(
        f"{CRI}.containerd",
        '  snapshotter = "far"',
        "[proxy_plugins.far]",
        '  type = "snapshot"',
        '  address = "@ETC@/far.sock"',
    ),
    "the CRI plugin disabled": _setting("", 'disabled_plugins = ["io.containerd.grpc.v1.cri"]'),
    "a plugin that is required and not there": _setting("", 'required_plugins = ["io.containerd.x.v1.y"]'),
    "no duration": _setting(CRI, '  stream_idle_timeout = "soon"'),
    "certificates that are not there": _setting(
        CRI,
        "  enable_tls_streaming = true",
        f"[{CRI}.x509_key_pair_streaming]",
        '  tls_cert_file = "@ETC@/cert.pem"',
        '  tls_key_file = "@ETC@/key.pem"',
    ),
    "a wrong type": _setting(CRI, '  max_container_log_line_size = "long"'),
    "another log size": _setting(CRI, "  max_container_log_line_size = 8192"),
    "gRPC by TCP without its certificate": _setting(
        "grpc",
        '  tcp_address = "127.0.0.1:21339"',
        '  tcp_tls_cert = "@ETC@/c.pem"',
        '  tcp_tls_key = "@ETC@/k.pem"',
    ),
    "a metrics address": _setting("metrics", '  address = "127.0.0.1:21340"'),
    "a stream address of no interface": _setting(CRI, '  stream_server_address = "192.0.2.77"'),
    "a socket and a root elsewhere": _setting("", 'root = "@ETC@/r"', "[grpc]", '  address = "@ETC@/g.sock"'),
    "CNI's folder elsewhere": _setting(f"{CRI}.cni", '  conf_dir = "@ETC@/none/net.d"'),
    "a handler with a spec that is not there": _setting(
        f"{CRI}.containerd.runtimes.kata",
        '  runtime_type = "io.containerd.kata.v2"',
        '  base_runtime_spec = "@ETC@/kata.json"',
        *RUNC.splitlines(),
    ),
    "a handler of all devices": _setting(
        f"{CRI}.containerd.runtimes.all",
        '  runtime_type = "io.containerd.runc.v2"',
        "  privileged_without_host_devices_all_devices_allowed = true",
        *RUNC.splitlines(),
    ),
    "a handler without a type": _setting(
        f"{CRI}.containerd.runtimes.odd", '  runtime_engine = "x"', *RUNC.splitlines()
    ),
    "a drop-in of version 3": lambda etc, draw: _write(etc / "conf.d/50-three.toml", "version = 3\n"),
    "an import by its name": lambda etc, draw: _write(
        etc / "conf.d/50-import.toml", f'version = 2\nimports = ["{etc}/more.toml"]\n'
    ),
    "what imports itself": lambda etc, draw: _write(
        etc / "conf.d/50-self.toml", f'version = 2\nimports = ["{etc}/conf.d/50-self.toml"]\n'
    ),
    "no TOML in the folder": lambda etc, draw: _write(etc / "conf.d/50-no.toml", "{"),
}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
