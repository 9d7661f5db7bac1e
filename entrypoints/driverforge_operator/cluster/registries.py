"""Registries of images, with the logins of our namespace's pull secrets."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any

from driverforge_core.errors import DriverforgeError, Unsupported
from driverforge_oci.auth import Login, find_login
from driverforge_oci.client import RegistryClient
from driverforge_oci.dockerconfig import parse_configuration
from driverforge_oci.reference import Reference
from driverforge_oci.session import NotFound, Session
from driverforge_oci.transport import Transport
from driverforge_operator.cluster.web import RegistryTransport
from driverforge_operator.ports import Answer, Kind, Question, Reader, kind_at

_SECRET: Kind[dict[str, Any]] = kind_at("v1", "Secret", "secrets", dict)
_KEYS = (".dockerconfigjson", ".dockercfg")


class ImageRegistries:
    """Satisfies `ports.Registries`."""

    def __init__(self, reader: Reader, transport: Transport) -> None:
        self._reader = reader
        self._transport = transport

    def ask(self, question: Question) -> Answer:
        try:
            logins = self._logins(question.secrets) if question.secrets else {}
            session = Session(self._transport, lambda host, path: find_login(logins, host, path))
            return _answer(RegistryClient(session), question)
        except DriverforgeError as error:
            return Answer(found="unknown", reason=error.brief)

    def _logins(self, names: tuple[str, ...]) -> dict[str, Login]:
        """Logins of pull secrets; the first that has one for a registry counts."""
        found: dict[str, Login] = {}
        for name, text in self._configurations(names):
            for place, login in parse_configuration(text, where=f"Secret {name}").logins.items():
                found.setdefault(place, login)
        return found

    def _configurations(self, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        pages = self._reader.pages(_SECRET, labels="owner!=helm")
        secrets = {one["metadata"]["name"]: one for page in pages for one in page.items}
        for name in names:
            data = secrets.get(name, {}).get("data") or {}
            for key in (one for one in _KEYS if one in data):
                text = _decoded(data[key])
                # the older kind is the newer one's inner part
                yield name, text if key == ".dockerconfigjson" else f'{{"auths": {text}}}'


def _answer(client: RegistryClient, question: Question) -> Answer:
    """Whether there is such an image, and for this architecture."""
    reference = Reference.parse(question.image)
    platform = f"linux/{question.arch}"
    try:
        if not question.arch:
            client.head_manifest(reference)
            return Answer(found="yes")
        image = client.resolve(reference, platform)
        made_for = client.image_configuration(reference, image).get("architecture")
    except NotFound:
        return Answer(found="no")
    except Unsupported as error:
        return Answer(found="no", reason=error.brief)
    if made_for == question.arch:
        return Answer(found="yes")
    return Answer(found="no", reason=f"it is for {made_for}")


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


def registries(reader: Reader, environ: Mapping[str, str]) -> ImageRegistries:
    """Registries by proxies and authorities of the environment. An answer that fails is asked for later."""
    return ImageRegistries(reader, RegistryTransport(environ))
