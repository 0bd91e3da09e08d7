"""`regelate compact --async` and `regelate jobs`: submit, list, look, cancel, run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from regelate.entrypoints.cli.program import main
from regelate.service.build import build_service

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("REGELATE_HOME", str(tmp_path / "lake"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REGELATE_CONFIG", raising=False)

    def command(*argv: str) -> tuple[int, str, str]:
        code = main(argv)
        output, errors = capsys.readouterr()
        return code, output, errors

    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": 1}\n')
    assert command("create", "sales.orders", "--schema", "id:long!")[0] == 0
    for _ in range(3):
        assert command("write", "sales.orders", str(rows))[0] == 0
    return command


def submitted(run: Run) -> str:
    code, output, _ = run("compact", "sales.orders", "--async", "--json")
    assert code == 0
    return str(json.loads(output)["job_id"])


def test_a_job_is_submitted_listed_run_and_looked_at(run: Run) -> None:
    assert run("jobs")[1] == "No jobs.\n"
    code, output, _ = run("compact", "sales.orders", "--async")
    found = re.search(r"Submitted: (job-[0-9a-f]+)", output)
    assert (code, found is not None) == (0, True)
    job_id = found[1]  # type: ignore[index]
    assert re.search(rf"^{job_id}  QUEUED .* sales.orders", run("jobs")[1], re.MULTILINE)
    assert "1 part of jobs run" in run("jobs", "run")[1]
    assert "SUCCEEDED" in run("jobs", "status", job_id)[1]
    assert "3 files became 1" in run("jobs")[1]
    assert run("jobs", "run")[1] == "No job is due.\n"
    assert json.loads(run("jobs", "--json")[1])["jobs"][0]["job_id"] == job_id


def test_a_list_is_narrowed_to_a_table_or_a_state(run: Run) -> None:
    job_id = submitted(run)
    assert job_id in run("jobs", "list", "--table", "sales.orders", "--state", "QUEUED")[1]
    assert run("jobs", "--table", "sales.others")[1] == "No jobs.\n"
    assert run("jobs", "--state", "RUNNING")[1] == "No jobs.\n"
    code, _, errors = run("jobs", "run", "--state", "RUNNING")
    assert (code, "--state" in errors) == (2, True)


def test_the_metrics_count_the_jobs_that_wait_whoever_submitted_them(run: Run, tmp_path: Path) -> None:
    def pending() -> float:
        service = build_service({"REGELATE_HOME": str(tmp_path / "lake")})
        text = service.process.metrics_text()
        families = {family.name: family for family in text_string_to_metric_families(text)}
        return float(families["regelate_pending_compactions"].samples[0].value)

    assert pending() == 0
    job_id = submitted(run)
    assert pending() == 1
    run("jobs", "cancel", job_id)
    assert pending() == 0


def test_a_job_that_waits_is_cancelled(run: Run) -> None:
    job_id = submitted(run)
    assert "CANCELLED" in run("jobs", "cancel", job_id)[1]
    assert json.loads(run("jobs", "run", "--json")[1]) == {"parts_run": 0}


def test_a_failed_job_is_exit_code_1_and_names_its_error(run: Run) -> None:
    job_id = submitted(run)
    assert run("drop", "sales.orders", "--yes")[0] == 0
    run("jobs", "run")
    code, output, _ = run("jobs", "status", job_id)
    assert (code, "TABLE_NOT_FOUND" in output) == (1, True)


@pytest.mark.parametrize(
    ("argv", "code", "word"),
    [
        (("jobs", "status"), 2, "JOB_ID"),
        (("jobs", "cancel"), 2, "JOB_ID"),
        (("jobs", "run", "job-1"), 2, "JOB_ID"),
        (("jobs", "status", "job-1"), 1, "JOB_NOT_FOUND"),
        (("compact", "sales.orders", "--async", "--dry-run"), 2, "--async"),
        (("compact", "sales.orders", "--resume-token", "x y"), 2, "--resume-token"),
    ],
)
def test_what_is_wrong_is_told_in_two_lines(run: Run, argv: tuple[str, ...], code: int, word: str) -> None:
    found, output, errors = run(*argv)
    assert (found, output, len(errors.splitlines())) == (code, "", 2)
    assert word in errors


def test_a_budget_in_which_nothing_fits_is_refused_and_one_that_suffices_is_not_noticed(run: Run) -> None:
    code, _, errors = run("compact", "sales.orders", "--time-budget-seconds", "0.001")
    assert (code, "TOO_LONG" in errors) == (1, True)
    assert run("compact", "sales.orders", "--time-budget-seconds", "600")[0] == 0


def test_a_plan_that_does_not_fit_is_refused_here_because_perhaps_nobody_works_on_jobs(
    run: Run, tmp_path: Path
) -> None:
    document = json.loads((Path(__file__).parents[2] / "config.json").read_text())
    document["defaults"]["placement"]["max_in_process_seconds"] = 0.001
    (tmp_path / "config.json").write_text(json.dumps(document))
    code, _, errors = run("compact", "sales.orders")
    assert (code, "TOO_LONG" in errors) == (1, True)
    assert run("jobs")[1] == "No jobs.\n"


def test_a_key_whose_job_has_ended_says_so_and_a_failed_one_is_served_anew(run: Run, tmp_path: Path) -> None:
    asked = ("compact", "sales.orders", "--async", "--idempotency-key", "night")
    files = sorted((tmp_path / "lake").rglob("*.parquet"))
    for path in files:
        path.rename(path.with_suffix(".away"))
    run(*asked)
    assert "1 part of jobs run" in run("jobs", "run")[1]
    assert "FAILED" in run("jobs")[1]
    for path in files:
        path.with_suffix(".away").rename(path)
    (job_id,) = re.findall(r"Submitted: (job-[0-9a-f]+-2)", run(*asked)[1])
    run("jobs", "run")
    code, output, _ = run(*asked)
    assert (code, output) == (0, f"Done already, by {job_id}: another --idempotency-key compacts again.\n")


def test_sweep_without_a_tenant_is_for_all_of_them(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = {
        "type": "sql",
        "uri": "sqlite:///${REGELATE_HOME}/shared.db",
        "warehouse": "${REGELATE_HOME}/shared",
        "namespace_template": "{tenant_id}__{namespace}",
    }
    section = {"auth": "none", "tenants": ["acme", "globex"], "catalogs": {"shared": catalog}}
    (tmp_path / "config.json").write_text(json.dumps({"environments": {"development": section}}))
    monkeypatch.setenv("REGELATE_CONFIG", str(tmp_path / "config.json"))
    for tenant in ("acme", "globex"):
        assert run("--tenant", tenant, "create", "sales.orders", "--schema", "id:long")[0] == 0
    assert run("sweep")[:2] == (0, "2 tables swept: 0 files deleted, 0 B freed.\n")
    assert run("--tenant", "acme", "sweep")[1].startswith("1 table swept")
    code, _, errors = run("sweep", "sales")
    assert (code, errors.partition("\n")[0]) == (2, "error: MISSING_FIELD: --tenant is required")
