"""A login that a credential helper keeps: a real program on PATH, a real registry that wants it, a push.

The registry reads htpasswd, once over plain HTTP and once over TLS with an authority of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from driverforge_build import cli
from driverforge_build.commands.shared import adapters
from driverforge_build.lock.file import dump_lock
from driverforge_build.lock.pins import Lock
from driverforge_core.errors import CommandFailed, NotPermitted
from driverforge_oci.client import OCI_MANIFEST, digest_of
from driverforge_oci.presence import Absent, Present, Unknown, presence
from driverforge_oci.reference import Reference
from driverforge_oci.referrers import EMPTY
from support import process
from support.fakes.mockpath import MockPath
from support.machines import registry as machine
from support.machines.engine import Engine
from support.samples.locks import sample_driver, target
from support.samples.sampledebian import write_matrix

pytestmark = pytest.mark.skipif(
    bool(process.missing("docker-registry", "setpriv", "openssl")),
    reason="needs docker-registry, setpriv and openssl",
)

SECRET = "correct horse"
MARK = "io.driverforge.test=helper"


# an engine's daemon does not know the authority
PLAIN = pytest.mark.parametrize("registry", ["plain"], indirect=True)
TLS = pytest.mark.parametrize("registry", ["TLS"], indirect=True)


@pytest.fixture(scope="module", params=["plain", "TLS"])
def registry(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("closed")
    identity = machine.identity(folder / "tls") if request.param == "TLS" else None
    with pytest.MonkeyPatch.context() as environment:
        if identity:
            environment.setenv("SSL_CERT_FILE", str(identity.file))
        with machine.serve(folder, users={"ci": SECRET}, identity=identity) as found:
            yield found.address


@dataclass(frozen=True, slots=True)
class Keychain:
    """A user's config.json, and a helper that knows one login."""

    folder: Path
    programs: MockPath
    registry: str

    def keep(self, secret: str) -> None:
        answer = json.dumps({"ServerURL": self.registry, "Username": "ci", "Secret": secret})
        self.programs.add(
            "docker-credential-bench",
            f"""[ "$(cat)" = {self.registry} ] && exec echo '{answer}'
echo 'credentials not found in native keychain'; exit 1""",
        )

    def configure(self, **config: object) -> None:
        (self.folder / "config.json").write_text(json.dumps(config))


@pytest.fixture
def keychain(tmp_path: Path, registry: str, monkeypatch: pytest.MonkeyPatch) -> Keychain:
    made = Keychain(tmp_path / "docker", MockPath(tmp_path / "bin"), registry)
    made.folder.mkdir()
    made.keep(SECRET)
    for name, value in made.programs.environ({"DOCKER_CONFIG": str(made.folder)}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("REGISTRY_AUTH_FILE", raising=False)
    return made


@pytest.fixture
def plan(tmp_path: Path, registry: str, capsys: pytest.CaptureFixture[str]) -> Callable[[], tuple[int, str]]:
    """`driverforge plan --registry` for one JIT image: exit status, and all that was printed."""
    write_matrix(tmp_path)
    lock = Lock(targets={"debian12-amd64": target(drivers={"535.261.03": sample_driver()})})
    (tmp_path / "l.json").write_text(dump_lock(lock))
    words = ["plan", "--select", "debian12-*", "--registry", f"{registry}/site"]
    words += ["--matrix", str(tmp_path / "site.yaml"), "--lock", str(tmp_path / "l.json")]

    def plan() -> tuple[int, str]:
        status = cli.run(words)
        return status, "".join(capsys.readouterr())

    return plan


@pytest.mark.parametrize("kind", ["credHelpers", "credsStore"])
def test_a_registry_is_read_with_the_helpers_login(
    keychain: Keychain, plan: Callable[[], tuple[int, str]], kind: str
) -> None:
    keychain.configure(**{kind: {keychain.registry: "bench"} if kind == "credHelpers" else "bench"})
    status, told = plan()
    assert (status, told.split()[1]) == (0, "build"), told
    assert keychain.programs.calls("docker-credential-bench") == ["get"]


def test_a_login_that_the_registry_refuses_is_no_answer(
    keychain: Keychain, plan: Callable[[], tuple[int, str]]
) -> None:
    keychain.configure(credsStore="bench")
    keychain.keep("wrong")
    status, told = plan()
    assert (status, told.split()[1]) == (75, "unknown"), told
    assert "wrong" not in told.replace("wrong input", "")


def test_a_helper_that_is_not_there_ends_the_plan(
    keychain: Keychain, plan: Callable[[], tuple[int, str]]
) -> None:
    keychain.configure(credHelpers={keychain.registry: "gone"})
    status, told = plan()
    assert status == 70
    assert f"{keychain.folder / 'config.json'}: credHelpers: {keychain.registry}: " in told
    assert "docker-credential-gone cannot be started: No such file or directory" in told


@TLS
def test_a_registry_is_written_with_the_helpers_login(keychain: Keychain) -> None:
    keychain.configure(credsStore="bench")
    place = Reference.parse(f"{keychain.registry}/site/helper:1")
    client = adapters.registry_client()
    client.put_blob(place, EMPTY, digest=digest_of(EMPTY), size=len(EMPTY))
    config = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest_of(EMPTY)}
    image = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "layers": [],
        "config": config | {"size": len(EMPTY)},
    }
    digest = client.put_manifest(place, json.dumps(image).encode(), OCI_MANIFEST)
    assert presence(adapters.registry_client(), place) == Present(digest)


@TLS
def test_an_authority_that_is_not_known_is_no_answer(
    keychain: Keychain, plan: Callable[[], tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    keychain.configure(credsStore="bench")
    monkeypatch.delenv("SSL_CERT_FILE")
    status, told = plan()
    assert (status, told.split()[1]) == (75, "unknown"), told
    assert "a certificate that this machine does not trust" in told


@pytest.fixture
def built(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An image of a few bytes in the engine."""
    for name, value in engine.environment().items():
        monkeypatch.setenv(name, value)
    name = f"localhost/driverforge/helper:{os.getpid()}"
    (tmp_path / "image").mkdir()
    (tmp_path / "image/Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /own\n")
    words = ("--quiet", "--load", "--provenance=false", "--label", MARK, "--tag", name, tmp_path / "image")
    engine.docker("buildx", "build", *words)
    yield name
    ids = engine.docker("image", "ls", "--quiet", "--filter", f"label={MARK}").stdout.split()
    engine.docker("image", "rm", "--force", *dict.fromkeys(ids), check=False)


@PLAIN
def test_an_image_is_pushed_with_the_helpers_login(built: str, keychain: Keychain) -> None:
    remote = Reference.parse(f"{keychain.registry}/site/helper:1")
    keychain.configure(credsStore="bench")
    assert presence(adapters.registry_client(), remote) == Absent()
    adapters.engine().push(built, str(remote), lambda _: None)
    assert isinstance(presence(adapters.registry_client(), remote), Present)


@PLAIN
def test_a_push_without_a_login_or_with_a_broken_helper_never_shows_a_secret(
    built: str, keychain: Keychain
) -> None:
    remote = f"{keychain.registry}/site/refused:1"
    keychain.configure()
    with pytest.raises(NotPermitted):
        adapters.engine().push(built, remote, lambda _: None)
    assert isinstance(presence(adapters.registry_client(), Reference.parse(remote)), Unknown)
    keychain.configure(credsStore="bench")
    keychain.programs.add("docker-credential-bench", f"echo 'locked, {SECRET}'; echo {SECRET} >&2; exit 1")
    with pytest.raises(CommandFailed, match="failed with exit status 1") as caught:
        adapters.engine().push(built, remote, lambda _: None)
    assert SECRET not in caught.value.render()
