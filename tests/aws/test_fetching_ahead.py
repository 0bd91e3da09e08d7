"""Inputs fetched whole and ahead: one GET a file, within a budget, and never where a position delete needs the path."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from regelate.adapters.duckdb.copies import LocalCopies
from regelate.core.planning.plan import FileGroup
from regelate.core.table.table import DataFile, DeleteContent, DeleteFile, FileScanTask, Partition
from regelate.errors import DataUnavailable, Unavailable
from tests.aws.lake import S3Lake, add_files
from tests.servers import proxy
from tests.servers.proxy import Door
from tests.support.deletes_writer import add_equality_deletes, add_position_deletes

FILES, ROWS = 40, 25
DELAY_SECONDS = 0.02
ALL = {"count": FILES * ROWS, "sum_id": FILES * ROWS * (FILES * ROWS - 1) // 2}
NOWHERE = Partition(spec_id=0, values=(), path="")


@pytest.fixture
def door(aws: str) -> Iterator[Door]:
    with proxy.door_before(aws) as opened:
        yield opened


def lake_behind(door: Door, folder: Path, **storage: object) -> S3Lake:
    """A table `users` of forty small files, behind a door that counts and takes 20 ms a request."""
    lake = S3Lake(folder / "lake", door.target, store=door.url, storage=storage)
    lake.stack.create("users", {"id": "long!", "name": "string"})
    add_files(lake.table(), lake.s3, FILES, ROWS)
    door.heal()
    door.delay_seconds = DELAY_SECONDS
    return lake


def gets_of_inputs(door: Door) -> int:
    with door.lock:
        return sum(a.method == "GET" and "/data/small-" in a.key for a in door.asked)


@pytest.mark.parametrize("verify", ["fast", "strict"])
def test_a_small_input_costs_one_get_and_one_more_where_every_value_is_proven(
    door: Door, tmp_path: Path, verify: str
) -> None:
    lake = lake_behind(door, tmp_path)
    assert lake.stack.ok("COMPACT", "users", verify=verify)["stats"]["files_compacted"] == FILES
    assert gets_of_inputs(door) <= (1.1 if verify == "fast" else 2.1) * FILES
    assert door.most_at_once >= 16
    assert lake.count() == ALL


def test_without_room_for_copies_the_engine_reads_where_the_files_lie(door: Door, tmp_path: Path) -> None:
    lake = lake_behind(door, tmp_path, fetch_ahead_mb=0)
    assert lake.stack.ok("COMPACT", "users")["status"] == "COMPLETED"
    assert gets_of_inputs(door) >= 2 * FILES
    assert lake.count() == ALL


def test_equality_deletes_are_applied_to_copies(door: Door, tmp_path: Path) -> None:
    lake = lake_behind(door, tmp_path)
    deletes = add_equality_deletes(lake.table(), ["id"], [(0,), (7,), (999,)])
    assert lake.stack.ok("COMPACT", "users")["stats"]["rows"] == FILES * ROWS - 3
    assert gets_of_inputs(door) <= 1.1 * FILES
    assert door.count(deletes.rpartition("/")[2])["GET"] <= 2
    assert lake.count() == {"count": FILES * ROWS - 3, "sum_id": ALL["sum_id"] - 7 - 999}


def test_position_deletes_are_applied_because_their_files_are_read_under_their_own_paths(
    door: Door, tmp_path: Path
) -> None:
    """Trap T19: a copy has another path, and no position delete would apply to it."""
    lake = lake_behind(door, tmp_path)
    path = f"s3://{lake.s3.list_buckets()['Buckets'][0]['Name']}/warehouse/default.db/users/data/small-00000.parquet"
    add_position_deletes(lake.table(), {path: [0, 7]})
    assert lake.stack.ok("COMPACT", "users")["stats"]["rows"] == FILES * ROWS - 2
    assert lake.count() == {"count": FILES * ROWS - 2, "sum_id": ALL["sum_id"] - 7}


def test_a_damaged_page_of_a_fetched_file_is_named_by_its_place_in_the_store(door: Door, tmp_path: Path) -> None:
    lake = lake_behind(door, tmp_path)
    key = "warehouse/default.db/users/data/small-00003.parquet"
    content = lake.s3.get_object(Bucket="lake", Key=key)["Body"].read()
    lake.s3.put_object(Bucket="lake", Key=key, Body=content[:4] + bytes(len(content) - 8) + content[-4:])
    status, answer = lake.stack.post({"operation": "COMPACT", "tenant_id": "default", "table": "users"})
    assert (status, answer["error"]["code"]) == (424, "DATA_FILE_CORRUPT")
    assert answer["error"]["details"]["path"] == f"s3://lake/{key}"
    assert "copies-" not in answer["error"]["message"]


# The copies by themselves


class Files:
    """A store whose files arrive when the test lets them; it remembers how many bytes were here at most."""

    def __init__(self, missing: frozenset[str] = frozenset()) -> None:
        self.missing = missing
        self.arrives = threading.Event()
        self.arrives.set()
        self.fetched: list[str] = []

    def fetch(self, location: str, path: Path, size_bytes: int) -> None:
        self.arrives.wait(30)
        self.fetched.append(location)
        if location in self.missing:
            raise FileNotFoundError(location)
        path.write_bytes(bytes(size_bytes))


def group(index: int, files: int = 2, size: int = 10, deletes: tuple[DeleteFile, ...] = ()) -> FileGroup:
    tasks = tuple(
        FileScanTask(
            data_file=DataFile(
                path=f"s3://lake/{index}/{number}",
                file_format="PARQUET",
                partition=NOWHERE,
                record_count=1,
                size_bytes=size,
                sequence_number=1,
                snapshot_id=1,
            ),
            deletes=deletes,
        )
        for number in range(files)
    )
    return FileGroup(index=index, partition=NOWHERE, tasks=tasks, expected_output_files=1)


def delete(content: DeleteContent) -> DeleteFile:
    return DeleteFile(
        path="s3://lake/deletes",
        file_format="PARQUET",
        content=content,
        partition=NOWHERE,
        record_count=1,
        size_bytes=3,
        sequence_number=2,
        snapshot_id=1,
        equality_ids=(1,) if content is DeleteContent.EQUALITY else (),
    )


def bytes_below(folder: Path) -> int:
    """Count what lies there, without what goes meanwhile."""
    found = 0
    for path in folder.rglob("*.parquet"):
        with suppress(FileNotFoundError):
            found += path.stat().st_size
    return found


def copies_of(files: Files, folder: Path, budget: int) -> LocalCopies:
    return LocalCopies(files.fetch, folder, connections=4, budget_bytes=budget)


def test_groups_are_worked_off_within_the_budget_and_leave_nothing(tmp_path: Path) -> None:
    files, groups = Files(), [group(i) for i in range(12)]
    copies = copies_of(files, tmp_path, 45)
    here: list[int] = []

    def work(wanted: FileGroup) -> int:
        found = copies.of(wanted)
        here.append(bytes_below(tmp_path))
        paths = [Path(t.data_file.path) for t in found.tasks]
        assert all(path.stat().st_size == 10 for path in paths)
        copies.release(wanted)
        assert not any(path.exists() for path in paths)
        return wanted.index

    copies.begin(groups)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, groups)) == list(range(12))
    assert max(here) <= 45
    assert sorted(files.fetched) == sorted(t.data_file.path for g in groups for t in g.tasks)
    copies.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "left", [group(0, size=100), group(0, deletes=(delete(DeleteContent.POSITION),))], ids=["too large", "positions"]
)
def test_what_may_not_be_copied_is_given_back_as_it_is(tmp_path: Path, left: FileGroup) -> None:
    files = Files()
    copies = copies_of(files, tmp_path, 45)
    copies.begin([left])
    assert copies.of(left) is left
    copies.release(left)
    copies.close()
    assert files.fetched == []


def test_a_delete_file_that_groups_share_is_fetched_once_and_kept(tmp_path: Path) -> None:
    files, shared = Files(), (delete(DeleteContent.EQUALITY),)
    groups = [group(0, deletes=shared), group(1, deletes=shared)]
    copies = copies_of(files, tmp_path, 45)
    copies.begin(groups)
    for wanted in groups:
        (found,) = {d.path for t in copies.of(wanted).tasks for d in t.deletes}
        assert Path(found).stat().st_size == 3
        copies.release(wanted)
    copies.close()
    assert files.fetched.count("s3://lake/deletes") == 1


@pytest.mark.parametrize(
    ("missing", "code"), [("s3://lake/0/1", "DATA_FILE_MISSING"), ("s3://lake/deletes", "DELETE_FILE_CORRUPT")]
)
def test_a_file_that_is_gone_is_named_and_the_next_group_comes_all_the_same(
    tmp_path: Path, missing: str, code: str
) -> None:
    copies = copies_of(Files(frozenset({missing})), tmp_path, 25)
    bad, good = group(0, deletes=(delete(DeleteContent.EQUALITY),)), group(1)
    copies.begin([bad, good])
    with pytest.raises(DataUnavailable) as refused:
        copies.of(bad)
    assert (refused.value.code, refused.value.details["path"]) == (code, missing)
    copies.release(bad)
    assert copies.of(good) != good
    copies.close()


def test_a_close_amid_the_work_lets_nobody_wait(tmp_path: Path) -> None:
    files = Files()
    files.arrives.clear()
    copies = copies_of(files, tmp_path, 25)
    first, second = group(0), group(1)
    copies.begin([first, second])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(copies.of, second)
        closing = threading.Thread(target=copies.close)
        closing.start()
        with pytest.raises(Unavailable, match="the run ended"):
            waiting.result(30)
        files.arrives.set()
        closing.join(30)
    assert not closing.is_alive()
    assert list(tmp_path.iterdir()) == []
