from pathlib import Path
from xml.etree import ElementTree

import pytest

from resources.errors import Unavailable
from resources.local.jars import Bundle, fetch
from resources.local.java import find_java
from tests.kit.rest_catalog import Classified

BUNDLE = Bundle("b", (("org.one", "first", "1.0"), ("org.two", "second", "2.0")), without=((r"org\.scala.*", ".*"),))


def test_the_ivy_file_names_what_is_wanted_and_what_is_left_out() -> None:
    root = ElementTree.fromstring(BUNDLE.ivy_file())
    wanted = [(one.get("org"), one.get("name"), one.get("rev")) for one in root.iter("dependency")]
    left_out = [(one.get("org"), one.get("module"), one.get("matcher")) for one in root.iter("exclude")]
    assert wanted == list(BUNDLE.coordinates)
    assert left_out == [(r"org\.scala.*", ".*", "regexp")]


def test_a_library_by_its_classifier() -> None:
    root = ElementTree.fromstring(Classified("b", (("org.one", "first", "1.0"),), classifier="tests").ivy_file())
    (dependency,), (artifact,) = root.iter("dependency"), root.iter("artifact")
    assert (dependency.get("name"), dependency.get("transitive"), artifact.get("name")) == ("first", "false", "first")
    assert artifact.get("{http://ant.apache.org/ivy/maven}classifier") == "tests"


def test_another_version_is_another_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BATCHMERGE_CACHE", str(tmp_path))
    newer = Bundle("b", (("org.one", "first", "1.1"),))
    assert BUNDLE.folder() != newer.folder()
    assert BUNDLE.folder().parent == newer.folder().parent == tmp_path / "jars"


def test_a_failed_download_leaves_nothing_and_says_what_was_not_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = tmp_path / "settings.xml"
    settings.write_text(
        "<ivysettings><settings defaultResolver='here'/><resolvers><filesystem name='here'>"
        f"<artifact pattern='{tmp_path}/repository/[module].[ext]'/></filesystem></resolvers></ivysettings>"
    )
    monkeypatch.setenv("BATCHMERGE_IVY_SETTINGS", str(settings))
    java = find_java(print)
    monkeypatch.setenv("BATCHMERGE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(Unavailable, match="first"):
        fetch(BUNDLE, java, print)
    assert not list((tmp_path / "cache" / "jars").iterdir())
