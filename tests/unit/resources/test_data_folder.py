"""Where commands keep and look for their data, wherever they are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from resources.connections import data_folder

_PROJECT = "[tool.dg.project]\nroot_module = 'shop'\n"


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a project, which commands are called in."""
    folder = tmp_path / "project" / "shop" / "defs"
    folder.mkdir(parents=True)
    (tmp_path / "project" / "pyproject.toml").write_text(_PROJECT)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("BATCHMERGE_HOME", raising=False)
    return folder


def test_a_project_has_one_data_folder(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`batchmerge pause` would else pause nothing in the folders of the project, and say that it has."""
    project = inside.parents[1]
    assert data_folder() == project / ".batchmerge"
    monkeypatch.chdir(project)
    assert data_folder() == project / ".batchmerge"


def test_one_that_is_here_is_used(inside: Path) -> None:
    (inside / ".batchmerge").mkdir()
    assert data_folder() == inside / ".batchmerge"


def test_outside_of_projects_it_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BATCHMERGE_HOME", raising=False)
    assert data_folder() == tmp_path / ".batchmerge"


def test_an_empty_variable_names_no_folder(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As env files have it."""
    monkeypatch.setenv("BATCHMERGE_HOME", "")
    assert data_folder() == inside.parents[1] / ".batchmerge"
    monkeypatch.setenv("BATCHMERGE_HOME", "data")
    assert data_folder() == inside / "data"
