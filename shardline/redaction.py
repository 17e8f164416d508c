"""Detection and redaction of credentials in paths, URIs and messages."""

from __future__ import annotations

import re
from urllib.parse import unquote_plus

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
_PARTITION = re.compile(
    r"(?:(?<=/)|^)[A-Za-z0-9_.-]+=[^/?#&;=@:\s]*(?=/)"
    r"|(?<=/)[A-Za-z0-9_.-]+=[^/?#&;=@:\s]*(?=[\s:,)'\"]|$)"
)
"""Hive partition, a folder with a column and its value: `account_key=7/`."""

_WEB = re.compile(r"https?:/", re.IGNORECASE)
_BARE_USERINFO = re.compile(r"(?<![\w/:])[\w+-]{2,}:[^\s/:@]{2,}@(?=\w)")
_SCHEME = re.compile(r"['\"(`]*[a-z][a-z0-9+.-]{0,19}:/{0,3}", re.IGNORECASE)
_PUNCTUATION = ":,.;)'\"`"
_MARKS = frozenset("@=%")
"""Characters of which credentials contain at least one."""
_DECODINGS = 4


def has_credentials(text: str) -> bool:
    """Return True if a path or URI contains a user name, password, key or signature."""
    if _MARKS.isdisjoint(text):
        return False  # Most of the thousands of names in an entry have no mark.
    for _ in range(_DECODINGS):
        signed = text if _WEB.search(text) else _PARTITION.sub("", text)
        if _USERINFO.search(text) or _SIGNING.search(signed):
            return True
        text = unquote_plus(text)
    return False


def redact(text: str) -> str:
    """Replace words with credentials by "…"."""
    if _MARKS.isdisjoint(text):
        return text  # Errors of single records can be numerous.
    if not has_credentials(text) and not _BARE_USERINFO.search(text):
        return text
    return re.sub(r"\S+", lambda word: _redact_word(word[0]), text)


def _redact_word(text: str) -> str:
    word = text.rstrip(_PUNCTUATION)
    return _redact_uri(word) + text[len(word) :]


def _redact_uri(word: str) -> str:
    if _BARE_USERINFO.search(word) and not _USERINFO.search(word):
        word = _BARE_USERINFO.sub("…@", word)
    if not has_credentials(word):
        return word
    before = word.partition("?")[0]
    if before != word and not has_credentials(before):
        return f"{before}?…"
    scheme = _SCHEME.match(word)
    return f"{scheme[0]}…" if scheme else "…"
