"""Labels of BigQuery's tables and jobs."""

from __future__ import annotations

import hashlib
import re

_LONGEST = 63


def label(text: str) -> str:
    """Text as a label's value: lower case letters, digits, ``_`` and ``-``, at most 63. A text with capitals,
    or a longer one, ends in a hash, so that two texts stay different."""
    found = re.sub(r"[^a-z0-9_-]", "_", text.lower())
    if text == text.lower() and len(text) <= _LONGEST:
        return found
    mark = hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"{found[: _LONGEST - 13]}_{mark}"
