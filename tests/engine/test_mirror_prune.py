"""`mirror prune` on real registries, whose own garbage collection runs for real afterwards."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from driverforge_build.app.prune import PruneInputs, plan_prune
from driverforge_build.cli import run as driverforge
from driverforge_mirror.contents.ask import find
from driverforge_mirror.contents.listtext import image_document
from driverforge_mirror.lists.target import Paths, Target
from driverforge_oci.presence import Absent, Present, presence
from driverforge_oci.reference import Reference
from driverforge_oci.referrers import Artifact, attach, referrers_tag
from support.jsonschemas import check_document
from support.machines import registry
from support.process import missing, run
from support.samples.clusternodes import node
from support.samples.vendorregistry import client, copy_image, put_image
from support.skipping import provided
from support.upstream import registries

_ROOT = Path(__file__).parents[2]
DRIVER, TOOLKIT = "nvcr.io/nvidia/driver", "nvcr.io/nvidia/toolkit"
OLD, NOW, NEXT = (f"580-5.15.0-{abi}-generic-ubuntu22.04" for abi in (1, 2, 3))
SIGNATURE = Artifact(media_type="application/vnd.site.signature", content=b"signed", slot="sig-of-ours")


@dataclass(slots=True, kw_only=True)
class Mirror:
    """A mirror that holds images below kse/, and lists of them."""

    home: Path
    program: str | Path
    address: str = ""

    def place(self, image: str) -> Reference:
        return Reference.parse(f"{self.address}/kse/{Reference.parse(image).repository}").with_tag(
            Reference.parse(image).tag
        )

    def put(self, *images: str) -> None:
        for image in images:
            put_image(self.place(image))

    def lock(self, name: str, *images: str) -> str:
        """A list of images, as they are now in the mirror."""
        documents = []
        for image in images:
            place = self.place(image)
            found = find(client(), place.with_digest(client().head_manifest(place).digest))
            documents.append(image_document(image, [], found))
        lock = {"schema": 1, "chart": None, "inputs": {}, "images": documents, "left_out": [], "warnings": []}
        (self.home / name).write_text(json.dumps(lock))
        return str(self.home / name)

    def prune(self, *words: str, locks: Sequence[str]) -> int:
        given = [word for lock in locks for word in ("--mirror-lock", lock)]
        return driverforge(["mirror", "prune", "--to", f"{self.address}/kse", *given, *words])

    def verified(self, lock: str) -> int:
        to = f"{self.address}/kse"
        return driverforge(["mirror", "verify", "--deep", "--to", to, "--mirror-lock", lock])

    def has(self, image: str) -> bool:
        return isinstance(presence(client(), self.place(image)), Present)

    def stored(self) -> int:
        """Blobs and manifests on the registry's disk."""
        return sum(1 for _ in (self.home / "registry/data/docker/registry/v2/blobs").rglob("data"))

    def collect_garbage(self) -> None:
        run(self.program, "garbage-collect", self.home / "registry/config.yml")


@pytest.fixture(
    params=[
        "docker-registry",
        pytest.param("distribution", marks=pytest.mark.full(reason="compiles distribution 3")),
    ]
)
def mirror(request: pytest.FixtureRequest) -> Iterator[Mirror]:
    if gone := missing("docker-registry", "setpriv"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    program: str | Path = request.param
    if program == "distribution":
        program = provided(lambda: registries.program(registries.DISTRIBUTION))
    home = Path(tempfile.mkdtemp(prefix="bench-", dir="/var/tmp"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, home)
        made = Mirror(home=home, program=program)
        made.address = stack.enter_context(registry.serve(home / "registry", program=program)).address
        yield made


def at_a_terminal(mirror: Mirror, typed: bytes, *locks: str) -> tuple[int, str]:
    """The status of a prune that asks there, and what it says."""
    program = "from driverforge_build.cli import main; main()"
    given = [word for lock in locks for word in ("--mirror-lock", lock)]
    argv = [sys.executable, "-c", program, "mirror", "prune", "--to", f"{mirror.address}/kse", *given]
    paths = os.pathsep.join(str(_ROOT / name) for name in ("builder", "entrypoints"))
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "wb", buffering=0) as keyboard, os.fdopen(theirs, "rb", buffering=0) as screen:
        keyboard.write(typed)
        done = subprocess.run(
            argv,
            env={**os.environ, "PYTHONPATH": paths},
            stdin=screen,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=120,
        )
    return done.returncode, done.stdout


@pytest.mark.parametrize(("typed", "status"), [(b"y\n", 0), (b"n\n", 1), (b"\n", 1), (b"\x04", 1)])
def test_at_a_terminal_it_asks_and_only_yes_deletes(mirror: Mirror, typed: bytes, status: int) -> None:
    mirror.put(f"{DRIVER}:{OLD}", f"{DRIVER}:{NOW}")
    lock = mirror.lock("now.json", f"{DRIVER}:{NOW}")
    found, told = at_a_terminal(mirror, typed, lock)
    assert (found, mirror.has(f"{DRIVER}:{OLD}")) == (status, status == 1)
    assert "Delete 3 manifests? [y/N]" in told
    assert mirror.has(f"{DRIVER}:{NOW}")


def read_json(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_what_no_list_needs_goes_and_what_is_kept_is_whole(
    mirror: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror.put(f"{DRIVER}:{OLD}", f"{DRIVER}:{NOW}", f"{DRIVER}:{NEXT}", f"{TOOLKIT}:1", "docker.io/a/b:1")
    index = client().head_manifest(mirror.place(f"{DRIVER}:{NOW}")).digest
    gone = client().get_manifest(mirror.place(f"{DRIVER}:{OLD}"))
    part = gone.children[0].digest
    for digest in (index, gone.digest, part):
        place = mirror.place(f"{DRIVER}:{NOW}").with_digest(digest)
        attach(client(), place, SIGNATURE, [SIGNATURE.slot])
    previous = mirror.lock("previous.json", f"{DRIVER}:{NOW}", f"{TOOLKIT}:1")
    current = mirror.lock("current.json", f"{DRIVER}:{NEXT}", f"{TOOLKIT}:1")
    before = mirror.stored()
    assert mirror.prune("--dry-run", "--json", locks=[current, previous]) == 0
    planned = read_json(capsys)
    check_document("mirror-prune", planned)
    assert mirror.stored() == before
    assert mirror.prune("--yes", "--json", locks=[current, previous]) == 0
    document = read_json(capsys)
    assert [{**one, "state": "planned"} for one in document["deleted"]] == planned["deleted"]
    assert {one["state"] for one in document["deleted"]} == {"deleted"}
    # the index, its platforms and what refers to them
    assert {gone.digest, *(one.digest for one in gone.children)} <= {
        one["digest"] for one in document["deleted"]
    }
    tags = {tag for one in document["deleted"] for tag in one["tags"]}
    about = {
        f"{referrers_tag(one)}{end}" for one in (gone.digest, part) for end in ("", f".{SIGNATURE.slot}")
    }
    assert tags == {OLD, *about}
    why = {one["tag"]: one["why"] for one in document["kept"]}
    assert why[NOW] == [previous]
    assert why["1"] == [current, previous]
    assert why[referrers_tag(index)] == [f"about {index}"]
    assert document["foreign"] == [f"{mirror.address}/kse/a/b"]
    mirror.collect_garbage()
    assert mirror.stored() < before
    assert not mirror.has(f"{DRIVER}:{OLD}")
    assert mirror.has("docker.io/a/b:1")
    assert (mirror.verified(current), mirror.verified(previous)) == (0, 0)
    signatures = mirror.lock("again.json", f"{DRIVER}:{NOW}")
    assert len(json.loads(Path(signatures).read_text())["images"][0]["attached"]) == 1
    # what is done is done
    capsys.readouterr()
    assert mirror.prune("--yes", "--json", locks=[current, previous]) == 0
    assert read_json(capsys)["deleted"] == []


def test_what_runs_on_a_node_stays(mirror: Mirror, capsys: pytest.CaptureFixture[str]) -> None:
    mirror.put(*(f"{DRIVER}:{tag}" for tag in (OLD, NOW, NEXT, "by-digest", "by-disk")), f"{TOOLKIT}:1")
    lock = mirror.lock("current.json", f"{DRIVER}:{NEXT}")
    # a container's image is known by its platform's digest, and by the vendor's name
    platform = client().get_manifest(mirror.place(f"{DRIVER}:by-digest")).children[0].digest
    status = {"containerStatuses": [{"image": "x:1", "imageID": f"{DRIVER}@{platform}"}]}
    pod = {"kind": "Pod", "metadata": {"namespace": "gpu", "name": "driver-x"}, "status": status}
    machine = node("gpu-0", kernel="5.15.0-2-generic")
    machine["status"]["images"] = [{"names": [f"{mirror.place(DRIVER + ':by-disk')}"]}]
    dumps = {"pods.json": [machine, pod], "nodes.json": [machine]}
    for name, items in dumps.items():
        (mirror.home / name).write_text(json.dumps({"kind": "List", "items": items}))
    assert mirror.prune("--dry-run", "--nodes", str(mirror.home / "nodes.json"), "--json", locks=[lock]) == 0
    why = {one["tag"]: one["why"] for one in read_json(capsys)["kept"] if one["tag"]}
    assert why == {
        NEXT: [lock],
        NOW: ["Node/gpu-0 runs this kernel"],
        "by-disk": ["Node/gpu-0"],
    }
    assert mirror.prune("--yes", "--nodes", str(mirror.home / "pods.json"), "--json", locks=[lock]) == 0
    document = read_json(capsys)
    kept = {one["tag"]: one["why"] for one in document["kept"] if one["tag"]}
    assert kept["by-digest"] == ["Pod/gpu/driver-x"]
    assert {tag for one in document["deleted"] for tag in one["tags"]} == {OLD, "by-disk"}
    mirror.collect_garbage()
    assert mirror.has(f"{DRIVER}:by-digest")
    assert mirror.has(f"{DRIVER}:{NOW}")
    # a repository that no list names is not looked at
    assert mirror.has(f"{TOOLKIT}:1")


def test_an_old_list_says_what_has_no_tag_any_more(
    mirror: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror.put(f"{DRIVER}:{OLD}", f"{DRIVER}:{NOW}", f"{TOOLKIT}:1")
    old = mirror.lock("old.json", f"{DRIVER}:{OLD}", f"{TOOLKIT}:1")
    untagged = client().head_manifest(mirror.place(f"{DRIVER}:{OLD}")).digest
    copy_image(mirror.place(f"{DRIVER}:{NOW}"), mirror.place(f"{DRIVER}:{OLD}"))
    current = mirror.lock("current.json", f"{DRIVER}:{OLD}", f"{DRIVER}:{NOW}")
    assert mirror.prune("--yes", "--json", locks=[current]) == 0
    assert read_json(capsys)["deleted"] == []
    assert mirror.prune("--yes", "--drop", old, "--json", locks=[current]) == 0
    deleted = read_json(capsys)["deleted"]
    assert untagged in {one["digest"] for one in deleted}
    assert [one["tags"] for one in deleted if one["tags"]] == [["1"]]
    mirror.collect_garbage()
    assert mirror.verified(current) == 0
    assert not mirror.has(f"{TOOLKIT}:1")


@pytest.mark.parametrize("came", ["the same image under another tag", "a new one with an old part"])
def test_what_comes_between_plan_and_deletion_stays(mirror: Mirror, came: str) -> None:
    mirror.put(f"{DRIVER}:{OLD}", f"{DRIVER}:{NOW}")
    lock = mirror.lock("current.json", f"{DRIVER}:{NOW}")
    target = Target.parse(f"{mirror.address}/kse", Paths.KEEP)
    plan = plan_prune(PruneInputs(locks=[Path(lock)]), client(), target)
    old = client().get_manifest(mirror.place(f"{DRIVER}:{OLD}"))
    if came.startswith("the same"):
        client().put_manifest(mirror.place(f"{DRIVER}:new"), old.data, old.media_type)
    else:
        part = {**old.document, "manifests": old.document["manifests"][:1]}
        client().put_manifest(mirror.place(f"{DRIVER}:new"), json.dumps(part).encode(), old.media_type)
    states = {one["digest"]: one["state"] for one in plan.carry_out()}
    assert set(states) == {old.digest, *(one.digest for one in old.children)}
    new = mirror.lock("new.json", f"{DRIVER}:new", f"{DRIVER}:{NOW}")
    mirror.collect_garbage()
    assert mirror.verified(new) == 0
    expected = {"kept"} if came.startswith("the same") else {"kept", "deleted"}
    assert set(states.values()) == expected


def test_nothing_goes_that_nobody_agreed_to(mirror: Mirror, capsys: pytest.CaptureFixture[str]) -> None:
    mirror.put(f"{DRIVER}:{OLD}", f"{DRIVER}:{NOW}")
    lock = mirror.lock("current.json", f"{DRIVER}:{NOW}")
    assert mirror.prune(locks=[lock]) == 64
    assert "--yes" in capsys.readouterr().err
    assert mirror.has(f"{DRIVER}:{OLD}")
    # a list that cannot be read, or an answer that did not come, is no empty list
    assert mirror.prune("--yes", locks=[lock, str(mirror.home / "none.json")]) == 65
    assert mirror.has(f"{DRIVER}:{OLD}")


def test_deletion_that_is_switched_off_says_how_to_switch_it_on(
    mirror: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror.put(f"{DRIVER}:{OLD}", f"{DRIVER}:{NOW}")
    lock = mirror.lock("current.json", f"{DRIVER}:{NOW}")
    closed = mirror.home / "closed"
    closed.mkdir()
    shutil.copytree(mirror.home / "registry/data", closed / "data")
    with registry.serve(closed, program=mirror.program, deletes=False) as server:
        mirror.address = server.address
        assert mirror.prune("--yes", locks=[lock]) == 78
        assert mirror.has(f"{DRIVER}:{OLD}")
    assert "storage.delete.enabled: true" in capsys.readouterr().err


def test_what_a_registry_lists_as_referrers_goes_and_stays_with_its_image(
    capsys: pytest.CaptureFixture[str],
) -> None:
    provided(lambda: registries.program(registries.OLAREG))
    home = Path(tempfile.mkdtemp(prefix="bench-", dir="/var/tmp"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, home)
        address = stack.enter_context(registries.serve_olareg(home / "registry"))
        mirror = Mirror(home=home, program="", address=address)
        mirror.put(f"{DRIVER}:{OLD}", f"{DRIVER}:{NOW}")
        signed = {}
        for tag in (OLD, NOW):
            image = mirror.place(f"{DRIVER}:{tag}")
            image = image.with_digest(client().head_manifest(image).digest)
            signed[tag] = attach(client(), image, SIGNATURE, [SIGNATURE.slot]).digest
        lock = mirror.lock("current.json", f"{DRIVER}:{NOW}")
        assert mirror.prune("--yes", "--json", locks=[lock]) == 0
        assert signed[OLD] in {one["digest"] for one in read_json(capsys)["deleted"]}
        place = mirror.place(f"{DRIVER}:{NOW}")
        assert isinstance(presence(client(), place.with_digest(signed[NOW])), Present)
        assert isinstance(presence(client(), place.with_digest(signed[OLD])), Absent)
        assert mirror.verified(lock) == 0


@pytest.mark.parametrize("mirror", ["docker-registry"], indirect=True)
def test_archives_that_no_list_needs_go(mirror: Mirror, capsys: pytest.CaptureFixture[str]) -> None:
    mirror.put(f"{DRIVER}:{OLD}", f"{DRIVER}:{NOW}", f"{DRIVER}:{NEXT}")
    asked = ["--registry", f"nvcr.io={mirror.address}/kse"]
    folder, locks = mirror.home / "out", {}
    for number, (name, tag) in enumerate({"old": OLD, "now": NOW, "next": NEXT}.items()):
        locks[name] = mirror.lock(f"{name}.json", f"{DRIVER}:{tag}")
        words = ["--to-archive", str(folder / name), "--mirror-lock", locks[name], *asked]
        assert driverforge(["mirror", "copy", *words]) == 0
        os.utime(folder / f"{name}.list.json", (number, number))
    words = ["--to-archive", str(folder / "next-again"), "--mirror-lock", locks["next"], *asked]
    assert driverforge(["mirror", "copy", *words]) == 0
    # a list that names files of others as its volumes
    old = json.loads((folder / "old.list.json").read_text())
    old["volumes"].append({"name": "diary.tar", "size": 1, "sha256": "0" * 64})
    (folder / "old.list.json").write_text(json.dumps(old))
    os.utime(folder / "old.list.json", (0, 0))
    (folder / "diary.tar").write_text("x")
    prune = ["mirror", "prune", "--archives", str(folder), "--mirror-lock", locks["next"]]
    prune += ["--mirror-lock", locks["now"]]
    assert driverforge(prune) == 64
    # what a damaged archive has counts as not there
    newest = folder / "next-again.tar"
    data = newest.read_bytes()
    newest.write_bytes(data[:-1])
    capsys.readouterr()
    assert driverforge([*prune, "--dry-run", "--json"]) == 0
    document = read_json(capsys)
    check_document("mirror-shelf", document)
    planned = [one["name"] for one in document["archives"] if one["state"] == "planned"]
    assert planned == ["old"]
    newest.write_bytes(data)
    assert driverforge([*prune, "--yes"]) == 0
    left = sorted(path.name for path in folder.iterdir())
    ends = (".list.json", ".sha256", ".tar")
    assert left == sorted(["diary.tar", *(f"{name}{end}" for name in ("next-again", "now") for end in ends)])
