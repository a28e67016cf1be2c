"""What is seen while a command works, on a terminal and in a file."""

from __future__ import annotations

import io
import logging

import pytest
from rich.console import Console

from orchestration.cli.progress import shown_on

LOG = logging.getLogger("batchmerge")


def _land(landed: int, waiting: int) -> None:
    LOG.info("%d offsets wait", waiting, extra={"landed": landed, "waiting": waiting})


def test_the_bar_grows_with_every_batch_and_with_what_comes_meanwhile() -> None:
    text = io.StringIO()
    # Rich draws nothing where TERM is `dumb`.
    console = Console(file=text, force_terminal=True, width=100, _environ={"TERM": "xterm"})
    with shown_on(console, bar=True) as progress:
        (task,) = progress.tasks
        assert (task.completed, task.total) == (0, None)
        _land(60, 40)
        assert (task.completed, task.total) == (60, 100)
        _land(60, 10)
        assert (task.completed, task.total) == (120, 130)
        LOG.info("merged [1] batch")
        assert (task.completed, task.total) == (120, 130)
        progress.refresh()
    assert "merged [1] batch" in text.getvalue()
    assert "120/130" in text.getvalue()


def test_a_file_gets_lines_and_no_bar() -> None:
    text = io.StringIO()
    with shown_on(Console(file=text, width=100), bar=False):
        _land(60, 40)
        LOG.info("%s", "long " * 40)
    lines = text.getvalue().splitlines()
    assert [line.split("  ", 1)[1].strip() for line in lines] == ["40 offsets wait", ("long " * 40).strip()]
    assert not LOG.handlers or all(not isinstance(h, logging.StreamHandler) for h in LOG.handlers)


def test_the_level_of_the_log_is_what_it_was_before(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, LOG.name):
        with shown_on(Console(file=io.StringIO()), bar=False):
            assert LOG.level == logging.INFO
        assert LOG.level == logging.ERROR
