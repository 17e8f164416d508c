"""Names and URIs in messages: what is shown of them, which is never a secret."""

from __future__ import annotations

import re
from urllib.parse import unquote_plus

from shardline.errors import BadNameError
from shardline.hints import Hint

_SHOWN_CHARACTERS = 120
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:", re.ASCII)
_SECRETIVE = re.compile(
    r"[@?#&;=\uff20\uff1f\uff03\ufe6b]|%(?:25)*(?:40|3[bdf]|2[36])", re.IGNORECASE
)
"""What stands before or around a secret in a URI, also written in percent codes or full width."""

_USERINFO = re.compile(
    r"(?<![a-z0-9+.-])[a-z][a-z0-9+.-]*:/{0,3}(?:[^/?#\s]*@|[^/?#\s:]*:[^?#\s]*@)", re.IGNORECASE
)
_SIGNING = re.compile(
    r"(?:(?<![a-z0-9])(?:"
    r"x-(?:amz|goog|ms)-[a-z-]*"
    r"|sig|signature|sas|shared_?access_?signature|googleaccessid|authorization"
    r"|(?<=[?&;])key)"
    # Start at a word boundary: a start at each character takes quadratic time.
    r"|(?<![a-z0-9_-])[a-z0-9_-]*(?:"
    r"token|password|passwd|pwd|secret|credentials?"
    r"|(?:secret|access|account|private|api|signing|encryption)[_-]?key(?:[_-]?id)?)"
    r")=",
    re.IGNORECASE,
)
_DECODINGS = 4


def shown(text: str) -> str:
    """A refused name or URI in quotes for a message, without anything that may be a secret."""
    scheme = _SCHEME.match(text)
    rest = text[scheme.end() :] if scheme else text
    if _SECRETIVE.search(text) or ":" in rest:
        return f"'{scheme[0]}…'" if scheme and scheme.end() <= 20 else "'…'"
    return ascii(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")


def has_credentials(text: str) -> bool:
    """Return True if a path or URI contains a user name, password, key or signature."""
    for _ in range(_DECODINGS):
        if _USERINFO.search(text) or _SIGNING.search(text):
            return True
        text = unquote_plus(text)
    return False


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
