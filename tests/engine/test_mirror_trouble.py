"""`mirror copy` between real registries, with trouble on the way: what arrives is right, and sent once.

Bytes are counted by proxies before both registries.
"""

from __future__ import annotations

import email.utils
import itertools
import json
import re
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from driverforge_build.app.carry import Carrying, copy_between
from driverforge_build.commands.mirror.copyprogress import CopyProgress
from driverforge_build.commands.shared.adapters import copying_client, copying_downloads
from driverforge_mirror.archive.imagelayout import MARK
from driverforge_mirror.copying.registries import PART
from driverforge_mirror.copying.tide import Tide
from driverforge_mirror.lists.reader import load_mirror_lock
from driverforge_mirror.lists.target import Paths, Target
from driverforge_oci.client import OCI_MANIFEST, digest_of
from driverforge_oci.reference import Reference
from support.fakes.hostileproxy import Asked, Proxy, Trouble, hostile
from support.machines import registry
from support.process import missing, run, until
from support.samples.mirrorsite import Troubled, put_large, scratch, some, troubled_site
from support.samples.vendorregistry import client

SIZE = 64 << 20  # four parts of an upload
LAYERS = [some(name, SIZE) for name in ("one", "two")]
ALL = sum(map(len, LAYERS))
SLACK = 1 << 20
"""For configurations."""
SOCKETS = 12 << 20
"""For what is under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """A registry behind a proxy, with an image of each layer and one of both; `many` has many layers."""

    proxy: Proxy
    names: list[str]
    many: str


@pytest.fixture(scope="module")
def vendor() -> Iterator[Vendor]:
    if gone := missing("docker-registry", "setpriv"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    with scratch() as home, registry.serve(home) as server, hostile(server.address) as proxy:
        place = Reference.parse(f"{proxy.address}/nvidia/driver:1")
        images = [[LAYERS[0]], [LAYERS[1]], LAYERS]
        names = [put_large(place.with_tag(str(tag)), *layers) for tag, layers in enumerate(images)]
        many = [some(f"many {number}", 2 << 20) for number in range(24)]
        yield Vendor(
            proxy=proxy, names=names, many=put_large(Reference.parse(f"{proxy.address}/nvidia/many:1"), *many)
        )


@pytest.fixture
def troubled(vendor: Vendor, monkeypatch: pytest.MonkeyPatch) -> Iterator[Troubled]:
    with troubled_site(vendor.proxy) as made:
        monkeypatch.setenv("XDG_CACHE_HOME", str(made.site.home / "cache"))
        made.site.list_images(vendor.names)
        made.begin_anew()
        yield made


def once_each(wanted: Callable[[Asked], str], trouble: Trouble) -> Callable[[Asked], Trouble | None]:
    """Trouble for the first request of each name that `wanted` gives; '' is let through."""
    seen = set[str]()

    def decide(asked: Asked) -> Trouble | None:
        name = wanted(asked)
        if not name or name in seen:
            return None
        seen.add(name)
        return trouble

    return decide


@pytest.mark.parametrize(
    ("number", "status", "way"),
    [(signal.SIGINT, 130, "registry"), (signal.SIGTERM, -signal.SIGTERM, "archive")],
    ids=["int", "term"],
)
def test_a_signal_ends_a_copy_that_waits_for_a_silent_registry(
    troubled: Troubled, number: signal.Signals, status: int, way: str
) -> None:
    # what the sockets hold is less than a part
    got = SIZE - (2 << 20)
    troubled.vendor.trouble = lambda asked: Trouble(silent=got) if asked.blob else None
    to = troubled.to if way == "registry" else ["--to-archive", str(troubled.site.archive)]
    with troubled.site.start(*to) as child:
        until(lambda: troubled.down >= 2 * got, "all but the ends is on the way", child=child)
        child.send_signal(number)
        out, _ = child.communicate(timeout=10)
    assert child.returncode == status
    assert "Traceback" not in out
    troubled.begin_anew()
    assert troubled.site.copy(*to) == 0
    # all parts of each but the last were acknowledged, or a mark was written before
    assert troubled.down <= 2 * (PART if way == "registry" else SIZE - MARK) + SLACK
    if way == "registry":
        assert troubled.site.held("kse") == 0


def test_a_download_that_breaks_goes_on_within_the_blob(troubled: Troubled) -> None:
    troubled.vendor.trouble = once_each(lambda asked: asked.blob, Trouble(cut=SIZE // 2))
    assert troubled.site.copy(*troubled.to) == 0
    # what the sockets held when they broke is lost
    assert troubled.down <= ALL + 2 * SOCKETS
    assert troubled.mirror.up <= ALL + SLACK
    assert troubled.site.held("kse") == 0


def test_an_upload_that_breaks_begins_anew_and_the_others_do_not(troubled: Troubled) -> None:
    first = itertools.count()
    troubled.mirror.trouble = lambda asked: (
        Trouble(cut=PART // 2) if asked.method == "PATCH" and next(first) == 2 else None
    )
    assert troubled.site.copy(*troubled.to) == 0
    assert troubled.mirror.up <= ALL + SIZE
    assert troubled.site.held("kse") == 0


class Sometimes429:
    """Each second request is refused, with what the server's own clock says of when to come back."""

    def __init__(self, clock: float, *, at_most: int) -> None:
        self.clock, self.left = clock, at_most
        self.turn = itertools.count()

    def __call__(self, asked: Asked) -> Trouble | None:
        if not (asked.blob or asked.uploads) or not self.left or next(self.turn) % 2:
            return None
        self.left -= 1
        date, later = (email.utils.formatdate(self.clock + after, usegmt=True) for after in (0, 1))
        return Trouble(status=429, headers={"Date": date, "Retry-After": later})


def test_registries_that_are_busy_are_asked_less_and_later_more(troubled: Troubled, vendor: Vendor) -> None:
    troubled.site.list_images([vendor.many])
    troubled.begin_anew()
    hour = 3600.0
    troubled.vendor.trouble = Sometimes429(time.time() + hour, at_most=8)
    troubled.mirror.trouble = Sometimes429(time.time() - hour, at_most=8)
    widths = list[int]()
    tide = Tide(now=time.monotonic, period=0.02)

    def told(_why: str, _seconds: float) -> None:
        tide.ebb()
        widths.append(tide.width)

    progress = CopyProgress(as_json=False, moving=lambda *_: widths.append(tide.width))
    lock = load_mirror_lock(troubled.site.home / "mirror.lock.json")
    document = copy_between(
        Carrying(
            tide=tide,
            listener=progress,
            files=copying_downloads(troubled.site.home / "cache", progress.waiting),
        ),
        lock,
        copying_client(told, at_once=32),
        copying_client(told, at_once=32),
        Target.parse(f"{troubled.site.mirror}/kse", Paths.KEEP),
        registries={},
        begun=troubled.site.home / "uploads.json",
    )
    assert {image["state"] for image in document["images"]} == {"copied"}
    narrow = min(widths)
    assert narrow < 4
    assert max(widths[widths.index(narrow) :]) > narrow
    assert troubled.down == troubled.mirror.up == document["sent"]
    assert troubled.site.held("kse") == 0


class Tokens:
    """Wants a token. For the requests that `ends` names, those that were given end with each such request."""

    def __init__(self, address: str, ends: Callable[[Asked], bool], trouble: Trouble | None = None) -> None:
        self.address, self.ends, self.trouble = address, ends, trouble
        self.given = self.ended = 0

    def __call__(self, asked: Asked) -> Trouble | None:
        if asked.path == "/token":
            self.given += 1
            # of a service whose clock is wrong
            body = {"token": f"t{self.given}", "expires_in": 1, "issued_at": "2001-01-01T00:00:00Z"}
            return Trouble(status=200, body=json.dumps(body).encode())
        number = int(asked.headers.get("Authorization", "Bearer t0").removeprefix("Bearer t"))
        ends = self.ends(asked)
        if not number or (ends and number <= self.ended):
            wanted = f'Bearer realm="http://{self.address}/token",service="x",scope="repository:x:pull"'
            return Trouble(status=401, headers={"Www-Authenticate": wanted})
        if not ends:
            return None
        self.ended = self.given
        return self.trouble


def test_a_token_that_ends_within_a_blob_is_asked_for_anew(troubled: Troubled, vendor: Vendor) -> None:
    troubled.site.list_images(vendor.names[:1])
    blob = digest_of(LAYERS[0])
    theirs = Tokens(vendor.proxy.address, lambda asked: asked.blob == blob, Trouble(cut=SIZE // 4))
    ours = Tokens(troubled.mirror.address, lambda asked: asked.method == "PATCH")
    troubled.vendor.trouble, troubled.mirror.trouble = theirs, ours
    assert troubled.site.copy(*troubled.to) == 0
    assert min(theirs.ended, ours.ended) >= 3
    assert troubled.down <= SIZE + 4 * SOCKETS
    assert troubled.mirror.up <= SIZE + SLACK
    troubled.mirror.begin_anew()
    assert troubled.site.held("kse") == 0


def test_a_tag_that_moves_during_the_copy_changes_nothing(troubled: Troubled) -> None:
    """At the vendor's nothing goes by tags; at the mirror the next copy puts it right, and sends no blob."""
    moving = Reference.parse(f"{troubled.site.vendor}/nvidia/driver:0")
    before = client().head_manifest(moving).digest

    def move(asked: Asked) -> Trouble | None:
        if asked.blob:
            troubled.vendor.trouble = lambda _asked: None
            put_large(moving, b"another one")
        return None

    troubled.vendor.trouble = move
    assert troubled.site.copy(*troubled.to) == 0
    try:
        assert client().head_manifest(moving).digest != before
    finally:
        client().put_manifest(moving, client().get_manifest(moving.with_digest(before)).data, OCI_MANIFEST)
    assert troubled.site.held("kse") == 0
    put_large(Reference.parse(f"{troubled.site.mirror}/kse/nvidia/driver:0"), b"another one")
    assert troubled.site.held("kse") == 1
    troubled.begin_anew()
    assert troubled.site.copy(*troubled.to) == 0
    assert troubled.down == troubled.mirror.up == 0
    assert troubled.site.held("kse") == 0


def test_a_volume_that_is_wrong_or_missing_costs_its_own_blobs_alone(troubled: Troubled) -> None:
    site = troubled.site
    assert site.copy("--to-archive", str(site.archive), "--volume-size", "40M") == 0
    volume = site.archive.with_name("gpu.tar.001")
    good = volume.read_bytes()
    out = ["--from-archive", str(site.archive), *troubled.to]
    for harm in (lambda: volume.write_bytes(good[:-1] + bytes([good[-1] ^ 1])), volume.unlink):
        harm()
        assert site.copy(*out) != 0
        assert site.held("kse") == 1
    troubled.begin_anew()
    volume.write_bytes(good)
    assert site.copy(*out) == 0
    # the other layer was there
    assert troubled.mirror.up <= SIZE + SLACK
    assert site.held("kse") == 0


def test_a_disk_that_is_full_is_found_before_the_first_download(troubled: Troubled) -> None:
    """The archive's disk is a small tmpfs in a namespace; it gets room, and the same command goes on."""
    tried = run("unshare", "--user", "--map-root-user", "--mount", "true", check=False)
    if tried.status:
        pytest.skip(f"no user namespaces: {tried.stderr.strip()}")
    site = troubled.site
    site.archive.parent.mkdir()
    script = f"""
    mount -t tmpfs -o size=100M none {site.archive.parent} || exit 99
    copy() {{ {shlex.join([str(word) for word in site.argv()])} "$@"; echo "status $?"; }}
    copy --to-archive {site.archive} --volume-size 48M
    mount -o remount,size=400M {site.archive.parent} || exit 98
    copy --to-archive {site.archive} --volume-size 48M
    copy --from-archive {site.archive} {shlex.join(troubled.to)}
    """
    ended = run("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, env=site.environment)
    assert re.findall("status ([0-9]+)", ended.stdout) == ["74", "0", "0"]
    assert "No space left on device" in ended.stderr
    assert "make room" in ended.stderr
    assert troubled.down <= ALL + SLACK
    assert site.held("kse") == 0
