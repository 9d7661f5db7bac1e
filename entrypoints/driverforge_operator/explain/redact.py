"""Takes secrets out of objects and logs before they leave a cluster.

Rather too much than too little: a value goes by the name of its field, and by what it looks like.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from driverforge_operator.ports import Document
from driverforge_operator.state.kinds import MANAGED_BY, MANAGER

REDACTED = "REDACTED"
_NAME = re.compile(
    r"passw|passphrase|secret|token|credential|api[-_.]?key|access[-_.]?key|private[-_.]?key|dockerconfig"
    r"|auth(?!or)|(?:^|[-_.])(?:key|pwd|pat)$",
    re.IGNORECASE,
)
# fields of Kubernetes that name a secret or say how one is used, and hold none
_NAMES_ONLY = frozenset(
    {
        "secretName",
        "secretEnv",
        "secretRef",
        "secretKeyRef",
        "imagePullSecrets",
        "imagePullSecret",
        "secrets",
        "automountServiceAccountToken",
        "serviceAccountToken",
        "expirationSeconds",
        "key",
        "tolerations",
        "matchExpressions",
    }
)
_FLAG = r"--?[\w.-]*(?:passw(?:or)?d|passphrase|secret|token|credentials?|api[-_]?key|access[-_]?key)"
"""An option of a program whose value is the next word."""
_ASKS = re.compile(_FLAG, re.IGNORECASE)
_WITHIN = (
    # https://user:password@host, and a token alone
    (re.compile(r"(?<=://)[^/\s@?#]+@"), f"{REDACTED}@"),
    # --password VALUE
    (re.compile(rf"(?i)((?<!\S){_FLAG}\s+)(?:\"[^\"]*\"|'[^']*'|[^\s-]\S*)"), rf"\1{REDACTED}"),
    (re.compile(r"-----BEGIN [^-]*PRIVATE KEY-----.*?(?:-----END [^-]*-----|\Z)", re.DOTALL), REDACTED),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.?[\w-]*"), REDACTED),
    (re.compile(r"\b(?:nvapi-|gh[pousr]_|github_pat_|glpat-|xox[abp]-|AKIA|hf_)[\w-]{8,}"), REDACTED),
    (re.compile(r"(?i)(\b(?:bearer|basic)\s+)[\w.+/=~-]{8,}"), rf"\1{REDACTED}"),
    (
        re.compile(
            r"(?i)((?:passw(?:or)?d|passphrase|secret|token|credentials?|api[-_]?key|access[-_]?key)"
            r"[\"']?\s*[=:]\s*)(?:\"[^\"]*\"|'[^']*'|[^\s,;&\"']+)"
        ),
        rf"\1{REDACTED}",
    ),
    (re.compile(r"(\"(?:auth|identitytoken)\"\s*:\s*)\"[^\"]*\""), rf'\1"{REDACTED}"'),
)
# nobody writes such a word by hand; digests have a colon before them
_OPAQUE = re.compile(r"(?=\S*\d)(?=\S*[a-zA-Z])[A-Za-z0-9+/_=-]{24,}")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def redact_text(text: str) -> str:
    """A line of a log, or any other text."""
    for pattern, instead in _WITHIN:
        text = pattern.sub(instead, text)
    return text


def redact(document: Document) -> Document:
    """An object without secrets. Of a Secret and of a foreign ConfigMap only names and sizes are left."""
    found: dict[str, Any] = _walk(document)
    annotations = found.get("metadata", {}).get("annotations")
    if annotations and _LAST_APPLIED in annotations:
        # the whole object once more, as a text
        annotations[_LAST_APPLIED] = REDACTED
    if document.get("kind") == "Secret" or (document.get("kind") == "ConfigMap" and not _made(document)):
        for field in ("data", "stringData", "binaryData"):
            if field in found:
                found[field] = {key: _size(value) for key, value in (document[field] or {}).items()}
    return found


def _made(document: Document) -> bool:
    """Whether an operator made it, from what it has itself."""
    metadata = document.get("metadata", {})
    owners = {one.get("kind") for one in metadata.get("ownerReferences") or ()}
    managed = (metadata.get("labels") or {}).get(MANAGED_BY)
    return bool(owners & {"ClusterPolicy", "NVIDIADriver"}) or managed == MANAGER


def _size(value: Any) -> str:
    return f"{REDACTED} ({len(str(value))} characters)"


def _walk(value: Any, name: str = "") -> Any:
    if isinstance(value, Mapping):
        if isinstance(value.get("name"), str) and isinstance(value.get("value"), str):
            # a variable
            return {**{key: _walk(one, key) for key, one in value.items()}, "value": _variable(value)}
        loose = name in ("annotations", "data")
        return {key: _field(key, one, loose=loose) for key, one in value.items()}
    if isinstance(value, list):
        before = (None, *value)
        return [
            REDACTED if isinstance(one, str) and _asks(last) else _walk(one, name)
            for last, one in zip(before, value, strict=False)
        ]
    return redact_text(value) if isinstance(value, str) else value


def _asks(word: Any) -> bool:
    """Whether the next argument is a secret."""
    return isinstance(word, str) and _ASKS.fullmatch(word) is not None


def _field(key: str, value: Any, *, loose: bool) -> Any:
    """`loose` is where users choose the keys: there a value goes by its looks, too."""
    if isinstance(value, str) and value:
        if _NAME.search(key) and key not in _NAMES_ONLY:
            return REDACTED
        if loose and _OPAQUE.fullmatch(value):
            return REDACTED
    return _walk(value, key)


def _variable(variable: Mapping[str, Any]) -> str:
    name, value = variable["name"], variable["value"]
    if value and (_NAME.search(name) or _OPAQUE.fullmatch(value)):
        return REDACTED
    return redact_text(value)
