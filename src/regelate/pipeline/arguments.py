"""Flags that every job has: which table, which catalog, how Spark is started, where the result goes."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from regelate.core.catalogs import KIND_IN_SPARK, CatalogKind
from regelate.core.jobs.exit_codes import EXIT_CODES, USAGE
from regelate.errors import InvalidRequest
from regelate.pipeline.names import TableName
from regelate.pipeline.session import Lake, Launch, Target, embedded_lake


class Parser(argparse.ArgumentParser):
    """Says what was wrong and what to do, in two lines."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("epilog", EXIT_CODES)
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **settings)

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"error: {message.removeprefix('argument ')}\nhelp: {self.prog} --help\n")
        sys.exit(USAGE)


def reader(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a type for argparse whose refusal says the rule."""

    def convert(text: str) -> Any:
        try:
            return read(text)
        except (ValueError, InvalidRequest) as fault:
            message = fault.message if isinstance(fault, InvalidRequest) else str(fault)
            raise argparse.ArgumentTypeError(message) from None

    return convert


def pair(text: str) -> tuple[str, str]:
    """Read `key=value`; the value may hold more of the signs."""
    key, sign, value = text.partition("=")
    if not key.strip() or not sign:
        raise ValueError(f"{text!r} is not key=value")
    return key.strip(), value


def whole(low: int) -> Callable[[str], int]:
    """Return a reader of whole numbers from `low` on."""

    def read(text: str) -> int:
        digits = text.strip().removeprefix("+").removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 16) or int(text) < low:
            raise ValueError(f"{text!r} is not a whole number from {low} on")
        return int(text)

    return read


def number(text: str) -> float:
    """Read a number above zero."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 < found < math.inf:
        raise ValueError(f"{text!r} is not a number above 0")
    return found


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add `--table` and the flags of Spark, the catalog and the result."""
    parser.add_argument("--table", required=True, type=reader(TableName.parse), metavar="CATALOG.NS.TABLE")
    parser.add_argument("--result", metavar="FILE", help="write the result as JSON to a path or a URI (s3://...)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON; progress goes to standard error")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    lake = parser.add_argument_group("catalog (default: the embedded lake in REGELATE_HOME, else ./lake)")
    lake.add_argument(
        "--catalog-type",
        choices=list(KIND_IN_SPARK),
        help="configured: the catalog that Spark's own configuration names",
    )
    lake.add_argument("--uri", help="address of the catalog; its file for sqlite")
    lake.add_argument("--warehouse", help="where the tables lie, as a URI")
    lake.add_argument("--ref", help="branch of a Nessie catalog")
    lake.add_argument(
        "--catalog-property",
        action="append",
        default=[],
        type=reader(pair),
        metavar="K=V",
        help="a property, by Iceberg's name",
    )
    spark = parser.add_argument_group("Spark")
    spark.add_argument("--target", choices=[t.value for t in Target], help="default: cluster under spark-submit")
    spark.add_argument("--master", default="local[2]", help="for --target local; default: local[2]")
    spark.add_argument("--driver-memory", default="2g", metavar="SIZE", help="for --target local; default: 2g")
    spark.add_argument("--iceberg-version", default=Launch().iceberg_version, metavar="VERSION")
    spark.add_argument(
        "--conf", action="append", default=[], type=reader(pair), metavar="K=V", help="a key of Spark's configuration"
    )


def add_proof(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the validation."""
    group = parser.add_argument_group(
        "validation (a check that fails fails the job, and names the snapshot to go back to)"
    )
    group.add_argument("--validate", action="store_true", help="compare rows and files before and after")
    group.add_argument("--query", metavar="SELECT", help="compare what this query answers, and how long it takes")
    group.add_argument(
        "--query-runs",
        type=reader(whole(2)),
        default=5,
        metavar="N",
        help="how often the query runs, after a warm-up; default: 5",
    )
    group.add_argument(
        "--rollback-on-failure",
        action="store_true",
        help="roll the table back if a check fails, unless others have committed",
    )


def lake_of(args: argparse.Namespace, *, configured: bool) -> Lake:
    """Return the catalog that the flags name. `configured`: Spark's configuration has one of that name already."""
    name = args.table.catalog
    named = args.catalog_type or args.uri or args.warehouse or args.ref
    if not named:
        if configured or f"spark.sql.catalog.{name}" in dict(args.conf):
            return Lake(name=name, kind=CatalogKind.CONFIGURED)
        embedded = embedded_lake(Path(os.environ.get("REGELATE_HOME", "lake")), name)
        return Lake(name=name, uri=embedded.uri, warehouse=embedded.warehouse, properties=dict(args.catalog_property))
    kind = KIND_IN_SPARK[args.catalog_type] if args.catalog_type else CatalogKind.SQL
    if kind is CatalogKind.SQL and not (args.uri and args.warehouse):
        raise InvalidRequest("INVALID_OPTION", "--uri and --warehouse: an sqlite catalog needs both", option="uri")
    uri = args.uri.removeprefix("jdbc:sqlite:") if kind is CatalogKind.SQL else args.uri
    warehouse = args.warehouse
    if kind is CatalogKind.SQL and ":/" not in warehouse:
        warehouse = Path(warehouse).absolute().as_uri()
    return Lake(
        name=name, kind=kind, uri=uri, warehouse=warehouse, ref=args.ref, properties=dict(args.catalog_property)
    )


def launch_of(args: argparse.Namespace) -> Launch:
    """Return how Spark is started; a process that spark-submit started has its JVM already."""
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    default = Target.CLUSTER if submitted else Target.LOCAL
    return Launch(
        target=Target(args.target) if args.target else default,
        master=args.master,
        driver_memory=args.driver_memory,
        iceberg_version=args.iceberg_version,
        conf=dict(args.conf),
    )
