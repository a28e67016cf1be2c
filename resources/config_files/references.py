"""Values of a file that stand elsewhere: ``${env:NAME}`` and ``${file:/path}``, as secrets are given."""

from __future__ import annotations

import os
import re
from pathlib import Path as FilePath
from typing import Any

from resources.config_files.mistakes import Mistake, Path

_REFERENCE = re.compile(r"\$\{(env|file):([^}]+)\}")


def resolve(node: Any, at: Path) -> tuple[Any, list[Mistake]]:
    """What is written with its references replaced, and those that lead nowhere."""
    found: list[Mistake] = []
    if isinstance(node, dict):
        parts = {key: resolve(value, (*at, key)) for key, value in node.items()}
        return {key: value for key, (value, _) in parts.items()}, [m for _, ms in parts.values() for m in ms]
    if isinstance(node, list):
        items = [resolve(value, (*at, number)) for number, value in enumerate(node)]
        return [value for value, _ in items], [m for _, ms in items for m in ms]
    if isinstance(node, str):
        return _REFERENCE.sub(lambda match: _look_up(match, at, found), node), found
    return node, found


def _look_up(reference: re.Match[str], at: Path, found: list[Mistake]) -> str:
    how, name = reference.groups()
    try:
        found_text = os.environ[name] if how == "env" else FilePath(name).read_text(encoding="utf-8")
        # Secrets that were made with `echo` end in a newline, with which no header can be sent.
        return found_text.strip()
    except KeyError:
        found.append(Mistake(at, f"environment variable {name} is not set", f"export {name}, then try again"))
    except UnicodeDecodeError:
        found.append(Mistake(at, f"cannot read {name}: it is not UTF-8", "save it as UTF-8"))
    except OSError as problem:
        what = f"cannot read {name}: {problem.strerror}"
        found.append(Mistake(at, what, "correct the path or its permissions"))
    except ValueError:
        found.append(Mistake(at, f"cannot read {name!r}: it has a character that no name has", "take it out"))
    return ""
