"""Data files as other writers leave them: without field ids, with some, in odd orders and forms.

Each table comes with its rows as Iceberg Java 1.10.1 reads them (tests/pipeline holds it to that, vectorized and not),
or with the word by which it is refused where Java fails or contradicts itself.
"""

from __future__ import annotations

import base64
import json
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DoubleType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from tests.support.iceberg_tables import add_data_files, local_path
from tests.support.lake import Lake

Rows = list[tuple[object, ...]]
ABC = Schema(NestedField(1, "id", LongType()), NestedField(2, "a", StringType()), NestedField(3, "b", StringType()))
WITH_LIST = Schema(NestedField(1, "id", LongType()), NestedField(2, "l", ListType(3, LongType(), False)))
WITH_MAP = Schema(NestedField(1, "id", LongType()), NestedField(2, "m", MapType(3, StringType(), 4, LongType(), False)))
WITH_STRUCT = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "s", StructType(NestedField(3, "x", LongType()), NestedField(4, "y", StringType()))),
)
NESTED_MAPPING = [
    {"field-id": 1, "names": ["id"]},
    {
        "field-id": 2,
        "names": ["s"],
        "fields": [{"field-id": 3, "names": ["xx"]}, {"field-id": 4, "names": ["y"]}],
    },
]
LIST_MAPPING = [
    {"field-id": 1, "names": ["id"]},
    {"field-id": 2, "names": ["l"], "fields": [{"field-id": 3, "names": ["element"]}]},
]
ALIASES = [
    {"field-id": 1, "names": ["id", "key"]},
    {"field-id": 2, "names": ["a", "alias"]},
    {"field-id": 3, "names": []},
]

TWO_LEVELS = (
    "c-l=-&1%9x5T2}Y4ZR8Ol0XhQ)Q}b%5;Rr8OK(MbkbofG5_b=QL~W}5d5OM3FFp3yUVG|G^x8+LZ_rs|L3Wp!`DW&u`Pj)-"
    "95P_1cwTm&yAzvH3@I}J2msU?8XP=)m^sJu`}Of%vzf6kq=z(71+_8M(I5s^lUSy%y3y>LiN*indIi%1tb=89gT-"
    "9IHlMQ@uQE5+TETSm+QcN8m=cJHspX6?8tL|EU)0vkdQz6j)06_ImTh%h!^Ymo0BWf&hA@wL>>8tLlWHvv-cf{enbL<^_%mTG{;n|}+__?EBax"
    "@&)f8ki_>9lo`KS_5so}bJ6dkj@Dz+cR#@{qfT?0)^RhZ3(GTX?~FIGb4{xT_~*^rM(vCbu!<8@NrZsq2pD4ly*-es$$6Z&D-"
    "4;?SvX1Q=g+6xEWFc^v`?RR@}5e>V681#dMNMv{!%3d%KB2CV$jtzhpVpKZ85B~$1z)2("
)
"""Three rows of `id` (1) and `l` (2), a list of two levels (`repeated int32 array`), as parquet-java 1.13 wrote it."""
HADOOP_LZ4 = (
    "c-p;FL2J}N6n-;i(-4bN*!M^z=pr=KgJIL%ZMP7F-"
    "IJ(?MeqkCohdAA+8EoqzrcfcFa7}W)IZQedy*anLA?s%p$E_6L41?!Aw9YWAM<A3H_SKR<C|nMdKx2OAIJFV_v!0afG$HD9WZf=)Bh%UzIMl8!"
    "FdA;o-"
    "Iy3_}*gT=Py4$xL1gxZHQ+zag*nffZI2>;CwPN!3Q7U5PzLtyt#f=(5SReYn~Asw_sAO{+jeXBMQ7!;?gGuW_xq=&#@G#At}Zt7aIXNSP)dz9L"
    "q&@DR7VKMxQ(sIoe#UOHWSKGYPoLrAXIdU<H9WRN;)VU14(lz)wOaVD`WP+c!LP$)${n&`D|!YC{M%8i=LQybOCtuUgoqj}jvY=K-"
    "!RZW3vA(N~MgaGoq<#4;T2@;@mx9e8UT_#^R$fbdc@Jjf~!X0*rK2|pzd?yy>${F4?EeYfx~&^w#l(4h<2HXeIxFU#qnE~ETF=~=X&=Gt4)^E5"
    "AJ8oWnET0TG0hxhZcbF9l3(}Vp^9L2pT?rda7)0yh1tRD}1ad$@zvh7}9?+$i)T{Yb9?y6MBTe0qUhe~DXJwM^^p&sy<Tbl3>`xg!Xt_u"
)
"""Five rows of `id`, `a` and `b` in Hadoop's framing of LZ4, as parquet-java 1.13 wrote it."""


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """`make` writes a table of this name. `rows` in the order of the first column; None: refused with `word`."""

    make: Callable[[Lake, str], Table]
    rows: Rows | None = None
    word: str = ""


def put(
    table: Table,
    content: pa.Table,
    ids: Sequence[int | None] = (),
    *,
    rename: Mapping[bytes, bytes] | None = None,
    partition: Record | None = None,
    **options: Any,
) -> str:
    """Write one file with PyArrow and add it without any statistics. `ids`: of the top-level columns, where they have
    one. `rename`: other names of the same length in the footer. Returns the path."""
    table.refresh()
    if ids:
        marked = zip(content.schema, ids, strict=True)
        fields = [f if i is None else f.with_metadata({"PARQUET:field_id": str(i)}) for f, i in marked]
        content = content.cast(pa.schema(fields))
    path = f"{table.location()}/data/{uuid.uuid4()}.parquet"
    local_path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(content, local_path(path), store_schema=False, **options)
    for old, new in (rename or {}).items():
        local_path(path).write_bytes(local_path(path).read_bytes().replace(old, new))
    add_described(table, path, content.num_rows, partition)
    return path


def put_whole(table: Table, packed: str, rows: int) -> str:
    """Add a file that is written down here."""
    path = f"{table.location()}/data/{uuid.uuid4()}.parquet"
    local_path(path).parent.mkdir(parents=True, exist_ok=True)
    local_path(path).write_bytes(zlib.decompress(base64.b85decode(packed)))
    add_described(table, path, rows)
    return path


def add_described(table: Table, path: str, rows: int, partition: Record | None = None) -> None:
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition or Record(),
        file_size_in_bytes=local_path(path).stat().st_size,
        record_count=rows,
    )
    file.spec_id = table.metadata.default_spec_id
    add_data_files(table, [file])


def abc(number: int, names: Sequence[str] = ("id", "a", "b"), values: Sequence[object] = ("A", "B")) -> pa.Table:
    return pa.table({name: [value] for name, value in zip(names, (number, *values), strict=True)})


def of(
    *files: pa.Table,
    schema: Schema = ABC,
    mapping: object = None,
    ids: Sequence[int | None] = (),
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    partition: Record | None = None,
    then: Callable[[Table], object] = Table.refresh,
    **options: Any,
) -> Callable[[Lake, str], Table]:
    def make(lake: Lake, ident: str) -> Table:
        properties = {} if mapping is None else {"schema.name-mapping.default": json.dumps(mapping)}
        table = lake.table(schema, ident=ident, properties=properties, spec=spec)
        for file in files:
            put(table, file, ids, partition=partition, **options)
        then(table)
        return table

    return make


def renamed(*names: tuple[str, str]) -> Callable[[Table], object]:
    def change(table: Table) -> None:
        for old, new in names:
            with table.update_schema() as update:
                update.rename_column(old, new)

    return change


def dropped_and_added(table: Table) -> None:
    with table.update_schema() as update:
        update.delete_column("a")
    with table.update_schema() as update:
        update.add_column("a", StringType())


def mixed(lake: Lake, ident: str) -> Table:
    table = lake.table(ABC, ident=ident)
    put(table, abc(0), [1, 2, 3])
    renamed(("a", "x"))(table)
    put(table, abc(1))
    put(table, abc(2, ("q", "id", "b")))
    put(table, abc(3), [1, None, 3])
    return table


def aliases(lake: Lake, ident: str) -> Table:
    table = lake.table(ABC, ident=ident, properties={"schema.name-mapping.default": json.dumps(ALIASES)})
    put(table, pa.table({"b": ["B"], "alias": ["A"], "key": [0]}))
    put(
        table,
        pa.table(
            {"id": [1], "B": ["B"], "A": ["A"], "a": ["ok"]},
        ).drop_columns("A"),
    )
    put(table, abc(2), [1, None, 3])
    put(table, abc(3), [1, 2, 3])
    return table


def two_levels(lake: Lake, ident: str) -> Table:
    table = lake.table(WITH_LIST, ident=ident)
    put_whole(table, TWO_LEVELS, 3)
    return table


def hadoop_lz4(lake: Lake, ident: str) -> Table:
    table = lake.table(ABC, ident=ident)
    put_whole(table, HADOOP_LZ4, 5)
    return table


BYTES = pa.array([b"ok", b"\xff\xfe\x80"], pa.binary())
NO_TEXT = pa.table({"id": [0, 1], "a": pa.Array.from_buffers(pa.string(), 2, BYTES.buffers()), "b": ["x", "y"]})
UNSIGNED = pa.table({"id": pa.array([1, 2**64 - 1], pa.uint64()), "a": ["A", "A"], "b": ["B", "B"]})
LISTS = pa.table({"id": [1, 2], "l": pa.array([[5, None], None], pa.list_(pa.int64()))})
MAPS = pa.table({"id": [1, 2], "m": pa.array([[("k", 5)], None], pa.map_(pa.string(), pa.int64()))})
STRUCTS = pa.table({"id": [1], "s": [{"z": 0, "y": "q", "xx": 7}]})
MILLIS = pa.table({"id": [1], "t": pa.array([1_000], pa.timestamp("ms"))})
BY_A = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "a"))
STAMPS = Schema(NestedField(1, "id", LongType()), NestedField(2, "t", TimestampType()))

FAR_PAST = datetime(1500, 2, 3)  # noqa: DTZ001

FOREIGN: dict[str, Foreign] = {
    "renamed and its name given to another": Foreign(
        make=of(abc(0), abc(1), then=renamed(("a", "x"), ("b", "a"))), rows=[(0, "A", "B"), (1, "A", "B")]
    ),
    "dropped and added": Foreign(
        make=of(abc(0), abc(1), then=dropped_and_added), rows=[(0, "B", None), (1, "B", None)]
    ),
    "fewer and more columns": Foreign(
        make=of(abc(0, ("id", "a"), ("A",)), abc(1, ("id",), ()), abc(2, ("id", "a", "b", "c"), ("A", "B", "C"))),
        rows=[(0, "A", None), (1, None, None), (2, "A", "B")],
    ),
    "another order of one type": Foreign(
        make=of(abc(0, ("id", "b", "a")), abc(1, ("id", "b", "a"))), rows=[(0, "A", "B"), (1, "A", "B")]
    ),
    "another order of types": Foreign(make=of(abc(0).select(["b", "id", "a"])), word="'b' of type BYTE_ARRAY UTF8"),
    "other case": Foreign(make=of(abc(0, ("ID", "A", "B")), abc(1)), rows=[(0, "A", "B"), (1, "A", "B")]),
    "files of every kind in one group": Foreign(
        make=mixed, rows=[(0, "A", "B"), (1, "A", "B"), (2, "A", "B"), (3, None, "B")]
    ),
    "some columns with ids": Foreign(make=of(abc(0), abc(1), ids=[1, None, 3]), rows=[(0, None, "B"), (1, None, "B")]),
    "promoted": Foreign(
        make=of(
            pa.table({"x": pa.array([0, 1], pa.int32()), "y": pa.array([1.5, None], pa.float32())}),
            schema=Schema(NestedField(1, "id", LongType()), NestedField(2, "f", DoubleType())),
        ),
        rows=[(0, 1.5), (1, None)],
    ),
    "a column that a partition gives": Foreign(
        make=of(abc(0), abc(1), spec=BY_A, partition=Record("P")), rows=[(0, "P", "B"), (1, "P", "B")]
    ),
    "a mapping with aliases, other case and gaps": Foreign(
        make=aliases, rows=[(0, "A", None), (1, "ok", None), (2, None, "B"), (3, "A", "B")]
    ),
    "a nested mapping with gaps": Foreign(
        make=of(STRUCTS, STRUCTS, schema=WITH_STRUCT, mapping=NESTED_MAPPING),
        rows=[(1, {"x": 7, "y": "q"}), (1, {"x": 7, "y": "q"})],
    ),
    "two columns for one field": Foreign(
        make=of(abc(0, ("id", "a", "alias")), mapping=ALIASES), word="two columns for the field 'a'"
    ),
    "names that differ in case only": Foreign(make=of(abc(0, ("id", "a", "A"))), word="differ only in case"),
    "a required column that is missing": Foreign(
        make=of(
            abc(0, ("id",), ()),
            schema=Schema(NestedField(1, "id", LongType()), NestedField(2, "r", StringType(), required=True)),
        ),
        word="no column for the required 'r'",
    ),
    "structs by position": Foreign(make=of(STRUCTS, schema=WITH_STRUCT), word="a struct 's' whose fields have no ids"),
    "lists by position": Foreign(make=of(LISTS, LISTS, schema=WITH_LIST), rows=[(1, [5, None]), (2, None)] * 2),
    "maps by position": Foreign(make=of(MAPS, MAPS, schema=WITH_MAP), rows=[(1, {"k": 5}), (2, None)] * 2),
    "lists of Hive by position": Foreign(
        make=of(LISTS, schema=WITH_LIST, rename={b"list": b"bags", b"element": b"arr_elt"}),
        rows=[(1, [5, None]), (2, None)],
    ),
    "lists of Hive by name": Foreign(
        make=of(LISTS, schema=WITH_LIST, mapping=LIST_MAPPING, rename={b"list": b"bags", b"element": b"arr_elt"}),
        rows=[(1, [5, None]), (2, None)],
    ),
    "lists of old PyArrow by name": Foreign(
        make=of(LISTS, schema=WITH_LIST, mapping=LIST_MAPPING, use_compliant_nested_type=False),
        rows=[(1, [5, None]), (2, None)],
    ),
    "a list whose mapping has no element": Foreign(
        make=of(LISTS, schema=WITH_LIST, mapping=[{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["l"]}]),
        word="a list 'l' whose element has no field id",
    ),
    "maps with other names": Foreign(
        make=of(MAPS, schema=WITH_MAP, rename={b"key_value": b"key_valuX"}), word="other names than Parquet's"
    ),
    "lists of two levels": Foreign(make=two_levels, word="a list 'l' of two levels"),
    "LZ4 as Hadoop frames it": Foreign(make=hadoop_lz4, word="pages compressed with LZ4"),
    "strings that are no UTF-8": Foreign(make=of(NO_TEXT, ids=[1, 2, 3]), word="a string that is not UTF-8"),
    "unsigned numbers that no long holds": Foreign(make=of(UNSIGNED, ids=[1, 2, 3]), word="do not fit into"),
    "times in milliseconds": Foreign(make=of(MILLIS, schema=STAMPS, ids=[1, 2]), word="TIMESTAMP_MILLIS"),
    "times in nanoseconds": Foreign(
        make=of(MILLIS.set_column(1, "t", MILLIS["t"].cast(pa.timestamp("ns"))), schema=STAMPS, ids=[1, 2]),
        word="TIMESTAMP_NANOS",
    ),
    "times of the far past and in INT96": Foreign(
        make=of(
            pa.table({"id": [1], "t": pa.array([-14_828_918_400_000_000], pa.timestamp("us"))}),
            schema=STAMPS,
            ids=[1, 2],
            use_deprecated_int96_timestamps=True,
        ),
        rows=[(1, FAR_PAST)],
    ),
}
