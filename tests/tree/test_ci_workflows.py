"""The workflow files that we publish: they parse, ask for little, and say only what `driverforge` takes."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import click
import pytest
import yaml

from driverforge_build.cli import cli
from driverforge_build.lock.file import dump_lock
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import jit_cells, load_matrix
from driverforge_build.plan.shards import GITLAB_JOBS, deal
from driverforge_build.plan.times import BuildTime, Times, merge_times, read_times
from driverforge_build.report.covered import merge_covered
from driverforge_build.report.pipelines import SHARD_JOB, github_matrix, gitlab_pipeline
from support import process
from support.fakes.gitserver import git_server
from support.fakes.mockpath import MockPath
from support.fakes.packageregistry import TOKEN, PackageRegistry, package_registry
from support.machines.dockerregistry import registry as serve
from support.samples.coverages import covered_image
from support.samples.locks import sample_driver, target
from support.samples.sampledebian import write_matrix
from support.samples.synthetic import all_cells
from support.skipping import provided

CI = Path(__file__).parents[2] / "docs/ci"
README = (CI / "README.md").read_text()
GITHUB, GITLAB, SHARD = (CI / name for name in ("github.yml", "gitlab-ci.yml", "gitlab-shard.yml"))
# what the jobs' variables hold
VALUES = {
    "REGISTRY": "registry.example.com/nvidia",
    "CELLS": "shards/1.txt",
    "DRIVERFORGE_CELLS": "shards/1.txt",
    "INDEX": "0",
    "CI_NODE_INDEX": "1",
    "GITHUB_SHA": "0" * 40,
}
SHARDS = deal(tuple(all_cells(load_matrix())), Times(), 5)


def read(path: Path) -> dict[str, Any]:
    document = yaml.safe_load(path.read_text())
    assert isinstance(document, dict)
    return document


def scripts(value: object) -> Iterator[str]:
    """Every text below a key `run`, `script` or `before_script`."""
    if isinstance(value, list):
        for item in value:
            yield from scripts(item)
    if isinstance(value, dict):
        for key, item in value.items():
            if key in ("run", "script", "before_script"):
                yield from lines(item)
            else:
                yield from scripts(item)


def lines(script: object) -> list[str]:
    """GitLab takes lists within a script, as an anchor brings them."""
    if isinstance(script, list):
        return [line for part in script for line in lines(part)]
    return [str(script)]


def code(page: Path) -> Iterator[str]:
    """The shell blocks of a page, also those in a list."""
    yield from re.findall(r"^ *```sh\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE)


def commands(texts: Iterator[str]) -> list[list[str]]:
    """The words of each `driverforge …` in shell texts."""
    found = []
    for text in texts:
        for line in re.sub(r"\\\n", " ", text).splitlines():
            for part in re.split(r"\|\||&&|[|;]", line):
                if part.strip().startswith("driverforge "):
                    words = [word for word in shlex.split(part)[1:] if not word.startswith(">")]
                    found.append([re.sub(r"\$(\w+)", lambda name: VALUES[name[1]], word) for word in words])
    return found


ALL = [
    pytest.param(words, id=f"{path.name}: {' '.join(words)[:60]}")
    for path in (GITHUB, GITLAB, SHARD)
    for words in commands(scripts(read(path)))
] + [
    pytest.param(words, id=f"README.md: {' '.join(words)[:60]}") for words in commands(code(CI / "README.md"))
]


def test_the_commands_were_found() -> None:
    assert len(ALL) >= 12
    named = {words.values[0][0] for words in ALL}
    assert {"plan", "build", "index", "page", "lock"} <= named


@pytest.mark.parametrize("words", ALL)
def test_each_line_is_one_that_driverforge_takes(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shards").mkdir()
    Path("entitlement").mkdir()
    Path("shards/1.txt").write_text("debian12-amd64-535.261.03-jit\n")
    for name in ("plan.json", "covered.json", "covered/covered.json", "builds/*.json"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("{}")
    Path("passed.txt").write_text("debian12-amd64-535.261.03-6.1.0-50-cloud-amd64\n")
    with click.Context(cli) as context:
        command: click.Command | None = cli
        rest = list(words)
        while isinstance(command, click.Group):
            command = command.get_command(context, rest.pop(0))
        assert command is not None
        command.make_context("driverforge", rest)


def test_the_first_hours_matrix_is_one(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```", (CI / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "site.yaml").write_text(block)
    cells = jit_cells(load_matrix(tmp_path / "site.yaml"))
    assert [cell.key for cell in cells] == [f"debian12-{arch}-535.261.03-jit" for arch in ("amd64", "arm64")]


def test_a_line_with_an_option_that_does_not_exist_would_be_found(tmp_path: Path) -> None:
    build = cli.get_command(click.Context(cli), "build")
    assert build
    with pytest.raises(click.NoSuchOption):
        build.make_context("driverforge", ["--cells-form", "x"])


def test_github_jobs_say_what_they_may_and_nothing_is_given_to_all() -> None:
    workflow = read(GITHUB)
    assert workflow["permissions"] == {}
    rights = {name: job["permissions"] for name, job in workflow["jobs"].items()}
    assert rights == {
        "lock": {"contents": "read"},
        "propose": {"contents": "write", "pull-requests": "write"},
        "plan": {"contents": "read", "packages": "read"},
        "build": {"contents": "read", "packages": "write"},
        "index": {"contents": "read", "packages": "write"},
        "covered": {"contents": "write"},
        "page": {"pages": "write", "id-token": "write"},
    }
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())


def test_no_github_job_leaves_its_token_where_programs_find_it() -> None:
    """Those that may write to the repository run git and gh alone, and a step alone is given it."""
    jobs = read(GITHUB)["jobs"]
    steps = [(name, step) for name, job in jobs.items() for step in job["steps"]]
    checkouts = [step for _, step in steps if "actions/checkout@" in step.get("uses", "")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)
    given = [(name, step) for name, step in steps if "github.token" in json.dumps(step)]
    writers = {"covered": {"git"}, "propose": {"git", "gh", "test"}}
    assert all("docker login" in step["run"] for name, step in given if name not in writers)
    for writer, wanted in writers.items():
        ((_, push),) = (one for one in given if one[0] == writer)
        assert [step["run"] for step in jobs[writer]["steps"] if "run" in step] == [push["run"]]
        programs = {line.split()[0] for line in re.sub(r"\\\n", " ", push["run"]).splitlines()}
        assert programs == wanted
    assert {name for name, job in jobs.items() if job["permissions"].get("contents") == "write"} == {*writers}


def test_every_action_and_image_is_pinned_by_a_digest() -> None:
    workflow = read(GITHUB)
    used = [step["uses"] for job in workflow["jobs"].values() for step in job["steps"] if "uses" in step]
    assert used
    assert all(re.fullmatch(r"actions/[a-z/-]+@[0-9a-f]{40}", name) for name in used)
    lines = [line for line in GITHUB.read_text().splitlines() if "uses:" in line]
    assert all(re.search(r"# v\d+$", line) for line in lines), "the release, for Renovate"
    images = re.findall(r"\S+@sha256:\S*", GITLAB.read_text() + SHARD.read_text())
    assert len(images) == 2
    assert all(re.fullmatch(r"[^@]+@sha256:[0-9a-f]{64}", image) for image in images)


def test_no_expression_is_put_into_a_script() -> None:
    assert not [script for script in scripts(read(GITHUB)) if "${{" in script]


def test_what_the_workflow_reads_of_a_shard_is_there() -> None:
    jobs = json.loads(github_matrix(SHARDS, Path("shards")))["include"]
    expressions = re.findall(r"\$\{\{(.*?)\}\}", GITHUB.read_text())
    read_there = set(re.findall(r"(?<!outputs\.)\bmatrix\.(\w+)", " ".join(expressions)))
    assert {"name", "arch", "cells"} <= read_there
    assert all(read_there <= job.keys() for job in jobs)


def test_a_github_job_that_is_run_again_uploads_in_the_place_of_before() -> None:
    steps = [step for job in read(GITHUB)["jobs"].values() for step in job["steps"]]
    uploads = [step["with"] for step in steps if "actions/upload-artifact@" in step.get("uses", "")]
    assert len(uploads) >= 4
    assert all(upload["overwrite"] is True for upload in uploads)


def test_a_repository_without_pages_leaves_out_what_our_page_names() -> None:
    """The last steps of `index`, from the first one that only the page needs."""
    (number,) = re.findall(r"the job\s+`page`\s+and\s+the\s+last\s+(\w+)\s+steps\s+of\s+`index`", README)
    steps = read(GITHUB)["jobs"]["index"]["steps"]
    pages = [step.get("with", {}).get("path") == "builds" or "page" in json.dumps(step) for step in steps]
    count = {"two": 2, "three": 3, "four": 4}[number]
    assert pages == [False] * (len(steps) - count) + [True] * count


def test_github_keeps_the_times_of_earlier_runs() -> None:
    """A night builds what is new alone: what it measured must not be all that the next plan knows."""
    jobs = read(GITHUB)["jobs"]

    def cached(job: str, what: str) -> list[dict[str, Any]]:
        return [
            step["with"] for step in jobs[job]["steps"] if f"actions/cache/{what}" in step.get("uses", "")
        ]

    (saved,) = cached("index", "save")
    for job in ("plan", "build", "index"):
        (restored,) = cached(job, "restore")
        assert (restored["path"], restored["key"]) == (saved["path"], saved["key"])
        assert saved["key"].startswith(restored["restore-keys"])
    (build,) = (words for words in commands(scripts(jobs["build"])) if words[0] == "build")
    assert build[build.index("--times") + 1].startswith(f"{saved['path']}/")
    (report,) = (
        step["with"]
        for step in jobs["build"]["steps"]
        if step.get("with", {}).get("name", "").startswith("report-")
    )
    assert report["path"] == "times/${{ strategy.job-index }}.*", "those of other shards may be older"


def test_the_shards_job_of_gitlab_is_the_one_that_the_child_pipeline_extends() -> None:
    child = yaml.safe_load(gitlab_pipeline(SHARDS, Path("shards"), "ci/shard.yml"))
    assert list(read(SHARD)) == [SHARD_JOB] == [child["build"]["extends"]]
    variables = set(re.findall(r"\$(DRIVERFORGE_\w+)", SHARD.read_text()))
    assert variables
    assert all(variables <= job.keys() for job in child["build"]["parallel"]["matrix"])
    assert "--gitlab ci/shard.yml" in GITLAB.read_text()
    # the variable that the shards fetch the lists by
    assert "PARENT_PIPELINE_ID" in read(GITLAB)["build"]["variables"]
    assert read(SHARD)[SHARD_JOB]["needs"] == [{"pipeline": "$PARENT_PIPELINE_ID", "job": "plan"}]


# -- as a pipeline runs them --------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """A repository as the first hour leaves it, `driverforge` on PATH, and an empty registry."""
    folder = tmp_path / "repository"
    (folder / "bin").mkdir(parents=True)
    (folder / "covered").mkdir()
    write_matrix(folder)
    (folder / "driverforge.lock.json").write_text(
        dump_lock(Lock(targets={"debian12-amd64": target(drivers={"535.261.03": sample_driver()})}))
    )
    program = folder / "bin/driverforge"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m driverforge_build "$@"\n')
    program.chmod(0o755)
    with provided(lambda: serve(tmp_path / "registry")) as address:
        (folder / "registry").write_text(address)
        yield folder


def run_script(
    script: str, checkout: Path, *shell: str, check: bool = True, **variables: str
) -> process.Finished:
    environment = {
        "PATH": f"{checkout / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(str(CI.parents[1] / name) for name in ("builder", "entrypoints")),
        "REGISTRY": f"{(checkout / 'registry').read_text()}/site",
        "GITHUB_OUTPUT": str(checkout / "output"),
        **variables,
    }
    return process.run(*shell, script, cwd=checkout, env=environment, check=check)


@pytest.fixture
def packages() -> Iterator[PackageRegistry]:
    if gone := process.missing("curl"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    with package_registry() as registry:
        yield registry


def of_gitlab(packages: PackageRegistry, *jobs: dict[str, Any]) -> dict[str, str]:
    """Variables of GitLab's own, and those of our files that are made of them."""
    own = {"CI_API_V4_URL": packages.api, "CI_PROJECT_ID": "7", "CI_JOB_TOKEN": TOKEN}
    said = {name: value for job in jobs for name, value in job.get("variables", {}).items()}
    made = {name: Template(value).safe_substitute(own) for name, value in said.items()}
    return {**own, **{name: value for name, value in made.items() if value.startswith(packages.api)}}


def gitlabs_plan(checkout: Path, packages: PackageRegistry, *, check: bool = True) -> process.Finished:
    """GitLab runs the lines of a job in one shell, which the first failure ends."""
    jobs = read(GITLAB)
    script = "\n".join(lines(jobs["plan"]["script"]))
    return run_script(script, checkout, "sh", "-ec", check=check, **of_gitlab(packages, jobs))


def gitlabs_index(checkout: Path, packages: PackageRegistry, *, check: bool = True) -> process.Finished:
    jobs = read(GITLAB)
    script, variables = "\n".join(lines(jobs["index"]["script"])), of_gitlab(packages, jobs, jobs["index"])
    (checkout / "covered.json").unlink(missing_ok=True)
    return run_script(script, checkout, "sh", "-ec", check=check, **variables)


def test_githubs_steps_around_the_builds_run_as_they_are(checkout: Path) -> None:
    """With `bash -e`, as GitHub runs them; no shard has built anything, so there is no report of one."""
    jobs = read(GITHUB)["jobs"]
    for name in ("plan", "index"):
        for step in jobs[name]["steps"]:
            if "driverforge " in step.get("run", ""):
                run_script(step["run"], checkout, "bash", "-ec")
    (told,) = re.findall(r"^matrix=(.*)$", (checkout / "output").read_text(), re.MULTILINE)
    assert [job["cells"] for job in json.loads(told)["include"]] == ["shards/1.txt"]
    assert "0 of 2 are in the registry" in (checkout / "page/index.html").read_text()
    (uploaded,) = (
        step["with"]["path"]
        for step in jobs["index"]["steps"]
        if "upload-pages-artifact" in step.get("uses", "")
    )
    assert (checkout / uploaded / "index.html").is_file()


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveredBranch:
    """A repository with the branch `covered`, and a job's clone of it."""

    bare: Path
    clone: Path

    def git(self, *words: str, folder: Path | None = None) -> str:
        named = ("-c", "user.name=me", "-c", "user.email=me@example.com")
        return process.run("git", *named, *words, cwd=folder or self.bare, env=NO_CONFIGURATION).stdout

    def check_out(self, ref: str) -> None:
        """As actions/checkout does: a branch is checked out as one, a commit is not on any."""
        self.git("fetch", "--quiet", str(self.bare), "covered", folder=self.clone)
        words = ("--detach", ref) if len(ref) == 40 else ("-B", ref, "FETCH_HEAD")
        self.git("checkout", "--quiet", *words, folder=self.clone)

    def commit(self, text: str, token: str) -> process.Finished:
        """The job's own step, with a covered.json that `index` has left."""
        (step,) = (one for one in read(GITHUB)["jobs"]["covered"]["steps"] if "run" in one)
        if text:
            (self.clone / "covered.json").write_text(text)
        job = {"GITHUB_ACTOR": "robot", "GITHUB_SHA": "0" * 40, "TOKEN": token, **NO_CONFIGURATION}
        with git_server(self.bare.parent, "x-access-token:of-the-job") as address:
            self.git("remote", "set-url", "origin", f"{address}/repository", folder=self.clone)
            return process.run("bash", "-ec", step["run"], cwd=self.clone, env=job, check=False)


# nobody's own configuration, and no prompt
NO_CONFIGURATION = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}


@pytest.fixture
def covered(tmp_path: Path) -> CoveredBranch:
    if gone := process.missing("git"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    made = CoveredBranch(bare=tmp_path / "srv/repository", clone=tmp_path / "clone")
    made.bare.mkdir(parents=True)
    made.git("init", "--quiet", "--bare", "--initial-branch", "covered")
    made.git("clone", "--quiet", str(made.bare), str(made.clone))
    made.git("switch", "--quiet", "--orphan", "covered", folder=made.clone)
    made.git("commit", "--quiet", "--allow-empty", "--message", "Covered kernels", folder=made.clone)
    made.git("push", "--quiet", "--set-upstream", "origin", "covered", folder=made.clone)
    return made


def covered_as_index_read_it(covered: CoveredBranch, tmp_path: Path) -> str:
    """What the job `covered` checks out, told by the steps of `index` that follow its own checkout."""
    jobs = read(GITHUB)["jobs"]
    (checkout,) = (step for step in jobs["covered"]["steps"] if "actions/checkout@" in step.get("uses", ""))
    told = re.fullmatch(r"\$\{\{ needs\.index\.outputs\.(\w+) \}\}", checkout["with"]["ref"])
    if not told:
        return str(checkout["with"]["ref"])
    output = re.fullmatch(r"\$\{\{ steps\.(\w+)\.outputs\.(\w+) \}\}", jobs["index"]["outputs"][told[1]])
    assert output
    names = [step.get("id") or step.get("with", {}).get("name") for step in jobs["index"]["steps"]]
    # else it may be the commit of this attempt and the file of an earlier one
    assert names.index("covered") < names.index(output[1])
    folder, file = tmp_path / "index", tmp_path / "output"
    covered.git("clone", "--quiet", str(covered.bare), str(folder / "covered"))
    (script,) = (step["run"] for step in jobs["index"]["steps"] if step.get("id") == output[1])
    process.run("bash", "-ec", script, cwd=folder, env={"GITHUB_OUTPUT": str(file), **NO_CONFIGURATION})
    (value,) = re.findall(rf"^{output[2]}=(.*)$", file.read_text(), re.MULTILINE)
    return str(value)


def test_github_commits_what_is_covered_with_the_token_of_that_step_alone(
    covered: CoveredBranch, tmp_path: Path
) -> None:
    covered.check_out(covered_as_index_read_it(covered, tmp_path))
    assert covered.commit("", "of-the-job").status == 0, "there is nothing to commit"
    assert covered.commit("{}", "another").status != 0
    assert covered.git("ls-tree", "--name-only", "covered") == ""
    done = covered.commit('{"schema": 1}', "of-the-job")
    assert done.status == 0, done.stderr
    assert covered.git("show", "covered:covered.json") == '{"schema": 1}'
    told = covered.git("log", "--max-count=1", "--format=%an %s", "covered")
    assert told == f"robot Images of {'0' * 40}\n"
    files = [path for path in covered.clone.rglob("*") if path.is_file()]
    assert [path for path in files if b"of-the-job" in path.read_bytes()] == []


def test_github_keeps_what_a_later_run_has_written_since(covered: CoveredBranch, tmp_path: Path) -> None:
    """An old run's job may be run again: its covered.json was made of an older one."""
    read_then = covered_as_index_read_it(covered, tmp_path)
    covered.check_out("covered")
    assert covered.commit('{"newer": 1}', "of-the-job").status == 0
    covered.check_out(read_then)
    done = covered.commit('{"older": 1}', "of-the-job")
    assert done.status != 0
    assert "rejected" in done.stderr
    assert covered.git("show", "covered:covered.json") == '{"newer": 1}'


def test_gitlabs_lines_around_the_builds_run_as_they_are(checkout: Path, packages: PackageRegistry) -> None:
    jobs = read(GITLAB)
    for name in ("plan", "index", "pages"):
        script = "\n".join(lines(jobs[name]["script"]))
        run_script(script, checkout, "sh", "-ec", **of_gitlab(packages, jobs, jobs[name]))
    (kept,) = packages.files
    assert kept.endswith("/driverforge/covered/covered.json")
    assert "nothing-to-build" not in (checkout / "shards.yml").read_text()
    (folder,) = jobs["pages"]["artifacts"]["paths"]
    assert "0 of 2 are in the registry" in (checkout / folder / "index.html").read_text()
    assert jobs["index"]["artifacts"]["paths"] == ["covered.json"]


def times_of(checkout: Path) -> dict[str, float]:
    return {key: time.seconds for key, time in read_times([checkout / "times"]).cells.items()}


def gitlabs_shard(
    checkout: Path,
    packages: PackageRegistry,
    *,
    number: int = 1,
    measured: dict[str, float],
    check: bool = True,
) -> process.Finished:
    """The lines of a shard's job before and after its build, in a folder of its own."""
    jobs, shard = read(GITLAB), read(SHARD)[SHARD_JOB]
    job = checkout / f"job{number}"
    shutil.rmtree(job, ignore_errors=True)
    job.mkdir()
    # what `needs` brings into a job is what the plan left as artifacts
    for name in set(jobs["plan"]["artifacts"]["paths"]) & {"times"}:
        if (checkout / name).exists():
            shutil.copytree(checkout / name, job / name)
    for name in ("registry", "bin"):
        (job / name).symlink_to(checkout / name)
    variables = of_gitlab(packages, jobs) | {"CI_NODE_INDEX": str(number)}
    *before, _ = lines(shard["script"])
    done = run_script("\n".join(before), job, "sh", "-ec", check=check, **variables)
    if done.status == 0 and measured:
        (build,) = (words for words in commands(scripts(shard)) if words[0] == "build")
        mine = build[build.index("--times") + 1].replace(VALUES["CI_NODE_INDEX"], str(number))
        date = "2026-11-20T12:00:00Z"
        merge_times(
            job / mine,
            {
                cell: BuildTime(seconds=seconds, first=False, date=date, compiled=True)
                for cell, seconds in measured.items()
            },
        )
    run_script("\n".join(lines(shard["after_script"])), job, "sh", "-ec", **variables)
    return done


ONE, TWO, THREE, FOUR = (f"debian12-amd64-535.261.03-6.1.0-{abi}-cloud-amd64" for abi in range(50, 54))


def test_gitlab_keeps_the_times_of_all_shards_and_of_earlier_runs(
    checkout: Path, packages: PackageRegistry
) -> None:
    """GitLab keeps one copy of a cache: of shards side by side, the last one's alone."""

    def pipeline(*jobs: tuple[int, str, float]) -> dict[str, float]:
        """What the plan of one knows. `jobs` are shards, what each builds then, and how long."""
        shutil.rmtree(checkout / "times", ignore_errors=True)
        gitlabs_plan(checkout, packages)
        known = times_of(checkout)
        for number, cell, seconds in jobs:
            gitlabs_shard(checkout, packages, number=number, measured={cell: seconds})
        return known

    assert f"[1-{GITLAB_JOBS}]/" in "".join(lines(read(GITLAB)["plan"]["script"]))
    assert pipeline((1, ONE, 100.0), (2, TWO, 200.0)) == {}
    # the second job of a number is the first one, tried again in the same pipeline
    assert pipeline((1, THREE, 300.0), (1, FOUR, 400.0)) == {ONE: 100.0, TWO: 200.0}
    assert pipeline() == {ONE: 100.0, TWO: 200.0, THREE: 300.0, FOUR: 400.0}
    # side by side they must not make one package: GitLab wants its files one after the other
    assert len({path.rpartition("/")[0] for path in packages.files}) == len(packages.files) == 2


@pytest.mark.full(reason="every job of the pipeline, as another test has them")
def test_gitlab_finds_its_files_where_they_are_in_an_object_store(
    checkout: Path, packages: PackageRegistry
) -> None:
    """The store is asked without the token; the plan, a shard and the index go on with what it has."""
    gitlabs_shard(checkout, packages, measured={ONE: 100.0})
    gitlabs_index(checkout, packages)
    packages.store = True
    gitlabs_plan(checkout, packages)
    assert times_of(checkout) == {ONE: 100.0}
    gitlabs_shard(checkout, packages, measured={TWO: 200.0})
    gitlabs_index(checkout, packages)
    assert packages.stored == 3
    gitlabs_plan(checkout, packages)
    assert times_of(checkout) == {ONE: 100.0, TWO: 200.0}


def jobs_that_fetch(checkout: Path, packages: PackageRegistry) -> Iterator[process.Finished]:
    yield gitlabs_plan(checkout, packages, check=False)
    yield gitlabs_shard(checkout, packages, measured={TWO: 200.0}, check=False)
    yield gitlabs_index(checkout, packages, check=False)


@pytest.mark.parametrize("status", [401, 503])
def test_gitlabs_jobs_end_where_the_registry_does_not_tell_what_it_has(
    checkout: Path, packages: PackageRegistry, status: int
) -> None:
    """They would begin new files in the place of those of before."""
    pauses = MockPath(checkout / "bin")
    pauses.add("sleep")
    packages.status = status
    for done in jobs_that_fetch(checkout, packages):
        assert (done.status, done.stderr) == (75, f"the package registry answers {status} \n")
    assert pauses.calls("sleep") == 3 * ["10", "30", "0"]
    assert not (checkout / "shards.yml").exists()


def test_gitlabs_jobs_ask_again_where_the_registry_is_busy(checkout: Path, packages: PackageRegistry) -> None:
    gitlabs_shard(checkout, packages, measured={ONE: 100.0})
    pauses = MockPath(checkout / "bin")
    pauses.add("sleep")
    packages.busy = 1
    for number, done in enumerate(jobs_that_fetch(checkout, packages), 1):
        assert (done.status, pauses.calls("sleep")) == (0, number * ["10"])
        packages.busy = 1
    assert times_of(checkout) == {ONE: 100.0}


def test_gitlabs_jobs_end_where_a_file_comes_in_half(checkout: Path, packages: PackageRegistry) -> None:
    """A shard leaves what the registry has as it is."""
    gitlabs_shard(checkout, packages, measured={ONE: 100.0})
    gitlabs_index(checkout, packages)
    MockPath(checkout / "bin").add("sleep")
    kept = dict(packages.files)
    packages.cut = True
    for done in jobs_that_fetch(checkout, packages):
        assert done.status == 75
        assert "the package registry answers 200 \n" in done.stderr
        assert "curl: (18)" in done.stderr
    assert packages.files == kept
    assert not (checkout / "shards.yml").exists()


def test_gitlabs_jobs_end_where_curl_does_not_start(checkout: Path, packages: PackageRegistry) -> None:
    mocks = MockPath(checkout / "bin")
    mocks.add("sleep")
    mocks.add("curl", "echo 'curl: option --location: is unknown' >&2; exit 2")
    for done in (
        gitlabs_plan(checkout, packages, check=False),
        gitlabs_index(checkout, packages, check=False),
    ):
        assert done.status == 75
        assert "option --location: is unknown" in done.stderr
    assert not (checkout / "shards.yml").exists()


def test_gitlabs_two_files_fetch_in_one_way() -> None:
    """The child pipeline's file is another, which sees no anchor of the first."""
    (fetch,) = read(GITLAB)[".fetch"]
    assert fetch in read(SHARD)[SHARD_JOB]["script"]


def test_a_shard_that_measured_nothing_says_nothing(checkout: Path, packages: PackageRegistry) -> None:
    gitlabs_shard(checkout, packages, measured={})
    assert packages.files == {}


# -- what our pages tell a pipeline to do ------------------------------------------------------------------

DOCS = CI.parent


def block(page: str, part: str) -> str:
    (found,) = (text for text in code(DOCS / page) if part in text)
    return found


@pytest.fixture
def commands_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MockPath:
    monkeypatch.chdir(tmp_path)
    return MockPath(tmp_path / "bin")


def script_of(path: Path, job: str) -> str:
    jobs = read(path)
    steps = jobs["jobs"][job]["steps"] if path == GITHUB else [jobs[job]]
    (script,) = (text for text in scripts(steps) if "driverforge " in text or "push" in text)
    return script


@pytest.mark.parametrize("path", [GITHUB, GITLAB], ids=lambda path: path.name)
@pytest.mark.parametrize(("locked", "ended"), [(0, 0), (75, 0), (1, 1), (65, 65)], ids=str)
def test_a_repository_that_does_not_answer_is_no_failure_of_the_nightly_lock(
    commands_here: MockPath, path: Path, locked: int, ended: int
) -> None:
    commands_here.add("driverforge", f"exit {locked}")
    done = process.run("sh", "-ec", script_of(path, "lock"), env=commands_here.environ(), check=False)
    assert (done.status, len(commands_here.calls("driverforge"))) == (ended, 1)


def test_the_lock_is_proposed_at_night_and_only_the_default_branch_pushes_images() -> None:
    github, gitlab = read(GITHUB)["jobs"], read(GITLAB)
    assert github["lock"]["if"] == "github.event_name != 'push'"
    assert (github["propose"]["needs"], gitlab["propose"]["needs"]) == ("lock", ["lock"])
    (rule,) = gitlab["workflow"]["rules"]
    assert rule == {"if": "$CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH"}
    night = [{"if": '$CI_PIPELINE_SOURCE == "schedule"'}]
    assert [name for name, job in gitlab.items() if name != "workflow" and "rules" in job] == [
        "lock",
        "propose",
    ]
    assert gitlab["lock"]["rules"] == gitlab["propose"]["rules"] == night
    # the token is that of one job, and a lock that fails keeps no image from being built
    assert gitlab["propose"]["environment"]["name"] == "lock"
    assert gitlab["build"]["needs"] == ["plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What came of a job `propose`: `pushed` is the lock on the branch, `options` are those of the push."""

    pushed: str
    options: str
    opened: tuple[str, ...]


def propose(covered: CoveredBranch, commands: MockPath, path: Path, text: str) -> Proposal:
    """Run the job's own lines where `lock` left a file; the branch `covered` stands for the default one."""
    hook = covered.bare / "hooks/post-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nenv | grep ^GIT_PUSH_OPTION_[0-9] | sort >options\n")
    hook.chmod(0o755)
    covered.git("config", "receive.advertisePushOptions", "true")
    (covered.clone / "driverforge.lock.json").write_text(text)
    user = "x-access-token" if path == GITHUB else "oauth2"
    job = {"GITHUB_ACTOR": "robot", "GITHUB_REF_NAME": "covered", "CI_DEFAULT_BRANCH": "covered"}
    job |= {"GH_TOKEN": "of-the-job", "LOCK_TOKEN": "of-the-job", **NO_CONFIGURATION}
    with git_server(covered.bare.parent, f"{user}:of-the-job") as address:
        covered.git("remote", "set-url", "origin", f"{address}/repository", folder=covered.clone)
        # GitLab serves a repository as NAME.git too
        (covered.bare.parent / "repository.git").symlink_to(covered.bare)
        job["CI_PROJECT_URL"] = f"{address}/repository"
        process.run("bash", "-ec", script_of(path, "propose"), cwd=covered.clone, env=commands.environ(job))
    (covered.bare.parent / "repository.git").unlink()
    branches = covered.git("branch", "--list", "driverforge-lock").split()
    return Proposal(
        pushed=covered.git("show", "driverforge-lock:driverforge.lock.json") if branches else "",
        options=(covered.bare / "options").read_text() if (covered.bare / "options").exists() else "",
        opened=tuple(call for call in commands.calls("gh") if call.startswith("pr create")),
    )


@pytest.mark.parametrize("path", [GITHUB, GITLAB], ids=lambda path: path.name)
def test_a_lock_that_changed_is_one_request_and_one_that_did_not_is_none(
    covered: CoveredBranch, commands_here: MockPath, path: Path
) -> None:
    commands_here.add("gh", 'case "$*" in *list*) cat numbers ;; esac')
    (covered.clone / "numbers").write_text("")
    (covered.clone / "driverforge.lock.json").write_text("old")
    covered.git("add", "driverforge.lock.json", folder=covered.clone)
    covered.git("commit", "--quiet", "--message", "A lock", folder=covered.clone)
    start = covered.git("rev-parse", "HEAD", folder=covered.clone).strip()
    assert propose(covered, commands_here, path, "old") == Proposal(pushed="", options="", opened=())
    first = propose(covered, commands_here, path, "new")
    assert first.pushed == "new"
    if path == GITHUB:
        assert first.opened == ("pr create --head driverforge-lock --base covered --fill",)
    else:
        assert "=merge_request.create\n" in first.options
        assert "=merge_request.target=covered\n" in first.options
    # the next night begins with the default branch again, and the request is still open
    covered.git("reset", "--quiet", "--hard", start, folder=covered.clone)
    (covered.clone / "numbers").write_text("7\n")
    second = propose(covered, commands_here, path, "newer")
    assert (second.pushed, second.opened) == ("newer", first.opened)
    files = [file for file in covered.clone.rglob("*") if file.is_file()]
    assert [file for file in files if b"of-the-job" in file.read_bytes()] == []


@pytest.mark.parametrize("changed", [True, False])
def test_news_that_change_no_lock_are_no_failure(commands_here: MockPath, changed: bool) -> None:
    commands_here.add("driverforge", 'if [ "$1" = watch ]; then exit 1; fi')
    commands_here.add("git", f'if [ "$1" = diff ]; then exit {int(changed)}; fi; test {int(changed)} = 1')
    process.run("sh", "-ec", block("updates.md", "driverforge watch"), env=commands_here.environ())
    assert len(commands_here.calls("git")) == 1 + changed


def test_the_script_around_cosign_prints_the_signature_alone(commands_here: MockPath, tmp_path: Path) -> None:
    """A stand-in for cosign 3, which was not at hand: it wants --bundle, and says something on its output."""
    if gone := process.missing("jq"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    commands_here.add(
        "cosign",
        """while [ $# -gt 1 ]; do if [ "$1" = --bundle ]; then bundle=$2; fi; shift; done
: "${bundle:?must specify --bundle with --new-bundle-format}"
echo "Using payload from: -"
printf '{"messageSignature": {"signature": "%s"}}' "$(base64)" >"$bundle"
""",
    )
    script = tmp_path / "sign-with-cosign"
    script.write_text(block("attest.md", "cosign sign-blob"))
    done = process.run("sh", str(script), stdin="what is signed", env=commands_here.environ())
    assert done.stdout == f"{base64.b64encode(b'what is signed').decode()}\n"


@pytest.mark.parametrize(
    ("kernel", "os", "ended"),
    [("6.1.0-50-amd64", "debian12", 0), ("6.1.0-51-amd64", "debian12", 1), ("6.1.0-50-amd64", "rocky9", 1)],
)
def test_an_update_to_a_kernel_without_an_image_waits(
    commands_here: MockPath, kernel: str, os: str, ended: int
) -> None:
    if gone := process.missing("jq"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    image = covered_image(f"{os}-amd64-535.261.03-6.1.0-50-amd64")
    merge_covered(Path("covered.json"), {"6.1.0-50-amd64": [image]})
    commands_here.add("curl", "cat covered.json")
    asked = block("ci/README.md", "NEXT_KERNEL")
    environment = {**commands_here.environ(), "NEXT_KERNEL": kernel}
    assert process.run("sh", "-ec", asked, check=False, env=environment).status == ended
