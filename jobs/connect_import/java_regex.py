"""Java's regular expressions, of routers and predicates, evaluated in Python to know the tables' names.

Sources: `java.util.regex.Pattern`, `Matcher.appendReplacement`.
"""

from __future__ import annotations

import re
import warnings

from resources.errors import ConfigurationError

_REFERENCE = re.compile(r"\\(.)|\$\{(\w+)\}|\$(\d+)", re.DOTALL)


def matches(pattern: str, text: str, where: str) -> bool:
    """Whether the whole text matches.

    Raises:
        ConfigurationError: Python cannot compile the expression, or it may have another meaning.
    """
    return _compiled(pattern, where).fullmatch(text) is not None


def replaced(pattern: str, replacement: str, text: str, where: str) -> str:
    """The text after a Connect router: if the whole text matches, the first match is replaced.

    Raises:
        ConfigurationError: as `matches`; or the replacement names a group that does not exist.
    """
    compiled = _compiled(pattern, where)
    if compiled.fullmatch(text) is None:
        return text
    try:
        return compiled.sub(lambda match: _expanded(match, replacement), text, count=1)
    except IndexError:
        raise ConfigurationError(
            f"the replacement {replacement!r} names a group that {pattern!r} does not have",
            where=where,
            remedy="correct it; no record can have got through this transform",
        ) from None


def _compiled(pattern: str, where: str) -> re.Pattern[str]:
    try:
        with warnings.catch_warnings():
            # Java's intersections and unions of character sets, which Python would read as characters.
            warnings.simplefilter("error", FutureWarning)
            return re.compile(re.sub(r"(?<!\\)\(\?<(?![=!])", "(?P<", pattern))
    except (re.error, FutureWarning) as problem:
        raise ConfigurationError(
            f"the regular expression {pattern!r} is Java's, and cannot be followed here: {problem}",
            where=where,
            remedy="write it in this file so that Python and Java read it alike, for example [a-zA-Z] for \\p{Alpha}",
        ) from None


def _expanded(match: re.Match[str], replacement: str) -> str:
    def one(reference: re.Match[str]) -> str:
        escaped, named, number = reference.groups()
        if escaped is not None:
            return str(escaped)
        if named is not None:
            return match[named] or ""
        # The longest prefix of digits that is the number of a group; the rest is text.
        length = max((n for n in range(1, len(number) + 1) if int(number[:n]) <= match.re.groups), default=1)
        return (match[int(number[:length])] or "") + str(number[length:])

    return _REFERENCE.sub(one, replacement)
