"""Plans for the configurations that projects publish, by the models of what daemons make of their files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from driverforge_core.errors import Unsupported
from driverforge_toolkit.runtime.backends.containerd_config import default_of, runtimes_of
from driverforge_toolkit.runtime.backends.distributions import BACKENDS
from driverforge_toolkit.runtime.formats.values import lookup
from driverforge_toolkit.runtime.model import RuntimeDaemon, WantedHandlers
from driverforge_toolkit.runtime.nvidia_handlers import nvidia_handlers
from driverforge_toolkit.runtime.transaction.consequences import check_effective
from support.fakes.runtimemodel import Files, OnBytes, daemon, effective
from support.samples.published import Published, published

ALL = published()
VERSIONS = {
    "1.6": (1, 6, 20),
    "1.7": (1, 7, 24),
    "2.0": (2, 0, 4),
    "2.1": (2, 1, 9),
    "2.3": (2, 3, 7),
    "2.4": (2, 4, 2),
}
HANDLERS = nvidia_handlers("/t")
PROGRAMS = {handler.name: handler.binary for handler in HANDLERS}
WANTED = {
    "as it is": WantedHandlers(handlers=HANDLERS),
    "default": WantedHandlers(handlers=HANDLERS, default="nvidia"),
    "no default": WantedHandlers(handlers=HANDLERS, release_default=True),
}


def where(configuration: Published, version: str) -> RuntimeDaemon:
    if configuration.kind == "docker":
        return daemon("docker", version=())
    return daemon(version=VERSIONS[version])


def cases() -> Iterator[object]:
    for configuration in ALL:
        # 2.0 takes whole sections, as 1.x does; no test has it
        more = ("2.0",) if "2.1" in configuration.daemons and not configuration.files else ()
        for version in (*configuration.daemons, *more) if not configuration.default else ():
            for mode in WANTED:
                yield pytest.param(configuration, version, mode, id=f"{configuration.id}-{version}-{mode}")


def test_there_are_enough_of_them_and_each_names_its_source() -> None:
    assert len(ALL) >= 40
    assert len({each.id for each in ALL}) == len(ALL)
    assert all(each.source.count("/") >= 1 and each.daemons for each in ALL)


@pytest.mark.parametrize(("configuration", "version", "mode"), list(cases()))
def test_the_daemon_would_serve_with_our_handlers(configuration: Published, version: str, mode: str) -> None:
    node, wanted = where(configuration, version), WANTED[mode]
    backend = BACKENDS[node.kind]
    files: Files = {
        node.drop_in: None,
        **{path: text.encode() for path, text in configuration.files.items()},
        node.config: configuration.root.encode(),
    }
    before = effective(node, files)
    if configuration.refused:
        with pytest.raises(Unsupported) as caught:
            OnBytes(backend).patched(node, files, before, wanted)
        assert configuration.refused in caught.value.render()
        return
    written = OnBytes(backend).patched(node, files, before, wanted)
    after = effective(node, {**files, **written})
    check_effective(backend, node, (before, after), wanted)
    assert {name: backend.handlers(after).get(name) for name in PROGRAMS} == PROGRAMS
    for path, data in written.items():
        undone = OnBytes(backend).undone(path, original=files[path], written=data, current=data)
        assert (undone.data, undone.kept) == (files[path], ())
    if node.kind == "containerd":
        now = default_of(after)
        assert now in runtimes_of(after)
        assert cgroup(before, default_of(before)) in (None, cgroup(after, now))
        for name in PROGRAMS:
            assert cgroup(before, default_of(before)) in (None, cgroup(after, name))
            assert cgroup(before, name) in (None, cgroup(after, name))


def cgroup(view: dict[str, object], runtime: str) -> object:
    """Whether a runtime has the systemd cgroup driver; None where nothing is said of it."""
    options = lookup(runtimes_of(view), (runtime, "options"))
    values = options if isinstance(options, dict) else {}
    return next((value for key, value in values.items() if key.lower() == "systemdcgroup" and value), None)
