import stat
from pathlib import Path

import pytest

from resources.errors import ConfigurationError
from resources.local.java import find_java, parse_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ('java version "1.8.0_292"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "11.0.2" 2019-01-15', 11),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_the_feature_release_is_read_from_what_java_prints(text: str, version: int | None) -> None:
    assert parse_version(text) == version


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any Java: what a test puts into the folder is all that PATH offers."""
    for name in ("BATCHMERGE_JAVA", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("BATCHMERGE_CACHE", str(tmp_path / "cache"))
    return tmp_path


def _java(home: Path, version: str) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True, exist_ok=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    executable.chmod(executable.stat().st_mode | stat.S_IEXEC)
    return executable


def test_java_home_comes_before_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _java(bare, "17.0.1")
    at_home = _java(bare / "jdk", "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(bare / "jdk"))
    assert find_java(print).executable == at_home


def test_a_java_that_spark_does_not_run_on_is_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = _java(bare, "17.0.1")
    _java(bare / "jdk", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(bare / "jdk"))
    assert find_java(print).executable == on_path


def test_a_named_java_of_another_version_is_an_error(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHMERGE_JAVA", str(_java(bare / "jdk", "24")))
    with pytest.raises(ConfigurationError, match="is no Java 17 or 21"):
        find_java(print)


def test_a_folder_may_name_a_java(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = _java(bare / "jdk", "17.0.1")
    monkeypatch.setenv("BATCHMERGE_JAVA", str(bare / "jdk"))
    found = find_java(print)
    assert found.executable == executable
