"""What a text must hold to hold a secret: the rules of masking, and marks that are looked for before they are tried.

Nearly all texts hold none, so what counts is how fast that is seen. What many marks share, or one character of them, is
looked for first; and what is assigned to a name needs a sign by which it is assigned.
"""

import functools
import re

_ASSIGNED = r"api[_-]?key|access[_-]?token|auth[_-]?token|client[_-]?secret|secret[_-]?key|passw(?:or)?d|pwd"
RULES: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = tuple(
    (marks, re.compile(pattern))
    for marks, pattern in (
        (
            ("-----begin ",),
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
        ),
        (
            ("sk-", "sk_", "rk-", "rk_", "pk-", "pk_"),
            r"\b(?:sk|rk|pk)[-_](?:[A-Za-z0-9]+[-_])*[A-Za-z0-9_-]{16,}",
        ),
        (("akia", "asia"), r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
        (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"\bgh[pousr]_[A-Za-z0-9]{30,}"),
        (("github_pat_",), r"\bgithub_pat_[A-Za-z0-9_]{30,}"),
        (("glpat-",), r"\bglpat-[A-Za-z0-9_-]{18,}"),
        (("xox",), r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
        (("aiza",), r"\bAIza[0-9A-Za-z_-]{30,}"),
        (("ya29.",), r"\bya29\.[0-9A-Za-z_-]{20,}"),
        (("eyj",), r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
        (("bearer", "basic"), r"\b(?i:bearer|basic)[ ]+[A-Za-z0-9._~+/=-]{16,}"),
        (("://",), r"(?<=://)[^\s/@:]{0,256}:[^\s/@]{1,256}(?=@)"),
        (
            (
                *("apikey", "api_key", "api-key", "accesstoken", "access_token", "access-token"),
                *("authtoken", "auth_token", "auth-token", "clientsecret", "client_secret", "client-secret"),
                *("secretkey", "secret_key", "secret-key", "passwd", "password", "pwd"),
            ),
            rf"(?i:\b(?:{_ASSIGNED})\b[\"']?[ ]*[:=\uff1a\uff1d][ ]*[\"']?)(?P<assigned>[^\s\"',;&}}]{{6,}})",
        ),
    )
)
"""Marks, in lower case, of which one must occur in a text for the expression to be tried: looking for them is fast."""

_ASSIGNING = (":", "=", "\uff1a", "\uff1d")
_NAMES = (
    *("authorization", "cookie", "refreshtoken", "refresh_token", "refresh-token"),
    *("privatekey", "private_key", "private-key"),
)
"""Marks of keys of objects whose values are secrets, beside those of assignments."""

_HINTS = ("token", "secret", "pass", "key", "_", "-", "z", "j", "x", "9", ":")
_FINER_HINTS = ("k_", "k-", "gh")
"""Parts of marks: looking for what many marks share, or for one character, is far cheaper than for each of them."""

KEY_CHARACTERS = 64
"""Longer keys are not remembered."""

_Hinted = tuple[tuple[str, tuple[str, ...]], ...]


def _hinted(marks: tuple[str, ...], hints: tuple[str, ...]) -> _Hinted:
    found: dict[str, tuple[str, ...]] = {}
    for mark in marks:
        hint = next((hint for hint in hints if hint in mark), mark)
        found[hint] = (*found.get(hint, ()), mark)
    return tuple(found.items())


def _twice_hinted(marks: tuple[str, ...]) -> tuple[tuple[str, _Hinted], ...]:
    return tuple((hint, _hinted(some, _FINER_HINTS)) for hint, some in _hinted(marks, _HINTS))


_ALONE = _twice_hinted(tuple(mark for marks, _ in RULES[:-1] for mark in marks))
_ASSIGNED_TO = _twice_hinted((*RULES[-1][0], *_NAMES))


def lowered_text(text: str) -> str:
    """`text` in lower case, with every letter that the expressions take for one of ASCII's as that one."""
    lowered = text.lower()
    if not lowered.isascii():
        for letter, plain in (("\u017f", "s"), ("\u0131", "i"), ("\u0307", "")):  # long s, dotless i, the dot of I
            lowered = lowered.replace(letter, plain)
    return lowered


def is_marked(lowered: str) -> bool:
    """Whether a text, given by `lowered_text`, has the mark of a rule, or, before a colon, of a key that names one."""
    if _holds_one(lowered, _ALONE):
        return True
    return any(sign in lowered for sign in _ASSIGNING) and _holds_one(lowered, _ASSIGNED_TO)


def _holds_one(lowered: str, hinted: tuple[tuple[str, _Hinted], ...]) -> bool:
    for hint, some in hinted:
        if hint in lowered:
            for finer, marks in some:
                if finer in lowered:
                    for mark in marks:
                        if mark in lowered:
                            return True
    return False


@functools.lru_cache(1024)
def is_harmless(key: str) -> bool:
    """Whether a key of an object neither is nor names a secret by the rules here: letters of ASCII without a mark.

    Remembered: ask it of no key of more than `KEY_CHARACTERS`.
    """
    return key.isascii() and key.replace("_", "").isalpha() and not is_marked(f"{key}:".lower())
