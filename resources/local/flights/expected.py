"""The table that must come out, from the CSV files alone.

Shares nothing with the change stream but the columns and the files: pandas instead of a loop, whole columns instead of
rows. A cancelled flight is absent, any other has its final values.
"""

from __future__ import annotations

import zipfile

import pandas as pd
import pyarrow as pa

from resources.errors import InvariantBroken
from resources.local.flights.columns import KEY, TABLE_COLUMNS
from resources.local.flights.source import CARIBBEAN, MISSING, NEW_YORK, csv_folder

_ARROW = {"string": pa.string(), "int": pa.int32(), "timestamp": pa.timestamp("us", "UTC")}


def expected_table(month: int | None) -> pa.Table:
    """The flights of a month of 2013 (or of the year: None) that left, with the columns of `TABLE_COLUMNS`, by key.

    Raises:
        InvariantBroken: the key does not distinguish two flights (another version of the data).
    """
    folder = csv_folder()
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        rows = pd.read_csv(file, keep_default_na=False, na_values=list(MISSING))
    if month is not None:
        rows = rows[rows["month"] == month]
    rows = rows.reset_index(drop=True)
    zones = pd.read_csv(folder / "airports.csv").set_index("faa")["tzone"].to_dict() | CARIBBEAN

    day = pd.to_datetime(rows[["year", "month", "day"]])
    leaves, lands = _clock(rows["sched_dep_time"]), _clock(rows["sched_arr_time"])
    rows["scheduled"] = _utc(day + leaves, NEW_YORK)
    rows["departed"] = rows["scheduled"] + pd.to_timedelta(rows["dep_delay"], unit="min")
    landing = day + lands + pd.to_timedelta((lands < leaves).astype(int), unit="D")
    for zone, there in landing.groupby(rows["dest"].map(zones)):
        rows.loc[there.index, "arrived"] = _utc(there, zone)
    rows["arrived"] += pd.to_timedelta(rows["arr_delay"], unit="min")

    if rows.duplicated(list(KEY)).any():
        raise InvariantBroken("two flights have the same key", where="flights.csv")
    flown = rows[rows["dep_time"].notna()].sort_values(list(KEY))
    table = pa.Table.from_pandas(flown[list(TABLE_COLUMNS)], schema=_schema(), preserve_index=False)
    return table.replace_schema_metadata(None)


def _schema() -> pa.Schema:
    fields = []
    for name, text in TABLE_COLUMNS.items():
        kind, _, rest = text.partition(" ")
        fields.append(pa.field(name, _ARROW[kind], nullable=rest != "not null"))
    return pa.schema(fields)


def _clock(column: pd.Series[int]) -> pd.Series[pd.Timedelta]:
    return pd.to_timedelta(column // 100 * 60 + column % 100, unit="min")


def _utc(wall_clock: pd.Series[pd.Timestamp], zone: str) -> pd.Series[pd.Timestamp]:
    # True: the first of the two hours that have the same name in autumn.
    return wall_clock.dt.tz_localize(zone, ambiguous=True).dt.tz_convert("UTC")
