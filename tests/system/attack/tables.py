"""Tables that would be a trap: properties, schemas, partitions, locations, names, changes, tags, drops."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from tests.system.attack.attack import (
    ATTACKER,
    BAD_REQUEST,
    FIELD,
    FORBIDDEN,
    LOCATION,
    MISSING,
    NAME,
    NO_TABLE,
    OK,
    OPTION,
    SCHEMA,
    SPEC,
    UNKNOWN_FIELD,
    VICTIM,
    Attack,
    asks,
)
from tests.system.attack.scene import Scene

PROPERTY = "422 INVALID_TABLE_PROPERTY"
EXISTS = "409 TABLE_EXISTS"
PLAIN = {"fields": {"id": {"type": "long"}}}
PROPERTIES: dict[str, Any] = {
    "write.parquet.page-row-limit": ("-5", "-1", "0", "abc", "1e3", "99999999999999999999"),
    "write.parquet.page-size-bytes": ("abc", "0", "-1", "9223372036854775808"),
    "write.parquet.row-group-limit": ("0", "-1", "x"),
    "write.parquet.row-group-size-bytes": ("-1",),
    "write.parquet.dict-size-bytes": ("-1", "nan"),
    "write.parquet.compression-codec": ("lzma", "../zstd", ""),
    "write.parquet.compression-level": ("99", "-99", "x"),
    "write.metadata.metrics.default": ("truncate(-1)", "truncate(x)", "everything"),
    "write.metadata.metrics.column.id": ("truncate(99999999999)", "no"),
    "write.target-file-size-bytes": ("0", "-1", "1", "99999999999999999999"),
    "commit.retry.num-retries": ("-1", "1000000000", "x"),
    "commit.retry.max-wait-ms": ("-1", "x"),
    "commit.manifest.target-size-bytes": ("0", "-1"),
    "commit.manifest.min-count-to-merge": ("0", "-1", "x"),
    "history.expire.max-snapshot-age-ms": ("-1", "x"),
    "history.expire.min-snapshots-to-keep": ("0", "-1"),
    "schema.name-mapping.default": ("{", "[1]", '[{"field-id": "x"}]', "[" * 3000 + "]" * 3000),
    "write.metadata.previous-versions-max": ("0", "-1"),
    "write.format.default": ("orc", "exe"),
    "write.object-storage.enabled": ("maybe",),
    "gc.enabled": ("perhaps",),
    "format-version": ("99", "3", "-1", "x"),
    "regelate.compaction.quiet-window-seconds": ("-1", "x"),
    "regelate.compaction.min-input-files": ("-1", "x"),
    "regelate.storage.anything": ("x",),
    "uri": ("http://127.0.0.1:1",),
    "token": ("x",),
    "warehouse": ("/",),
    "signer": ("S3V4RestSigner",),
    "s3.endpoint": ("http://127.0.0.1:1",),
    "s3.access-key-id": ("x",),
    "py-io-impl": ("os.system",),
    "write.location-provider.impl": ("os.path",),
    "write.py-location-provider.impl": ("subprocess.Popen",),
    "write.data.path": ("/etc", "{bait}", "file:///etc/cron.d", "http://127.0.0.1:1/x"),
    "write.metadata.path": ("/tmp/elsewhere", "../../elsewhere"),
    "write.folder-storage.path": ("/etc",),
    "write.object-storage.path": ("/etc",),
}
REFUSED = (OPTION, LOCATION, FORBIDDEN, FIELD, "400 INVALID_RETENTION", "501 UNSUPPORTED_TABLE")
SET_AND_READ = {
    "write.parquet.dict-size-bytes",
    "write.metadata.previous-versions-max",
    "write.parquet.compression-level",
    "write.format.default",
    "commit.retry.num-retries",
}
"""Some of these values are Iceberg's own, or read by others alone."""


def _deep(levels: int, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "int"}
    for _ in range(levels):
        if kind == "struct":
            found = {"type": "struct", "fields": {"a": found}}
        elif kind == "list":
            found = {"type": "list", "element": found}
        else:
            found = {"type": "map", "key": {"type": "string"}, "value": found}
    return {"fields": {"a": found}}


def _columns(number: int, **column: Any) -> dict[str, Any]:
    return {"fields": {f"c{i}": {"type": "int", **column} for i in range(number)}}


def _column(name: str, kind: Any = "int") -> dict[str, Any]:
    return {"fields": {"id": {"type": "long"}, name: {"type": kind}}}


SCHEMAS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "2,001 columns": (_columns(2001), (SCHEMA,)),
    "50,000 columns": (_columns(50_000), (SCHEMA, FIELD)),
    "2,001 columns in a struct": ({"fields": {"s": {"type": "struct", "fields": _columns(2001)["fields"]}}}, (SCHEMA,)),
    "2,000 columns": (_columns(2000), (OK,)),
    "structs 20 deep": (_deep(20, "struct"), (OK,)),
    "structs 29 deep": (_deep(29, "struct"), (OK, SCHEMA, BAD_REQUEST)),
    "structs 65 deep": (_deep(65, "struct"), (SCHEMA, BAD_REQUEST)),
    "lists 55 deep": (_deep(55, "list"), (OK, SCHEMA, BAD_REQUEST)),
    "lists 400 deep": (_deep(400, "list"), (SCHEMA, BAD_REQUEST)),
    "maps 50 deep": (_deep(50, "map"), (OK, SCHEMA, BAD_REQUEST)),
    "no columns": ({"fields": {}}, (SCHEMA, FIELD)),
    "no fields": ({}, (SCHEMA, FIELD, MISSING)),
    "a schema that is a list": ([], (FIELD, SCHEMA)),
    "a schema that is a text": ("id long", (FIELD, SCHEMA)),
    "fields that are a list": ({"fields": ["id"]}, (FIELD, SCHEMA)),
    "a column that is a text": ({"fields": {"id": "long"}}, (FIELD, SCHEMA)),
    "a type of nobody": (_column("a", "exec"), (SCHEMA, FIELD)),
    "a type that is a number": (_column("a", 7), (SCHEMA, FIELD)),
    "a decimal of 999 digits": (_column("a", "decimal(999,2)"), (SCHEMA, FIELD)),
    "a decimal of scale -1": (_column("a", "decimal(9,-1)"), (SCHEMA, FIELD)),
    "a decimal of more scale than digits": (_column("a", "decimal(2,9)"), (SCHEMA, FIELD)),
    "fixed[0]": (_column("a", "fixed[0]"), (SCHEMA, FIELD)),
    "fixed[10^12]": (_column("a", "fixed[1000000000000]"), (SCHEMA, FIELD)),
    "a type of 100,000 characters": (_column("a", "long" * 25_000), (SCHEMA, FIELD)),
    "a type that kills patterns": (_column("a", "decimal(" + "1" * 50_000), (SCHEMA, FIELD)),
    "an empty name": (_column(""), (SCHEMA, NAME, FIELD)),
    "a name with a dot": (_column("a.b"), (OK, SCHEMA)),
    "a name with a quote": (_column('a"b'), (OK, SCHEMA)),
    "a name with a line break": (_column("a\nb"), (OK, SCHEMA)),
    "a name with NUL": (_column("a\0b"), (OK, SCHEMA)),
    "a name of half a surrogate pair": (_column("a\ud800"), (SCHEMA, FIELD, "400 INVALID_JSON")),
    "a name of 100,000 characters": (_column("a" * 100_000), (OK, SCHEMA)),
    "two names that differ by case": (_column("ID"), (OK, SCHEMA)),
    "a column named like a position": (_column("_pos"), (OK, SCHEMA)),
    "a column named _file": (_column("_file"), (OK, SCHEMA)),
    "a column that is an emoji": (_column("\U0001f480"), (OK, SCHEMA)),
    "a list without an element": (_column("a", "list"), (SCHEMA, FIELD)),
    "a struct without fields": ({"fields": {"a": {"type": "struct", "fields": {}}}}, (OK, SCHEMA, FIELD)),
    "a map with a key that is a map": (
        {
            "fields": {
                "a": {
                    "type": "map",
                    "key": {"type": "map", "key": {"type": "int"}, "value": {"type": "int"}},
                    "value": {"type": "int"},
                }
            }
        },
        (OK, SCHEMA, FIELD),
    ),
    "a doc of 3 MB": ({"fields": {"id": {"type": "long", "doc": "d" * 3_000_000}}}, (OK, SCHEMA, FIELD)),
    "a required that is a text": ({"fields": {"id": {"type": "long", "required": "yes"}}}, (FIELD, SCHEMA)),
    "a field of nobody": ({"fields": {"id": {"type": "long", "default": 1}}}, (FIELD, SCHEMA, UNKNOWN_FIELD)),
}
SPECS: dict[str, Any] = {
    "a transform of nobody": [{"source": "id", "transform": "exec"}],
    "bucket[0]": [{"source": "id", "transform": "bucket[0]"}],
    "bucket[-1]": [{"source": "id", "transform": "bucket[-1]"}],
    "bucket[10^20]": [{"source": "id", "transform": "bucket[100000000000000000000]"}],
    "truncate[0]": [{"source": "id", "transform": "truncate[0]"}],
    "a source of nobody": [{"source": "victim", "transform": "identity"}],
    "day of a number": [{"source": "id", "transform": "day"}],
    "a name that is taken": [{"source": "id", "transform": "bucket[2]", "name": "id"}],
    "one field twice": [{"source": "id", "transform": "identity"}] * 2,
    "5,000 fields": [{"source": "id", "transform": f"bucket[{i + 1}]", "name": f"b{i}"} for i in range(5000)],
    "a field that is a text": ["id"],
    "a spec that is an object": {"id": "identity"},
}
SPEC_REFUSED = (SPEC, FIELD, NAME)
OWN_FOLDER = "the namespace's folder itself"
"""One's own tables, all in one place: nobody else's harm."""


def _locations(scene: Scene) -> Iterator[tuple[str, str]]:
    victim = scene.warehouse / f"{VICTIM}__default"
    own = scene.warehouse / f"{ATTACKER}__default"
    yield "the victim's folder", str(victim / "orders")
    yield "a folder beside", f"{own}/../{VICTIM}__default/orders"
    yield "an encoded way out", f"file://{own}/%2e%2e/{VICTIM}__default/x"
    yield "the bait", str(scene.bait)
    yield "the root", "/"
    yield "/etc", "file:///etc"
    yield "a relative path", "../x"
    yield "a URL", f"http://127.0.0.1:{scene.bait_port}/x"
    yield "another store", "s3://bucket/x"
    yield "a host in a file URL", f"file://victim{own}/x"
    yield "a name that begins like its own", f"{own}x/t"
    yield OWN_FOLDER, str(own)
    yield "NUL", f"{own}/a\0b"
    yield "100,000 characters", f"{own}/{'x' * 100_000}"


TABLES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "the attacker's own again": ({"table": "events"}, (EXISTS,)),
    "a table in the victim's namespace": ({"namespace": f"{VICTIM}__default"}, (NAME,)),
    "a table as the catalog's own": ({"table": "iceberg_tables'--"}, (NAME,)),
    "a table by a path": ({"table": "../../../tmp/x"}, (NAME,)),
    "a table in a namespace by a path": ({"namespace": "../victim"}, (NAME,)),
    "a table of 129 characters": ({"table": "t" * 129}, (NAME,)),
    "a table in upper case": ({"table": "Events"}, (NAME,)),
    "a table with __": ({"table": "a__b"}, (NAME,)),
    "a table with a space": ({"table": "a b"}, (NAME,)),
    "a sort order of nobody": (
        {"sort_order": [{"column": "victim"}]},
        ("400 INVALID_SCHEMA", FIELD, "400 INVALID_SORT_ORDER", OPTION),
    ),
    "a sort order of 50,000": ({"sort_order": [{"column": "id"}] * 50_000}, (SCHEMA, FIELD)),
    "properties that are a list": ({"properties": ["a"]}, (FIELD,)),
    "a property that is a number": ({"properties": {"a": 1}}, (FIELD,)),
    "a property of 5 MB": ({"properties": {"comment": "c" * 5_000_000}}, (OK, OPTION, FIELD)),
    "20,000 properties": ({"properties": {f"p{i}": "x" for i in range(20_000)}}, (OK, OPTION, FIELD)),
    "if_not_exists that is a text": ({"if_not_exists": "true"}, (FIELD,)),
}
OTHERS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "ALTER: nothing": ({"operation": "ALTER_TABLE"}, (FIELD, MISSING, "400 INVALID_REQUEST")),
    "ALTER: the victim's": ({"operation": "ALTER_TABLE", "tenant_id": VICTIM, "table": "events", "set_properties": {"a": "b"}}, (NO_TABLE,)),
    "ALTER: its location": ({"operation": "ALTER_TABLE", "set_properties": {"location": "/etc"}}, (OPTION, FIELD, LOCATION)),
    "ALTER: format version 3": ({"operation": "ALTER_TABLE", "set_properties": {"format-version": "3"}}, (OPTION,)),
    "ALTER: 2,001 columns more": ({"operation": "ALTER_TABLE", "add_columns": _columns(2001)["fields"]}, (SCHEMA,)),
    "ALTER: a deep column": ({"operation": "ALTER_TABLE", "add_columns": _deep(66, "list")["fields"]}, (SCHEMA, BAD_REQUEST)),
    "ALTER: drop every column": (
        {"operation": "ALTER_TABLE", "drop_columns": ["id", "p", "name", "day", "amount", "ratio", "at", "raw", "tags", "who", "marks"]},
        (SCHEMA,),
    ),
    "ALTER: drop a partition's source": ({"operation": "ALTER_TABLE", "drop_columns": ["p"]}, (SCHEMA,)),
    "ALTER: long to int": ({"operation": "ALTER_TABLE", "alter_columns": {"id": {"type": "int"}}}, (SCHEMA,)),
    "ALTER: rename to SQL": ({"operation": "ALTER_TABLE", "rename_columns": {"nobody": "x; --"}}, (SCHEMA,)),
    "ALTER: rename in a circle": ({"operation": "ALTER_TABLE", "rename_columns": {"name": "id"}}, (SCHEMA,)),
    "ALTER: a column through a list of 50,000 dots": ({"operation": "ALTER_TABLE", "drop_columns": ["tags" + ".element" * 50_000]}, (SCHEMA,)),
    "ALTER: bucket[0]": ({"operation": "ALTER_TABLE", "add_partition_fields": [{"source": "id", "transform": "bucket[0]"}]}, (SPEC,)),
    "ALTER: drop a partition field of nobody": ({"operation": "ALTER_TABLE", "drop_partition_fields": ["x"]}, (SPEC,)),
    "ALTER: unset 50,000 properties": ({"operation": "ALTER_TABLE", "unset_properties": [f"p{i}" for i in range(50_000)]}, (OK, OPTION, FIELD)),
    "DROP: the victim's table": ({"operation": "DROP_TABLE", "table": "orders", "purge": True}, (NO_TABLE,)),
    "DROP: by a path": ({"operation": "DROP_TABLE", "table": "../victim__default/orders", "purge": True}, (NAME,)),
    "DROP: with a text for purge": ({"operation": "DROP_TABLE", "purge": "yes"}, (FIELD,)),
    "DESCRIBE: the victim's table": ({"operation": "DESCRIBE_TABLE", "table": "orders"}, (NO_TABLE,)),
    "DESCRIBE: the catalog's tables": ({"operation": "DESCRIBE_TABLE", "table": "iceberg_tables"}, (NO_TABLE,)),
    "TAG: main": ({"operation": "CREATE_TAG", "tag": "main"}, (FIELD, NAME, "409 REF_EXISTS")),
    "TAG: digits": ({"operation": "CREATE_TAG", "tag": "123"}, (FIELD, NAME)),
    "TAG: undo-1": ({"operation": "CREATE_TAG", "tag": "undo-1"}, (FIELD, NAME)),
    "TAG: a path": ({"operation": "CREATE_TAG", "tag": "../../x"}, (OK, FIELD, NAME)),
    "TAG: 100,000 characters": ({"operation": "CREATE_TAG", "tag": "x" * 100_000}, (FIELD, NAME)),
    "TAG: half of a surrogate pair": ({"operation": "CREATE_TAG", "tag": "\ud800"}, (FIELD, NAME, "400 INVALID_JSON")),
    "TAG: a snapshot of nobody": ({"operation": "CREATE_TAG", "tag": "x", "snapshot_id": 1}, ("404 SNAPSHOT_NOT_FOUND",)),
    "TAG: kept for 10^300 hours": ({"operation": "CREATE_TAG", "tag": "x", "retention_hours": 1e300}, (FIELD,)),
    "TAG: kept for -1 hours": ({"operation": "CREATE_TAG", "tag": "x", "retention_hours": -1}, (FIELD,)),
    "DROP_TAG: main": ({"operation": "DROP_TAG", "tag": "main"}, ("404 REF_NOT_FOUND", FIELD)),
    "ROLLBACK: nowhere": ({"operation": "ROLLBACK"}, (FIELD, MISSING, BAD_REQUEST)),
    "ROLLBACK: to nobody's": ({"operation": "ROLLBACK", "snapshot_id": 7}, ("404 SNAPSHOT_NOT_FOUND", "409 SNAPSHOT_NOT_ANCESTOR")),
    "ROLLBACK: to the year 1": ({"operation": "ROLLBACK", "as_of": "0001-01-01T00:00:00Z"}, ("404 SNAPSHOT_NOT_FOUND", FIELD)),
    "ROLLBACK: both": ({"operation": "ROLLBACK", "as_of": 1, "snapshot_id": 7}, (FIELD, BAD_REQUEST)),
    "LIST: the victim's": ({"operation": "LIST_TABLES", "table": None, "namespace": "victim__default"}, (NAME,)),
    "LIST: a wildcard": ({"operation": "LIST_TABLES", "table": None, "namespace": "*"}, (NAME,)),
}  # fmt: skip


def attacks(scene: Scene) -> Iterator[Attack]:
    traps = count()
    for name, values in PROPERTIES.items():
        for number, value in ((next(traps), value) for value in values):
            told = value.replace("{bait}", str(scene.bait))
            shown = value if len(value) < 40 else f"{value[:10]}..."
            allowed = (OK, *REFUSED) if name in SET_AND_READ else REFUSED
            yield asks(
                "Properties", f"{name} = {shown}", "CREATE_TABLE", *allowed, table=f"trap{number}", schema=PLAIN,
                properties={name: told},
            )  # fmt: skip
            yield asks(
                "Properties",
                f"ALTER {name} = {shown}",
                "ALTER_TABLE",
                *allowed,
                PROPERTY,
                table="altered",
                set_properties={name: told},
            )
    for number, (name, (schema, allowed)) in enumerate(SCHEMAS.items()):
        yield asks("Schemas", name, "CREATE_TABLE", *allowed, table=f"schema{number}", schema=schema)
    for number, (name, spec) in enumerate(SPECS.items()):
        yield asks(
            "Schemas", f"partitions: {name}", "CREATE_TABLE", *SPEC_REFUSED, table=f"spec{number}", schema=PLAIN,
            partition_spec=spec,
        )  # fmt: skip
    for number, (name, place) in enumerate(_locations(scene)):
        yield asks(
            "Locations", name, "CREATE_TABLE", LOCATION, FORBIDDEN, FIELD, OPTION, *((OK,) if name == OWN_FOLDER else ()), table=f"place{number}", schema=PLAIN,
            properties={"location": place},
        )  # fmt: skip
    for number, (name, (fields, allowed)) in enumerate(TABLES.items()):
        body = {"table": f"table{number}", "schema": PLAIN, **fields}
        yield asks("Tables", f"CREATE: {name}", "CREATE_TABLE", *allowed, **body)
    for name, (fields, allowed) in OTHERS.items():
        operation, rest = str(fields["operation"]), {k: v for k, v in fields.items() if k != "operation"}
        yield asks("Tables", name, operation, *allowed, **rest)
