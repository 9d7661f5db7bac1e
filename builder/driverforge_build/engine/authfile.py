"""Logins as podman, buildah and skopeo read them: containers-auth.json(5)."""

from __future__ import annotations

import base64
import json

from driverforge_oci.auth import Login


def auth_file(host: str, login: Login | None) -> str:
    """The text of a file with this login for a registry; without one, of a file that has none."""
    if login is None:
        return json.dumps({"auths": {}})
    text = base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
    entry = {"identitytoken": login.identity_token} if login.identity_token else {"auth": text}
    return json.dumps({"auths": {host: entry}})
