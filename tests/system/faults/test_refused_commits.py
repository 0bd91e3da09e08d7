"""Row 38 and trap T39: every status that a commit may be answered with, whether it has landed by then or not.

Over PyIceberg's own REST client. A client, a proxy or a gateway that has lost a reply sends the request again, and what
it is told then is about the second sending: no status proves that the first has not landed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from regelate.adapters.iceberg.files.ledger import FOLDER as LEDGER
from regelate.operations.committing.attempt import MAX_ATTEMPTS
from tests.servers.rest_stub import Reply, RestStub, rest_stub
from tests.support.iceberg_tables import append, live_data_paths, local_path, make_catalog, make_table, rows
from tests.system.faults.hooks import PatientClock
from tests.system.faults.stack import Answer, data_files, request, stack_with

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", StringType()))
IDENT = "default.t"
STATUSES = (400, 401, 403, 404, 408, 409, 412, 413, 419, 421, 422, 425, 429, 500, 501, 502, 503, 504, 520, 599, 0)
"""0: the connection is dropped."""
REFUSALS = {
    400: (400, "CATALOG_REFUSED"),
    401: (502, "CATALOG_AUTH"),
    403: (502, "CATALOG_AUTH"),
    404: (404, "TABLE_NOT_FOUND"),
    413: (400, "CATALOG_REFUSED"),
    419: (502, "CATALOG_AUTH"),
    422: (400, "CATALOG_REFUSED"),
}
"""What says of the request itself that it will not be done: no use in sending it once more."""
SENT_TWICE = (401, 419)
"""PyIceberg itself sends such a commit once more, with a new token where it has the means."""
UNKNOWN = (503, "COMMIT_STATE_UNKNOWN")


class Scene:
    """A table of three files that our program reaches over REST, and another client directly."""

    def __init__(self, folder: Path, other: SqlCatalog, stub: RestStub, format_version: int = 2) -> None:
        self.stub, self._other = stub, other
        make_table(other, IDENT, SCHEMA, format_version=format_version)
        for number in range(3):
            append(self.table(), [(number, "a")])
        catalog = {"type": "rest", "uri": stub.uri}
        self.stack = stack_with(folder / "lake", auth="none", tenants="*", catalogs={"rest": catalog})
        self.stack.built.again(clock=PatientClock())

    def table(self) -> Table:
        return self._other.load_table(IDENT)

    def compact(self, **more: Any) -> tuple[int, Answer]:
        return self.stack.post(request("COMPACT", "t", force=True, expire_snapshots=False, **more))

    def write(self, number: int = 9, **more: Any) -> tuple[int, Answer]:
        return self.stack.post(request("WRITE", "t", records=[{"id": number, "v": "new"}], **more))

    def ids(self) -> list[Any]:
        """Return the ids of all rows, each file really read."""
        return sorted(row[0] for row in rows(self.table()))

    def left_behind(self) -> set[str]:
        """Return the data files that are not live; every live one is there. For a table that is only appended to."""
        table = self.table()
        live, stored = {str(local_path(path)) for path in live_data_paths(table)}, data_files(table)
        assert live <= stored
        return stored - live

    def owed(self) -> set[str]:
        """Return what the ledger says of files that a sweep has to look after."""
        folder = local_path(self.table().location()) / "metadata" / LEDGER
        return {path for entry in folder.glob("*.json") for path in entry.read_text().split('"') if "/data/" in path}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    other = make_catalog(tmp_path)
    with rest_stub(other) as stub:
        yield Scene(tmp_path, other, stub)


def met(status: int, *, landed: bool) -> list[Reply | None]:
    again: list[Reply | None] = [Reply(status)] if status in SENT_TWICE else []
    return [Reply(status, landed=landed), *again]


def told(answer: tuple[int, Answer]) -> tuple[int, Any]:
    return answer[0], answer[1].get("error", {}).get("code")


@pytest.mark.parametrize("last", [False, True], ids=["first attempt", "last attempt"])
def test_row_38_a_write_that_landed_is_found_whatever_status_the_catalog_answered(scene: Scene, last: bool) -> None:
    for number, status in enumerate(STATUSES, start=100):
        scene.stub.commits[:] = [Reply(409)] * (MAX_ATTEMPTS - 1) * last + met(status, landed=True)
        assert told(scene.write(number)) == (200, None), status
        assert scene.stub.commits == []
        assert scene.left_behind() == set(), status
    assert scene.ids() == [0, 1, 2, *range(100, 100 + len(STATUSES))]


@pytest.mark.parametrize("last", [False, True], ids=["first attempt", "last attempt"])
def test_row_38_a_write_that_did_not_land_answers_what_was_refused_and_keeps_what_may_be_under_way(
    scene: Scene, last: bool
) -> None:
    """A request of the first sending may still be under way when the second is refused by another gatekeeper."""
    expected = [0, 1, 2]
    for number, status in enumerate(STATUSES, start=100):
        left = scene.left_behind()
        scene.stub.commits[:] = [Reply(409)] * (MAX_ATTEMPTS - 1) * last + met(status, landed=False)
        found = told(scene.write(number))
        assert scene.stub.commits == [], status
        if status in REFUSALS:
            assert found == REFUSALS[status], status
        elif last:
            assert found == ((409, "COMMIT_CONFLICT") if status == 409 else UNKNOWN), status
        else:
            assert found == (200, None), status
            expected.append(number)
        kept = last or found == UNKNOWN or (status in REFUSALS and REFUSALS[status][1] != "CATALOG_REFUSED")
        kept &= found != (200, None)
        new = scene.left_behind() - left
        assert len(new) == kept, status
        assert {Path(path).name for path in new} <= {Path(path).name for path in scene.owed()}, status
    assert scene.ids() == expected


@pytest.mark.parametrize("status", [400, 401, 403, 404, 500])
def test_t39_a_compaction_that_landed_keeps_its_outputs_whatever_the_second_sending_was_told(
    scene: Scene, status: int
) -> None:
    scene.stub.commits[:] = met(status, landed=True)
    answer = scene.compact()
    assert (answer[0], answer[1]["status"]) == (200, "COMPLETED")
    assert (len(live_data_paths(scene.table())), scene.ids()) == (1, [0, 1, 2])


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("what", ["write", "compact"])
def test_t39_a_conflict_with_our_own_first_sending_takes_no_file_from_it(
    tmp_path: Path, what: str, version: int
) -> None:
    """A server's lock, which it still holds: the head has not moved when we look, and moves to it afterwards."""
    with rest_stub(make_catalog(tmp_path)) as stub:
        scene = Scene(tmp_path, stub.catalog, stub, version)
        arrives = Reply(0, before=stub.arrive, passes=True)
        stub.commits[:] = [Reply(409, late=True), arrives]
        assert told(getattr(scene, what)()) == (200, None)
        assert scene.ids() == [0, 1, 2, 9][: 3 + (what == "write")]


@pytest.mark.parametrize("last", [409, 400, 403])
def test_t39_after_such_a_conflict_the_files_stay_however_the_loop_ends(scene: Scene, last: int) -> None:
    scene.stub.commits[:] = [*[Reply(409)] * (MAX_ATTEMPTS - 2), Reply(409, late=True), Reply(last)]
    answer = scene.write()
    assert told(answer) == (REFUSALS.get(last) or (409, "COMMIT_CONFLICT"))
    assert "files stay" in answer[1]["error"]["message"]
    assert len(scene.left_behind()) == len(scene.owed()) == 1
    assert scene.stub.arrive() == 200
    assert scene.ids() == [0, 1, 2, 9]


def test_t39_an_attempt_is_judged_after_the_head_moved_on_and_nothing_of_it_is_left(scene: Scene) -> None:
    """Another commit on the head of the attempt rules it out, so its files can go."""
    for status in (401, 403, 404, 419):
        replies = met(status, landed=False)
        assert replies[0] is not None
        replies[0].before = lambda: append(scene.table(), [(7, "a")])
        scene.stub.commits[:] = replies
        assert told(scene.write()) == REFUSALS[status]
        assert scene.left_behind() == scene.owed() == set()


def test_a_refusal_for_what_another_client_has_changed_is_tried_again(scene: Scene) -> None:
    """A server in Java answers 400 where another branch took the sequence number in between."""

    def tag() -> None:
        table = scene.table()
        head = table.metadata.current_snapshot_id or 0
        table.manage_snapshots().create_branch(head, "audit").commit()
        scene.table().append(table.scan().to_arrow(), branch="audit")

    scene.stub.commits[:] = [Reply(400, before=tag)]
    assert told(scene.write()) == (200, None)
    assert scene.ids() == [0, 1, 2, 9]


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("status", [401, 403, 404])
def test_t39_where_the_look_is_refused_too_nobody_knows_and_every_file_is_kept(
    scene: Scene, status: int, landed: bool
) -> None:
    """The credentials really are gone: what has become of the commit, they cannot see."""
    before = data_files(scene.table())

    def gone() -> None:
        scene.stub.loads[:] = [Reply(401)] * 50

    replies = met(status, landed=landed)
    assert replies[0] is not None
    replies[0].before = gone
    scene.stub.commits[:] = replies
    answer = scene.compact()
    assert told(answer) == UNKNOWN
    details = answer[1]["error"]["details"]
    assert "CATALOG_AUTH" in details["cause"]
    assert (details["snapshot_id"] in {s.snapshot_id for s in scene.table().snapshots()}) == landed
    assert len(data_files(scene.table()) - before) == 1
    assert scene.ids() == [0, 1, 2]


def test_t39_a_table_that_is_gone_at_the_look_is_not_found_and_its_files_stay(scene: Scene) -> None:
    """It may have been renamed, with our commit in it."""
    before = data_files(scene.table())
    location = local_path(scene.table().location())

    def renamed() -> None:
        scene.table().catalog.rename_table(IDENT, "default.moved")

    scene.stub.commits[:] = [Reply(404, before=renamed)]
    assert told(scene.compact()) == (404, "TABLE_NOT_FOUND")
    assert len({str(path) for path in (location / "data").rglob("*.parquet")} - before) == 1


def test_t39_an_expiry_that_landed_is_found_whatever_status_the_catalog_answered(scene: Scene) -> None:
    for status in (400, 401, 403, 404):
        append(scene.table(), [(7, "a")])
        scene.stub.commits[:] = met(status, landed=True)
        answer = scene.stack.post(request("EXPIRE_SNAPSHOTS", "t", retention_hours=1, min_snapshots_to_keep=1))
        assert told(answer) == (200, None), status
