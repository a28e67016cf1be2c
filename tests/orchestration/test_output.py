"""What commands print for people: whole, whatever it is and wherever it goes."""

from __future__ import annotations

import pytest

from orchestration.cli import output


def test_nothing_of_a_table_is_cut_off(capsys: pytest.CaptureFixture[str]) -> None:
    """An offset or a name without its end is another one."""
    names = [f"iceberg shop.table_number_{n}" for n in range(12)]
    output.table(["topic-partition", *names], [["orders-0", *range(1234567890, 1234567902)]])
    shown = capsys.readouterr().out
    assert "…" not in shown
    columns = [[part.strip() for part in line.strip("┃│").replace("┃", "│").split("│")] for line in shown.splitlines()]
    texts = ["".join(parts) for parts in zip(*(c for c in columns if len(c) == 13), strict=True)]
    assert [text.replace(" ", "") for text in texts[1:]] == [
        f"icebergshop.table_number_{n}{offset:,}" for n, offset in enumerate(range(1234567890, 1234567902))
    ]


@pytest.mark.parametrize("value", ["[true]", "x[abc]y", "[/foo]", "redis:key:42", ":warning:", "\\[b]"])
def test_a_value_is_printed_as_it_is(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Not taken for markup, as `dead-letters list --values` would show it."""
    output.table(["key"], [[value]], title=value)
    assert capsys.readouterr().out.count(value) == 2
