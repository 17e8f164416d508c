"""Names and URIs in messages: what is shown of them, which is never a secret."""

from __future__ import annotations

import re

from shardline.errors import BadNameError
from shardline.hints import Hint
from shardline.redaction import has_credentials

_SHOWN_CHARACTERS = 120
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:", re.ASCII)
_SECRETIVE = re.compile(
    r"[@?#&;=\uff20\uff1f\uff03\ufe6b]|%(?:25)*(?:40|3[bdf]|2[36])", re.IGNORECASE
)
"""What stands before or around a secret in a URI, also written in percent codes or full width."""


def shown(text: str) -> str:
    """A refused name or URI in quotes for a message, without anything that may be a secret."""
    scheme = _SCHEME.match(text)
    rest = text[scheme.end() :] if scheme else text
    if _SECRETIVE.search(text) or ":" in rest:
        return f"'{scheme[0]}…'" if scheme and scheme.end() <= 20 else "'…'"
    return ascii(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")


def refuse_credentials(text: str, where: str) -> str:
    """Give back a path or URI that is to be written down in `where` if it carries no secret."""
    if has_credentials(text):
        raise BadNameError(
            f"{where} would contain credentials",
            code="embedded-credentials",
            hint=Hint.of(
                "leave out user name, password, key and signature, and set credentials in the "
                "environment"
            ),
        )
    return text
