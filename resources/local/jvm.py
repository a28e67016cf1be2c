"""How a service's Java process is started: heap, class path, and a log that a person can read."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from resources.local.java import Java

_LOGGING = """\
rootLogger.level=warn
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{yyyy-MM-dd HH:mm:ss} %p %m (%c{1})%n%ex{20}
"""


def jvm(java: Java, folder: Path, heap: str, classpath: str, options: Sequence[str] = ()) -> list[str]:
    """Argv up to the main class, with what ``BATCHMERGE_JAVA_OPTIONS`` adds for every Java process.

    A process that runs out of memory ends, so that `up` can replace it.
    """
    logging_file = folder / "log4j2.properties"
    logging_file.write_text(_LOGGING)
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return [
        str(java.executable),
        *java.options,
        f"-Xmx{heap}",
        "-XX:+ExitOnOutOfMemoryError",
        f"-Djava.io.tmpdir={temporary}",
        f"-Dlog4j2.configurationFile={logging_file}",
        *options,
        *shlex.split(os.environ.get("BATCHMERGE_JAVA_OPTIONS", "")),
        "-cp",
        classpath,
    ]
