"""`mirror copy` where the vendor's registry is reached through a proxy alone, which may want a login."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from driverforge_oci.auth import Login
from driverforge_oci.reference import Reference
from support.fakes import tunnel
from support.machines import registry
from support.process import missing
from support.samples.mirrorsite import Site, lock_of
from support.samples.vendorregistry import put_image

LOGIN = Login(user="site", password="p@ss-word of a bench")
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The vendor has TLS and another name than 127.0.0.1, which no proxy is asked for: the mirror has it."""
    if gone := missing("docker-registry", "setpriv", "openssl"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    with registry.serve(tmp_path / "vendor") as filled:
        name = f"{filled.address}/nvidia/driver:1"
        put_image(Reference.parse(name))
        lock = json.dumps(lock_of([name]))
    identity = registry.identity(tmp_path / "tls")
    monkeypatch.setenv("SSL_CERT_FILE", str(identity.file))
    with (
        registry.serve(tmp_path / "vendor", identity=identity) as vendor,
        registry.serve(tmp_path / "mirror") as mirror,
    ):
        (tmp_path / "mirror.lock.json").write_text(lock.replace(filled.address, vendor.address))
        yield Site(home=tmp_path, vendor=vendor.address, mirror=mirror.address)


def proxy_address(place: str, scheme: str = "http") -> str:
    return f"{scheme}://{LOGIN.user}:{urllib.parse.quote(LOGIN.password)}@{place}"


def without_login(text: str) -> bool:
    """Whether nothing of the login is in a text, however it is written."""
    forms = (
        LOGIN.password,
        urllib.parse.quote(LOGIN.password),
        LOGIN.basic.removeprefix("Basic "),
        "ss-word",
    )
    return not any(form in text for form in forms)


def test_a_copy_asks_the_proxy_for_the_vendor_alone(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with tunnel.serve(LOGIN) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy_address(proxy.address))
        monkeypatch.setenv("HTTP_PROXY", proxy_address(proxy.address))
        assert site.copy("--to", f"{site.mirror}/kse") == 0
    assert set(proxy.asked) == {site.vendor}
    assert site.held("kse") == 0
    assert without_login("".join(capsys.readouterr()))


def test_what_no_proxy_names_is_asked_itself(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with tunnel.serve() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.address}")
        monkeypatch.setenv("NO_PROXY", f"registry.site,{registry.TLS_NAME}")
        assert site.copy("--to", f"{site.mirror}/kse") == 0
    assert not proxy.asked
    assert site.held("kse") == 0


def test_a_proxy_that_does_not_take_the_login_is_named_without_it(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with tunnel.serve(Login(user=LOGIN.user, password="another")) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy_address(proxy.address))
        assert site.copy("--to", f"{site.mirror}/kse", "--json") == 1
    said = capsys.readouterr()
    (image,) = json.loads(said.out)["images"]
    assert image["error"]["brief"] == f"the proxy does not let us through to {site.vendor}"
    assert "407" in "".join(image["error"]["details"])
    assert without_login(said.out + said.err)


@pytest.mark.parametrize(("scheme", "status"), [("http", 75), ("nonsense", 1)])
@pytest.mark.usefixtures("no_pauses")
def test_a_proxy_that_does_not_answer_is_told_without_its_login(
    scheme: str,
    status: int,
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy_address("127.0.0.1:9", scheme))
    assert site.copy("--to", f"{site.mirror}/kse") == status
    said = capsys.readouterr()
    assert "proxy" in said.err
    assert without_login(said.out + said.err)
