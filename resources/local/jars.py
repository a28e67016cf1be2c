"""Java libraries of the services, downloaded once for all data folders by the Ivy that PySpark carries.

Ivy asks Maven Central. A company's mirror is named in an Ivy settings file, given by ``BATCHMERGE_IVY_SETTINGS``.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from resources.errors import ConfigurationError, Unavailable
from resources.local.java import Java
from resources.local.locks import exclusive
from resources.local.service import Say, cache_folder


@dataclass(frozen=True)
class Bundle:
    """Libraries that are used together, with their dependencies.

    Attributes:
        coordinates: (organisation, module, revision) each.
        without: (organisation, module), as regular expressions, of dependencies that are there already.
    """

    name: str
    coordinates: tuple[tuple[str, str, str], ...]
    without: tuple[tuple[str, str], ...] = ()

    def ivy_file(self) -> str:
        """The bundle as an Ivy module; `default->default` leaves out sources, documentation and tests."""
        leaves = "".join(
            f"<exclude org={quoteattr(org)} module={quoteattr(module)} matcher='regexp'/>"
            for org, module in self.without
        )
        return (
            "<ivy-module version='2.0'><info organisation='batchmerge' module='bundle'/>"
            "<configurations><conf name='default'/></configurations>"
            f"<dependencies>{self.dependencies()}{leaves}</dependencies></ivy-module>"
        )

    def dependencies(self) -> str:
        return "".join(
            f"<dependency org={quoteattr(org)} name={quoteattr(name)} rev={quoteattr(rev)} conf='default->default'/>"
            for org, name, rev in self.coordinates
        )

    def folder(self) -> Path:
        """Where its jars are: another list of libraries is another folder."""
        digest = hashlib.sha256(self.ivy_file().encode()).hexdigest()[:12]
        return cache_folder() / "jars" / f"{self.name}-{digest}"


def pyspark_folder() -> Path:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise ConfigurationError("PySpark is not installed", where="Python", remedy="run `make setup`")
    return Path(found.origin).parent


def classpath(*folders: Path) -> str:
    return os.pathsep.join(f"{folder}/*" for folder in folders)


def fetch(bundle: Bundle, java: Java, say: Say) -> Path:
    """The folder with the bundle's jars; downloads them first where it is missing.

    Raises:
        Unavailable: a download failed; nothing half done is left.
    """
    folder = bundle.folder()
    if folder.is_dir():
        return folder
    # Ivy's own cache takes one writer at a time.
    with exclusive(cache_folder() / "jars.lock", say):
        if not folder.is_dir():
            _download(bundle, java, say, folder)
    return folder


def _download(bundle: Bundle, java: Java, say: Say, folder: Path) -> None:
    say(f"{bundle.name}: downloading its libraries (once)")
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    ivy_file = partial / "ivy.xml"
    ivy_file.write_text(bundle.ivy_file())
    ivy = next((pyspark_folder() / "jars").glob("ivy-*.jar"))
    settings = os.environ.get("BATCHMERGE_IVY_SETTINGS")
    argv = [str(java.executable), *java.options, "-jar", str(ivy), *(["-settings", settings] if settings else [])]
    argv += ["-cache", str(cache_folder() / "ivy"), "-ivy", str(ivy_file), "-confs", "default"]
    argv += ["-retrieve", f"{partial}/jars/[artifact]-[revision](-[classifier]).[ext]"]
    problems = _run_ivy(argv, bundle, say)
    if problems:
        shutil.rmtree(partial, ignore_errors=True)
        raise Unavailable(
            f"the libraries could not be downloaded: {problems}",
            where=bundle.name,
            remedy="check the network and run it again; name a mirror's settings file in BATCHMERGE_IVY_SETTINGS",
        )
    (partial / "jars").replace(folder)
    shutil.rmtree(partial, ignore_errors=True)
    say(f"{bundle.name}: {len(list(folder.iterdir()))} libraries are there")


def _run_ivy(argv: list[str], bundle: Bundle, say: Say) -> str:
    """Runs Ivy, reports each download; gives what went wrong, or an empty string."""
    said: list[str] = []
    count = 0
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        for line in running.stdout or ():
            said.append(line.strip())
            if line.startswith("downloading "):
                count += 1
                say(f"{bundle.name}: {count:>2} {line.split()[1].rsplit('/', 1)[-1]}")
    if running.returncode == 0:
        return ""
    errors = [line for line in said if "error" in line.lower() or "not found" in line] or said[-3:]
    return "; ".join(errors[:3])
