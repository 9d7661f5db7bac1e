"""Go programs from the module proxy, built in a module of the bench's own with this machine's `go`.

Only the programs are kept. The Go caches are gigabytes where the programs are megabytes, and are removed
after the build, or after several that share what they compile.

A module proxy need not give every version, and what it gives may change. A version that it refuses is
exchanged for the next newer release that it lists; `versions.json` beside the programs says what was taken.
What cannot be had at all is Unavailable and names the module and every version that was asked for. A network
that fails, or a compiler, is an error.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from driverforge_core.errors import CommandFailed, Unavailable
from support import cache
from support.process import Finished, missing, run

VERSIONS = "versions.json"
FULL = "DRIVERFORGE_FULL"
OLDEST_GO = "1.25"
# for programs whose speed nobody measures: a fifth less to compile, a second more to start
QUICK = ("-trimpath", "-gcflags=all=-l -dwarf=false")
_ROUNDS = 12  # of asking for everything and exchanging what was refused
_STAYS_REFUSED = 3600.0  # seconds for which a refusal is believed: the tests of one run ask many times
# 403 and 410: the proxy will not give it; 404: it has no such version
# (a path with @VERSION/go.mod is about the checksum database, which refuses nothing)
_REFUSED = re.compile(r"([^\s:()]+)@(v[^\s:()/]+)\)?: reading \S+: (?:403|404|410)\b")
# asked for a list of versions, a proxy refuses the module as a whole
_REFUSED_WHOLE = re.compile(r"module ([^\s:()]+): reading \S+/@v/list: (?:403|404|410)\b")
_TOO_OLD = re.compile(r"requires go >= (\S+)")
_RELEASE = re.compile(r"v(\d+)\.(\d+)\.(\d+)(?:\+incompatible)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A set of programs that are built in one module."""

    name: str  # of the entry in the cache
    what: str  # as a reader of a skip reason knows it
    requires: Mapping[str, str]  # module → version: what the bench asks for by name; never exchanged
    packages: Mapping[str, str]  # path of the program in the entry → Go package
    flags: tuple[str, ...] = ()  # of `go build`
    cgo: bool = False
    # the module whose own go.mod is the start; folders that its published zip lacks become published modules
    staging: str = ""
    # minutes of compiling that few tests need: the cache's where it has them, compiled with --full alone
    seldom: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A version that the proxy refused, and what was taken in its place."""

    module: str
    refused: str
    taken: str


@dataclass(slots=True)
class _Module:
    """A module under construction."""

    folder: Path
    env: Mapping[str, str]
    exchanges: list[Exchange] = field(default_factory=list)

    def go(self, *words: str, check: bool = True) -> Finished:
        return run("go", *words, cwd=self.folder, env=self.env, check=check)


def programs(recipe: Recipe, *, compiled: Path | None = None) -> Path:
    """The cache's folder with a recipe's programs; built where it has none, which may take minutes.

    `compiled` is Go's cache of compiled packages for builds that share one; without it the build has its own.
    Raises Unavailable where there is no Go that can build them, where the proxy refuses what they need, and
    for a `seldom` recipe without --full.
    """
    if gone := missing("go", *(["cc"] if recipe.cgo else [])):
        raise Unavailable(
            f"no {' and no '.join(gone)} here to compile {recipe.what}",
            resolution=f"install Go {OLDEST_GO} or newer{' and a C compiler' if recipe.cgo else ''}",
        )
    if recipe.seldom and not made(recipe) and os.environ.get(FULL) != "1":
        raise Unavailable(f"{recipe.what} is compiled by hack/test --full alone")
    return cache.cached(
        recipe.name, inputs(recipe), lambda folder: _build_unless_refused(recipe, folder, compiled)
    )


def made(recipe: Recipe) -> bool:
    """Whether the cache has a recipe's programs."""
    return not missing("go") and (cache.root() / recipe.name / cache.key(inputs(recipe))).is_dir()


def inputs(recipe: Recipe) -> dict[str, object]:
    """What the entry's key is made of: the recipe and the compiler."""
    return {
        "requires": dict(recipe.requires),
        "packages": dict(recipe.packages),
        "flags": recipe.flags,
        "cgo": recipe.cgo,
        "staging": recipe.staging,
        "go": run("go", "env", "GOVERSION", "GOOS", "GOARCH").stdout.split(),
    }


def _build_unless_refused(recipe: Recipe, folder: Path, compiled: Path | None) -> None:
    """Build the programs.

    A refusal is written down beside the entry, so that the next test does not ask everything again.
    """
    note = folder.with_suffix(".refused")
    if note.exists() and time.time() - note.stat().st_mtime < _STAYS_REFUSED:
        raise Unavailable(note.read_text())
    try:
        _build(recipe, folder, compiled)
    except Unavailable as error:
        note.write_text(error.brief)
        raise
    note.unlink(missing_ok=True)


def _build(recipe: Recipe, folder: Path, compiled: Path | None) -> None:
    # in the draft of the entry: what a killed build leaves goes with the draft
    with tempfile.TemporaryDirectory(dir=folder, prefix="go-") as name:
        work = Path(name)
        env = {
            "CGO_ENABLED": "1" if recipe.cgo else "0",
            "GOCACHE": str(compiled or work / "build"),
            "GOMODCACHE": str(work / "modules"),
            # without modcacherw the module cache is read-only, and only root could delete it
            "GOFLAGS": "-mod=mod -modcacherw -buildvcs=false",
            # a newer toolchain is a download of its own, and the entry's key names this one
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
            # a compiler lives for seconds: a fifth to a third of its CPU goes into collecting its garbage
            "GOGC": "800",
            "GOMEMLIMIT": "2GiB",
        }
        module = _Module(folder=work, env=env)
        (work / "go.mod").write_text(_module_file(recipe, module))
        _settle(recipe, module)
        for program, package in recipe.packages.items():
            (folder / program).parent.mkdir(parents=True, exist_ok=True)
            module.go("build", *recipe.flags, "-o", str(folder / program), package)
        (folder / VERSIONS).write_text(json.dumps(_record(recipe, module), indent=1) + "\n")


def _module_file(recipe: Recipe, module: _Module) -> str:
    if not recipe.staging:
        required = "".join(f"require {path} {version}\n" for path, version in recipe.requires.items())
        return f"module bench\n\ngo {OLDEST_GO}\n\n{required}"
    version = recipe.requires[recipe.staging]
    done = module.go("mod", "download", "-json", f"{recipe.staging}@{version}", check=False)
    if done.status != 0:
        _judge(recipe, done)
    upstream = Path(json.loads(done.stdout)["GoMod"]).read_text()
    return staged(upstream, recipe.staging, version)


def staged(upstream: str, module: str, version: str) -> str:
    """A go.mod that builds `module` from the proxy: its own, with its staging modules as published.

    Upstream replaces them by folders that its published zip lacks; each is published too, 1.35.4 as v0.35.4.
    """
    published = "v0." + version.partition(".")[2]
    text = re.sub(rf"(?m)^module {re.escape(module)}$", "module bench", upstream)
    text = re.sub(r"=> \./staging/src/(\S+)", rf"=> \1 {published}", text)
    return f"{text}\nrequire {module} {version}\n"


def _settle(recipe: Recipe, module: _Module) -> None:
    """Exchange what the proxy refuses until everything that the packages need is there."""
    asked: dict[str, list[str]] = {}
    gone: tuple[tuple[str, str], ...] = ()
    for _ in range(_ROUNDS):
        done = module.go("list", "-deps", *recipe.packages.values(), check=False)
        if done.status == 0:
            return
        gone = refusals(done.stderr)
        if not gone:
            _judge(recipe, done)
        for path, version in gone:
            asked.setdefault(path, []).append(version)
            taken = None if _fixed(recipe, module, path) else newer(_listed(module, path), version)
            if taken is None:
                raise _cannot_be_had(recipe, {path: asked[path]})
            # the refused version is excluded too: its go.mod is read wherever another module names it
            module.go("mod", "edit", f"-exclude={path}@{version}", f"-require={path}@{taken}")
            module.exchanges.append(Exchange(module=path, refused=version, taken=taken))
    raise _cannot_be_had(recipe, {path: asked[path] for path, _ in gone})


def _fixed(recipe: Recipe, module: _Module, path: str) -> bool:
    """Whether a module's version says what is built, or belongs to the release that is built."""
    return path in recipe.requires or path in _replaced((module.folder / "go.mod").read_text())


def _replaced(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"(?m)^\s*(?:replace )?(\S+) => ", text))


def _listed(module: _Module, path: str) -> Sequence[str]:
    """The versions of a module that the proxy lists; none where it does not give the list."""
    # -e: the version that is required now is refused, and that alone would be an error here. -retracted: to
    # leave out what was retracted, go reads the newest version's go.mod, which may be refused as well.
    done = module.go("list", "-e", "-m", "-retracted", "-versions", "-json", path, check=False)
    return json.loads(done.stdout).get("Versions", []) if done.status == 0 else []


def refusals(said: str) -> tuple[tuple[str, str], ...]:
    """(module, version) of each that the proxy refused, by go's stderr; 'latest' for a whole module."""
    whole = {(path, "latest") for path in _REFUSED_WHOLE.findall(said)}
    return tuple(sorted({*_REFUSED.findall(said), *whole}))


def newer(versions: Iterable[str], refused: str) -> str | None:
    """The oldest release, pre-releases aside, that is newer than a refused version; None without one."""
    floor = re.match(r"v(\d+)\.(\d+)\.(\d+)", refused)
    if floor is None:
        return None
    # a pre-release of 1.2.0 comes before 1.2.0 itself
    lowest = (*map(int, floor.groups()), 0 if "-" in refused else 1)
    found = {(*map(int, match.groups()), 1): text for text in versions if (match := _RELEASE.fullmatch(text))}
    later = sorted(number for number in found if number >= lowest and found[number] != refused)
    return found[later[0]] if later else None


def _judge(recipe: Recipe, done: Finished) -> NoReturn:
    """Raise what a `go` that failed means."""
    said = f"{done.stdout}\n{done.stderr}"
    if gone := refusals(said):
        raise _cannot_be_had(recipe, {path: [version] for path, version in gone})
    if needed := _TOO_OLD.search(said):
        raise Unavailable(
            f"{recipe.what} needs Go {needed[1]}, and this one is older",
            details=done.stderr.splitlines(),
            resolution=f"install Go {needed[1]} or newer",
        )
    raise CommandFailed(
        f"go could not resolve {recipe.what}",
        details=[" ".join(done.argv), done.stdout.rstrip(), done.stderr.rstrip()],
    )


def _cannot_be_had(recipe: Recipe, asked: Mapping[str, Sequence[str]]) -> Unavailable:
    named = "; ".join(f"{path} {', '.join(versions)}" for path, versions in sorted(asked.items()))
    return Unavailable(f"the Go module proxy does not give what {recipe.what} needs: {named}")


def _record(recipe: Recipe, module: _Module) -> dict[str, object]:
    """What the programs were made of."""
    listed = module.go("list", "-m", "-f", "{{.Path}} {{.Version}}", *recipe.requires).stdout
    return {
        "what": recipe.what,
        "versions": dict(line.split() for line in listed.splitlines()),
        "exchanged": [
            {"module": one.module, "refused": one.refused, "taken": one.taken} for one in module.exchanges
        ],
    }
