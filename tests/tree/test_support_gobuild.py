"""Programs from a module proxy that does not give everything: a proxy of our own, with `go` as its client."""

from __future__ import annotations

import io
import json
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from driverforge_core.errors import CommandFailed, Unavailable
from support import gobuild
from support.process import missing, run
from support.upstream import goprograms

pytestmark = pytest.mark.skipif(bool(missing("go")), reason="not installed: go")

APP, LIBRARY, DEEP = "bench.test/app", "bench.test/library", "bench.test/deep"
RECIPE = gobuild.Recipe(
    name="app", what="app 1.0.0", requires={APP: "v1.0.0"}, packages={"bin/app": f"{APP}/cmd"}
)


@dataclass
class Proxy:
    """A module proxy with modules in memory (go.dev/ref/mod, "GOPROXY protocol")."""

    files: dict[str, bytes] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)  # MODULE@VERSION, or MODULE for its list
    asked: list[str] = field(default_factory=list)

    def add(self, module: str, version: str, source: dict[str, str], **needs: str) -> None:
        """Publish a version; `needs` are modules of bench.test by their last part."""
        required = "".join(f"require bench.test/{name} {wanted}\n" for name, wanted in needs.items())
        about = f"module {module}\n\ngo 1.21\n\n{required}"
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for name, text in {"go.mod": about, **source}.items():
                archive.writestr(f"{module}@{version}/{name}", text)
        place = f"/{module}/@v"
        self.files[f"{place}/{version}.info"] = json.dumps({"Version": version}).encode()
        self.files[f"{place}/{version}.mod"] = about.encode()
        self.files[f"{place}/{version}.zip"] = packed.getvalue()
        self.files[f"{place}/list"] = self.files.get(f"{place}/list", b"") + f"{version}\n".encode()

    def answer(self, path: str) -> tuple[int, bytes]:
        self.asked.append(path)
        module, _, name = path.strip("/").partition("/@v/")
        version = name.rpartition(".")[0]
        if f"{module}@{version}" in self.refused or (name == "list" and module in self.refused):
            return 403, b"This module version is not available."
        return (200, self.files[path]) if path in self.files else (404, b"not found")


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Proxy]:
    """A proxy that `go` asks; the cache is the test's own."""
    made = Proxy()
    made.add(APP, "v1.0.0", {"cmd/main.go": MAIN}, library="v1.1.0")
    with serving(made) as address:
        monkeypatch.setenv("GOPROXY", address)
        monkeypatch.setenv("GONOSUMDB", "*")
        monkeypatch.setenv("DRIVERFORGE_CACHE", str(tmp_path))
        yield made


@contextmanager
def serving(proxy: Proxy) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = proxy.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


MAIN = f"""package main
import "{LIBRARY}"
func main() {{ println(library.Version) }}
"""


def library(version: str) -> dict[str, str]:
    return {"library.go": f'package library\nimport _ "{DEEP}"\nconst Version = "{version}"\n'}


DEEP_SOURCE = {"deep.go": "package deep\n"}


@pytest.mark.full(reason="compiles three times")
def test_the_next_newer_version_takes_the_place_of_a_refused_one(proxy: Proxy, tmp_path: Path) -> None:
    for version in ("v1.0.0", "v1.1.0", "v1.1.1", "v1.2.0-rc.1", "v1.2.0", "v1.3.0"):
        proxy.add(LIBRARY, version, library(version), deep="v0.1.0")
    for version in ("v0.1.0", "v0.1.1"):
        proxy.add(DEEP, version, DEEP_SOURCE)
    # the last one's go.mod is refused too, and every version of the library names it
    proxy.refused = {f"{LIBRARY}@v1.1.0", f"{LIBRARY}@v1.1.1", f"{DEEP}@v0.1.0"}

    folder = gobuild.programs(RECIPE, compiled=tmp_path / "compiled")
    assert run(folder / "bin/app").stderr == "v1.2.0\n"
    record = json.loads((folder / gobuild.VERSIONS).read_text())
    assert record["versions"] == {APP: "v1.0.0"}
    assert sorted((one["module"], one["refused"], one["taken"]) for one in record["exchanged"]) == [
        (DEEP, "v0.1.0", "v0.1.1"),
        (LIBRARY, "v1.1.0", "v1.1.1"),
        (LIBRARY, "v1.1.1", "v1.2.0"),
    ]
    assert sorted(path.name for path in folder.iterdir()) == ["bin", gobuild.VERSIONS], "no Go cache is kept"
    assert any((tmp_path / "compiled").iterdir()), "the next build takes what this one compiled"


def test_what_cannot_be_had_names_the_module_and_every_version_that_was_asked_for(proxy: Proxy) -> None:
    for version in ("v1.1.0", "v1.1.1"):
        proxy.add(LIBRARY, version, library(version))
    proxy.refused = {f"{LIBRARY}@v1.1.0", f"{LIBRARY}@v1.1.1"}
    with pytest.raises(Unavailable) as caught:
        gobuild.programs(RECIPE)
    assert caught.value.brief == (
        f"the Go module proxy does not give what app 1.0.0 needs: {LIBRARY} v1.1.0, v1.1.1"
    )
    asked = len(proxy.asked)
    with pytest.raises(Unavailable, match=r"v1\.1\.0, v1\.1\.1"):
        gobuild.programs(RECIPE)
    assert len(proxy.asked) == asked, "a refusal is remembered: the tests of a run ask many times"


@pytest.mark.parametrize("refused", [{LIBRARY, f"{LIBRARY}@v1.1.0"}, {f"{APP}@v1.0.0"}])
def test_a_refused_list_and_a_refused_program_are_no_failures(proxy: Proxy, refused: set[str]) -> None:
    """The version of a program says what was built: nothing is taken in its place."""
    proxy.add(LIBRARY, "v1.1.0", library("v1.1.0"))
    proxy.add(APP, "v1.0.1", {"cmd/main.go": MAIN})
    proxy.refused = refused
    with pytest.raises(Unavailable, match="the Go module proxy does not give"):
        gobuild.programs(RECIPE)


def test_a_module_that_replaces_folders_is_asked_for_by_its_published_ones(proxy: Proxy) -> None:
    about = (
        f"module {APP}\n\ngo 1.21\n\nrequire {LIBRARY} v0.0.0\n\n"
        f"replace {LIBRARY} => ./staging/src/{LIBRARY}\n"
    )
    proxy.files[f"/{APP}/@v/v1.0.0.mod"] = about.encode()
    proxy.refused = {f"{LIBRARY}@v0.0.0"}
    recipe = gobuild.Recipe(
        name="staged",
        what="app",
        requires={APP: "v1.0.0"},
        packages={"app": f"{APP}/cmd"},
        staging=APP,
    )
    with pytest.raises(Unavailable, match=f"{LIBRARY} v0.0.0"):
        gobuild.programs(recipe)
    assert f"/{LIBRARY}/@v/v0.0.0.mod" in proxy.asked


def test_a_proxy_that_fails_is_a_failure(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOPROXY", "http://127.0.0.1:1")
    with pytest.raises(CommandFailed, match="go could not resolve app"):
        gobuild.programs(RECIPE)


def test_a_source_that_go_cannot_read_is_a_failure(proxy: Proxy) -> None:
    proxy.add(LIBRARY, "v1.1.0", {"library.go": "package library\nimport func\n"})
    with pytest.raises(CommandFailed) as caught:
        gobuild.programs(RECIPE)
    assert "library.go:2:8" in caught.value.render()


def test_a_go_that_is_too_old_is_missing_here(proxy: Proxy) -> None:
    proxy.add(LIBRARY, "v1.1.0", library("v1.1.0"))
    newer = proxy.files[f"/{LIBRARY}/@v/v1.1.0.mod"].replace(b"go 1.21", b"go 1.999")
    proxy.files[f"/{LIBRARY}/@v/v1.1.0.mod"] = newer
    with pytest.raises(Unavailable, match=r"app 1\.0\.0 needs Go 1\.999"):
        gobuild.programs(RECIPE)


@pytest.mark.parametrize("full", [False, True])
def test_all_programs_are_made_by_one_program_and_each_that_cannot_be_is_named(
    tmp_path: Path, full: bool
) -> None:
    """It runs beside the tests: what fails is theirs to say, and is in its log."""
    environment = {"PATH": "/nowhere", "PYTHONPATH": ":".join(sys.path), "DRIVERFORGE_CACHE": str(tmp_path)}
    environment[gobuild.FULL] = "1" if full else ""
    done = run(sys.executable, "-m", "support.upstream.goprograms", env=environment)
    told = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
    wanted = [recipe for recipe in goprograms.RECIPES if full or not recipe.seldom]
    assert len(told) == len(wanted) >= 3
    for recipe, line in zip(wanted, told, strict=True):
        assert recipe.what in line


def test_what_is_seldom_needed_is_compiled_with_full_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIVERFORGE_CACHE", str(tmp_path))
    monkeypatch.delenv(gobuild.FULL, raising=False)
    with pytest.raises(Unavailable, match=r"app 1\.0\.0 is compiled by hack/test --full alone"):
        gobuild.programs(replace(RECIPE, seldom=True))


def test_a_machine_without_go_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unavailable, match=r"no go here to compile app 1\.0\.0") as caught:
        gobuild.programs(RECIPE)
    assert caught.value.resolution == "install Go 1.25 or newer"
