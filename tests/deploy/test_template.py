"""template.yaml says what the code does. What a linter finds, `make validate` leaves to the linter."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pyiceberg
import pytest

from regelate.adapters.records.dynamo_jobs import INDEX, WAITING
from regelate.adapters.spark.emr_serverless import STATES
from regelate.adapters.telemetry.emf import NAMESPACE, SERVICE
from regelate.core.access import Access, session_policy
from regelate.core.jobs.spark_job import SparkState
from regelate.core.measures.measures import METRICS
from regelate.entrypoints.actions import parse_request
from regelate.entrypoints.api.fleet_requests import FleetApply, FleetScan
from regelate.entrypoints.api.requests import Compact, Sweep
from regelate.entrypoints.aws.envelope import Envelope, keyed, recognise
from regelate.entrypoints.aws.http import DOCS_PATH, ROUTES
from regelate.entrypoints.dispatch import Unserved, dispatch
from regelate.settings import load_settings
from tests.deploy.cloudformation import ROOT, conditions_in, names_in, template, walk
from tests.entrypoints.fakes import FakeService, LambdaContext

TEMPLATE = template()
PARAMETERS: dict[str, Any] = TEMPLATE["Parameters"]
RESOURCES: dict[str, Any] = TEMPLATE["Resources"]
SCHEDULED = "<aws.scheduler.scheduled-time>"
ENVIRON = {"REGELATE_CONFIG": str(ROOT / "config.json"), "REGELATE_WAREHOUSE": "s3://bucket/warehouse"}
SPARK_ENVIRON = {
    "REGELATE_SPARK": "emr-serverless",
    "REGELATE_SPARK_APPLICATION": "00app",
    "REGELATE_SPARK_ROLE_ARN": "arn:aws:iam::123456789012:role/spark",
    "REGELATE_SPARK_LOCATION": "s3://results/spark",
    "REGELATE_JOBS_STORE": "dynamodb",
    "REGELATE_JOBS_TABLE": "jobs",
    "REGELATE_JOBS_QUEUE": "queue",
}
USED = {
    "glue:CreateDatabase": "create_database",
    "glue:CreateTable": "create_table",
    "glue:DeleteTable": "delete_table",
    "glue:GetDatabase": "get_database",
    "glue:GetDatabases": "get_databases",
    "glue:GetTable": "get_table",
    "glue:GetTables": "get_tables",
    "glue:UpdateTable": "update_table",
}
"""Glue's actions, and the calls of PyIceberg that need them."""
OTHERS = {
    "glue:BatchGetTableOptimizer": "what Glue itself looks after, a fleet leaves alone",
    "s3:AbortMultipartUpload": "an upload that broke off leaves parts that cost money",
    "s3:DeleteObject": "outputs of a lost commit, expired files",
    "s3:GetObject": "reading",
    "s3:ListBucket": "listing, and 404 instead of 403 for what is missing",
    "s3:ListBucketMultipartUploads": "a sweep looks for what dead runs left half uploaded",
    "s3:PutObject": "writing, in parts too",
    "kms:Decrypt": "reading a bucket that is encrypted with a key of one's own",
    "kms:GenerateDataKey": "writing to it",
    "lambda:InvokeFunction": "the schedules",
    "logs:CreateLogStream": "the log",
    "logs:PutLogEvents": "the log",
    "sqs:SendMessage": "jobs, and events that no try served",
    "sqs:ChangeMessageVisibility": "a job that waits, for a lease or for another try",
    "sqs:DeleteMessage": "the worker's event source",
    "sqs:GetQueueAttributes": "the worker's event source",
    "sqs:ReceiveMessage": "the worker's event source",
    "dynamodb:BatchGetItem": "the tables of a fleet",
    "dynamodb:DeleteItem": "a job that met another one of its table",
    "dynamodb:GetItem": "jobs and leases",
    "dynamodb:PutItem": "jobs",
    "dynamodb:Query": "the list of jobs",
    "dynamodb:UpdateItem": "leases",
    "sts:AssumeRole": "a session of its own for every tenant",
    "emr-serverless:CancelJobRun": "a job of Spark's that was cancelled, or given up",
    "emr-serverless:GetJobRun": "how it stands",
    "emr-serverless:ListJobRuns": "one that was started by a worker that died then",
    "emr-serverless:StartJobRun": "what is too large for a worker",
    "emr-serverless:TagResource": "to find it again",
    "iam:PassRole": "the role that Spark's jobs run under",
}
NEVER_HERE = {"glue:DeleteDatabase", "glue:UpdateDatabase"}
"""Calls of PyIceberg that nothing of ours makes."""


def of_type(kind: str) -> dict[str, Any]:
    return {name: resource["Properties"] for name, resource in RESOURCES.items() if resource["Type"] == kind}


def statements() -> list[dict[str, Any]]:
    """Every statement that allows one of our roles something; who may take a role is told apart by its `Principal`."""
    found = [value for value in walk(RESOURCES) if isinstance(value, dict) and "Effect" in value]
    return [statement for statement in found if "Principal" not in statement]


def listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def test_every_route_of_the_api_is_one_that_the_handler_serves_and_none_is_missing() -> None:
    keys = [route["RouteKey"] for route in of_type("AWS::ApiGatewayV2::Route").values()]
    routes = {tuple(key.replace("{", "<").replace("}", ">").split(" ")) for key in keys}
    assert routes == {(method, path) for method, path in ROUTES if path != DOCS_PATH}


def test_every_route_asks_who_calls() -> None:
    for route in of_type("AWS::ApiGatewayV2::Route").values():
        assert route["AuthorizationType"] == {"Fn::If": ["WithJwt", "JWT", "AWS_IAM"]}


def test_the_functions_ask_for_the_proof_that_the_gateway_gives() -> None:
    variable = TEMPLATE["Globals"]["Function"]["Environment"]["Variables"]["REGELATE_AUTH"]
    assert variable == {"Fn::If": ["WithJwt", "claims", "iam"]}
    for environment in PARAMETERS["Environment"]["AllowedValues"]:
        for auth in variable["Fn::If"][1:]:
            settings = load_settings({**ENVIRON, "REGELATE_ENVIRONMENT": environment, "REGELATE_AUTH": auth})
            assert settings.auth == auth


def test_every_name_that_is_referred_to_exists() -> None:
    known = {*PARAMETERS, *RESOURCES}
    assert {name for name in names_in(TEMPLATE) if name not in known and not name.startswith("AWS::")} == set()
    assert set(conditions_in(RESOURCES)) == set(TEMPLATE["Conditions"])


def test_every_parameter_is_used_and_explained_and_has_its_place_in_the_form() -> None:
    rest = {part: value for part, value in TEMPLATE.items() if part not in ("Parameters", "Metadata")}
    assert set(PARAMETERS) - set(names_in(rest)) == set()
    groups = TEMPLATE["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    assert sorted(name for group in groups for name in group["Parameters"]) == sorted(PARAMETERS)
    assert [name for name, parameter in PARAMETERS.items() if not parameter.get("Description")] == []


def test_what_a_condition_makes_is_referred_to_only_under_that_condition() -> None:
    for name, resource in RESOURCES.items():
        if "Condition" in resource:
            for other, referring in RESOURCES.items():
                if other != name and name in set(names_in(referring)):
                    assert resource["Condition"] in {referring.get("Condition"), *conditions_in(referring)}, other


def test_both_functions_end_before_who_waits_for_them_gives_up_and_take_on_no_more_than_they_can_end() -> None:
    api, worker = RESOURCES["ApiFunction"]["Properties"], RESOURCES["WorkerFunction"]["Properties"]
    assert (api["Timeout"], worker["Timeout"]) == (29, 900)
    settings = load_settings({**ENVIRON, "REGELATE_ENVIRONMENT": "production"})
    assert settings.placement_policy(api["Environment"]["Variables"]).max_in_process_seconds <= 20
    assert settings.limits.query_seconds < api["Timeout"]
    assert settings.placement_policy({}).max_in_process_seconds < worker["Timeout"]


def test_the_worker_has_two_processors_and_all_of_the_disk_and_says_why() -> None:
    memory, disk = PARAMETERS["WorkerMemorySize"], PARAMETERS["WorkerEphemeralStorage"]
    assert (memory["Default"], disk["Default"]) == (3538, 10240)
    assert "1,769" in memory["Description"]
    assert "max_in_process_gb" in disk["Description"]
    gigabytes = load_settings({**ENVIRON, "REGELATE_ENVIRONMENT": "production"}).placement.max_in_process_gb
    assert gigabytes * 1024 <= disk["Default"]
    assert "ReservedConcurrentExecutions" in RESOURCES["WorkerFunction"]["Properties"]


def test_no_statement_allows_more_than_it_names() -> None:
    for statement in statements():
        assert statement["Effect"] == "Allow"
        assert [action for action in listed(statement["Action"]) if "*" in action] == []
        assert statement["Resource"] not in ("*", ["*"])
        if any(action.startswith("s3:") for action in listed(statement["Action"])):
            named = set(names_in(statement))
            assert {"WarehouseBucket", "WarehousePrefix"} <= named or named == {"ResultBucket"}


def test_every_action_that_is_allowed_is_used() -> None:
    allowed = {action for statement in statements() for action in listed(statement["Action"])}
    assert allowed == {*USED, *OTHERS}
    source = (Path(pyiceberg.__file__).parent / "catalog" / "glue.py").read_text()
    called = set(re.findall(r"self\.glue\.(\w+)\(", source))
    assert set(USED.values()) | {re.sub("(?<!^)(?=[A-Z])", "_", a.split(":")[1]).lower() for a in NEVER_HERE} == called


def policies_of(role: str) -> list[str]:
    """The managed policies of a role, and the policies that are attached to it from outside."""
    managed = list(names_in(RESOURCES[role]["Properties"].get("ManagedPolicyArns", [])))
    return managed + [name for name, policy in of_type("AWS::IAM::Policy").items() if {"Ref": role} in policy["Roles"]]


def actions_of(role: str) -> set[str]:
    """What a role may do, by its own policies and by those that it is given."""
    found = [RESOURCES[role]["Properties"].get("Policies", []), *(RESOURCES[name] for name in policies_of(role))]
    return {a for s in walk(found) if isinstance(s, dict) and "Effect" in s for a in listed(s["Action"])}


def test_neither_function_may_touch_a_table_by_itself_but_takes_a_role_that_nobody_else_can() -> None:
    for function, role, tables in (
        ("ApiFunction", "ApiRole", "ApiTablesRole"),
        ("WorkerFunction", "WorkerRole", "WorkerTablesRole"),
    ):
        assert "TablesPolicy" not in policies_of(role)
        assert {action for action in actions_of(role) if action.startswith(("glue:", "kms:"))} == set()
        assert "TablesPolicy" in policies_of(tables)
        (taking,) = [
            s for s in walk(RESOURCES) if isinstance(s, dict) and s.get("Resource") == {"Fn::GetAtt": [tables, "Arn"]}
        ]
        assert (taking["Effect"], taking["Action"]) == ("Allow", "sts:AssumeRole")
        (trusted,) = RESOURCES[tables]["Properties"]["AssumeRolePolicyDocument"]["Statement"]
        assert trusted["Principal"] == {"AWS": {"Fn::GetAtt": [role, "Arn"]}}
        variables = RESOURCES[function]["Properties"]["Environment"]["Variables"]
        assert variables["REGELATE_TENANT_ROLE_ARN"] == {"Fn::GetAtt": [tables, "Arn"]}


def test_a_role_of_tables_may_do_all_that_any_session_of_a_tenant_may_and_lasts_as_long() -> None:
    """A session can do what role AND policy allow: an action that only one of them has is a fault in the other."""
    wanted = {access: json.loads(session_policy(access, "acme", "s3://b/w"))["Statement"] for access in Access}
    asked = {
        access: {a for s in statements if s["Effect"] == "Allow" for a in s["Action"]}
        for access, statements in wanted.items()
    }
    assert actions_of("ApiTablesRole") == asked[Access.WRITE]
    assert asked[Access.WRITE] - actions_of("WorkerTablesRole") == {
        "glue:CreateDatabase",
        "glue:CreateTable",
        "glue:DeleteTable",
    }
    assert asked[Access.READ] | asked[Access.SURVEY] <= actions_of("WorkerTablesRole")
    for role in ("ApiTablesRole", "WorkerTablesRole"):
        longest = RESOURCES[role]["Properties"]["MaxSessionDuration"]
        settings = load_settings({**ENVIRON, "REGELATE_ENVIRONMENT": "production"})
        assert settings.tenancy.session_seconds <= longest <= 3600


def test_only_the_api_may_make_and_drop_tables() -> None:
    assert {"glue:CreateTable", "glue:DeleteTable"} <= actions_of("ApiTablesRole")
    changing = {"glue:UpdateTable"}
    found = {action for action in actions_of("WorkerTablesRole") if action.startswith("glue:")}
    assert {action for action in found if not action.startswith(("glue:BatchGet", "glue:Get"))} == changing


def test_large_results_go_to_a_bucket_of_their_own_that_forgets_them_and_lets_nobody_in() -> None:
    bucket = RESOURCES["ResultBucket"]["Properties"]
    place = TEMPLATE["Globals"]["Function"]["Environment"]["Variables"]["REGELATE_RESULTS"]
    assert place == {"Fn::Sub": "s3://${ResultBucket}/results"}
    rules = {rule["Id"]: rule for rule in bucket["LifecycleConfiguration"]["Rules"]}
    assert {rule["Status"] for rule in rules.values()} == {"Enabled"}
    assert (rules["results"]["Prefix"], rules["results"]["ExpirationInDays"]) == ("results/", {"Ref": "ResultDays"})
    assert rules["broken-uploads"]["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}
    assert "Prefix" not in rules["broken-uploads"]
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert bucket["OwnershipControls"] == {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    settings = load_settings({**ENVIRON, "REGELATE_ENVIRONMENT": "production"})
    assert settings.results.url_seconds < PARAMETERS["ResultDays"]["MinValue"] * 86_400
    (statement,) = RESOURCES["ResultsPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    assert statement["Resource"] == {"Fn::Sub": "${ResultBucket.Arn}/results/*"}
    assert all("ResultsPolicy" in policies_of(role) for role in ("ApiRole", "WorkerRole"))
    (tls,) = RESOURCES["ResultBucketPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    assert (tls["Effect"], tls["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})


def test_a_stored_result_on_its_way_fits_beside_what_a_query_spills() -> None:
    settings = load_settings({**ENVIRON, "REGELATE_ENVIRONMENT": "production"})
    disk = RESOURCES["ApiFunction"]["Properties"]["EphemeralStorage"]["Size"]
    assert settings.limits.max_stored_result_bytes * 4 <= disk * 1024 * 1024


def test_spark_is_there_only_if_asked_for_stops_by_itself_and_runs_for_this_account_alone() -> None:
    assert PARAMETERS["SparkRelease"]["Default"] == ""
    application, role = RESOURCES["SparkApplication"], RESOURCES["SparkJobRole"]
    assert {application["Condition"], role["Condition"]} == {"WithSpark"}
    assert application["Properties"]["AutoStopConfiguration"] == {"Enabled": True, "IdleTimeoutMinutes": 5}
    assert {"Cpu", "Memory"} <= set(application["Properties"]["MaximumCapacity"])
    for label in ("", "emr-7.12.0", "emr-spark-8.0.0"):
        assert re.fullmatch(PARAMETERS["SparkRelease"]["AllowedPattern"], label)
    assert not re.fullmatch(PARAMETERS["SparkRelease"]["AllowedPattern"], "7.12.0")
    (trusted,) = role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert trusted["Principal"] == {"Service": "emr-serverless.amazonaws.com"}
    assert trusted["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}
    assert policies_of("SparkJobRole") == ["TablesPolicy"]
    assert not {"glue:CreateTable", "glue:DeleteTable"} & actions_of("SparkJobRole")
    assert policies_of("WorkerRole")[-1] == "SparkStartPolicy"
    (passing,) = [s for s in statements() if s["Action"] == "iam:PassRole"]
    assert passing["Condition"] == {"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}}
    for output in ("SparkApplicationId", "SparkJobRoleArn"):
        assert TEMPLATE["Outputs"][output]["Condition"] == "WithSpark"


def test_the_end_of_a_run_of_ours_wakes_the_worker_by_an_event_that_the_handler_knows() -> None:
    rule = RESOURCES["SparkRunEnded"]["Properties"]
    pattern = rule["EventPattern"]
    assert pattern["detail"]["applicationId"] == [{"Ref": "SparkApplication"}]
    states = {name for name, state in STATES.items() if state in (SparkState.ENDED, SparkState.CANCELLED)}
    assert set(pattern["detail"]["state"]) == states
    event = {"source": pattern["source"][0], "detail-type": pattern["detail-type"][0], "detail": {"jobRunId": "00r"}}
    assert recognise(event)[0] is Envelope.SPARK
    assert [target["Arn"] for target in rule["Targets"]] == [{"Fn::GetAtt": ["WorkerFunction", "Arn"]}]


def test_spark_runs_where_the_worker_looks_for_its_answer() -> None:
    found = load_settings({**ENVIRON, "REGELATE_ENVIRONMENT": "production", **SPARK_ENVIRON}).spark
    assert (found.run, found.application_id, found.location) == ("emr-serverless", "00app", "s3://results/spark")
    place = TEMPLATE["Globals"]["Function"]["Environment"]["Variables"]["REGELATE_SPARK_LOCATION"]
    assert place == {"Fn::Sub": "s3://${ResultBucket}/spark"}
    folders = {text for s in statements() for text in [json.dumps(s["Resource"])] if "ResultBucket.Arn}/spark" in text}
    assert any("spark/results/*" in text for text in folders)


def test_no_two_resources_wait_for_each_other() -> None:
    """CloudFormation refuses a circle; the linter finds only those within one kind of reference."""
    waits = {name: set(names_in(resource)) & set(RESOURCES) - {name} for name, resource in RESOURCES.items()}
    while waits:
        ready = {name for name, on in waits.items() if not on & set(waits)}
        assert ready, f"a circle among {sorted(waits)}"
        waits = {name: on for name, on in waits.items() if name not in ready}


def test_every_variable_that_is_set_is_read() -> None:
    sources = "\n".join(path.read_text() for path in [*(ROOT / "src").rglob("*.py"), ROOT / "config.json"])
    variables = set(TEMPLATE["Globals"]["Function"]["Environment"]["Variables"])
    for function in of_type("AWS::Serverless::Function").values():
        variables |= set(function.get("Environment", {}).get("Variables", {}))
    assert {name for name in variables if not re.search(rf"\b{name}\b", sources)} == set()


def inputs() -> list[dict[str, Any]]:
    """The event of every schedule, as the scheduler sends it, with parameters filled in."""
    found = []
    for schedule in of_type("AWS::Scheduler::Schedule").values():
        given = schedule["Target"]["Input"]
        text = re.sub(r"\$\{\w+\}", "sales", given if isinstance(given, str) else given["Fn::Sub"])
        assert set(re.findall(r"<aws\.scheduler\.[a-z-]+>", text)) == {SCHEDULED}, "an execution has an id per attempt"
        found.append(json.loads(text.replace(SCHEDULED, "2026-11-22T02:00:00Z")))
    return found


@pytest.mark.parametrize("event", inputs(), ids=lambda event: event["detail"]["operation"])
def test_what_a_schedule_sends_is_a_request_that_may_come_twice_and_ends_in_time(event: dict[str, Any]) -> None:
    assert recognise(event)[0] is Envelope.RULE
    request = parse_request(keyed(event["detail"], event["id"]))
    if isinstance(request, Sweep | FleetScan | FleetApply):
        assert request.time_budget_seconds is not None
        assert request.time_budget_seconds <= RESOURCES["WorkerFunction"]["Properties"]["Timeout"] - 300
    else:
        assert isinstance(request, Compact)
        assert request.idempotency_key == event["id"]


def test_tables_are_swept_every_day_unless_told_otherwise_and_a_fleet_is_looked_after_only_if_told() -> None:
    assert PARAMETERS["SweepSchedule"]["Default"] == "rate(1 day)"
    assert PARAMETERS["FleetSchedule"]["Default"] == ""
    assert [event["detail"]["operation"] for event in inputs()] == ["SWEEP", "FLEET_SCAN", "FLEET_APPLY", "COMPACT"]


@pytest.mark.parametrize("tenants", [[], ["acme", "globex"]])
def test_the_sweep_of_the_defaults_is_served_by_the_config_that_ships_whatever_its_tenants(tenants: list[str]) -> None:
    shipped = load_settings({**ENVIRON, "REGELATE_ENVIRONMENT": "production"})
    assert shipped.tenants == ()
    service = FakeService(shipped.model_copy(update={"tenants": tuple(tenants)}))
    assert dispatch(inputs()[0], LambdaContext(), lambda: service)["success"] is True
    ((_, _, arguments),) = service.calls
    assert arguments["scope"].tenants == tuple(tenants)


def test_a_schedule_for_a_tenant_that_nobody_has_fails_the_invocation_so_that_the_alarm_hears_of_it() -> None:
    service = FakeService(load_settings({**ENVIRON, "REGELATE_ENVIRONMENT": "production"}))
    with pytest.raises(Unserved, match="FORBIDDEN"):
        dispatch(inputs()[-1], LambdaContext(), lambda: service)
    assert TEMPLATE["Rules"]["ScheduledTableHasATenant"]["Assertions"] == [
        {
            "Assert": {"Fn::Not": [{"Fn::Equals": [{"Ref": "CompactTenant"}, ""]}]},
            "AssertDescription": "CompactTable needs CompactTenant, one of the tenants in config.json",
        }
    ]


def test_what_a_schedule_sends_is_played_to_the_handler_as_an_event() -> None:
    events = [json.loads(path.read_text()) for path in (ROOT / "events").glob("scheduler_*.json")]
    for sent in inputs():
        (event,) = [event for event in events if event["id"] == sent["id"]]
        assert {**event, "detail": event["detail"].keys()} == {**sent, "detail": sent["detail"].keys()}


def test_every_schedule_is_one_that_eventbridge_takes() -> None:
    rate = r"rate\((1 (minute|hour|day)|([2-9]|[1-9]\d+) (minutes|hours|days))\)"
    field = r"[\d*?/,A-Z#L-]+"
    expressions = [p["Default"] for name, p in PARAMETERS.items() if name.endswith("Schedule") and p["Default"]]
    assert expressions
    for expression in expressions:
        assert re.fullmatch(rf"{rate}|cron\(({field} ){{5}}{field}\)", expression), expression


def test_what_cannot_be_served_is_kept_and_alarmed_on() -> None:
    worker = RESOURCES["WorkerFunction"]["Properties"]["EventInvokeConfig"]
    assert worker["DestinationConfig"]["OnFailure"]["Destination"] == {"Fn::GetAtt": ["UnservedEvents", "Arn"]}
    watched = {name for alarm in of_type("AWS::CloudWatch::Alarm").values() for name in names_in(alarm["Dimensions"])}
    assert {"UnservedEvents", "ApiFunction", "WorkerFunction"} <= watched


def test_jobs_wait_in_a_fifo_queue_whose_failures_are_kept_and_alarmed_on() -> None:
    queue, letters = RESOURCES["JobsQueue"]["Properties"], RESOURCES["JobsDeadLetters"]["Properties"]
    assert (queue["FifoQueue"], letters["FifoQueue"]) == (True, True)
    assert queue["RedrivePolicy"]["deadLetterTargetArn"] == {"Fn::GetAtt": ["JobsDeadLetters", "Arn"]}
    deliveries = load_settings({**ENVIRON, "REGELATE_ENVIRONMENT": "production"}).jobs.max_deliveries
    assert queue["RedrivePolicy"]["maxReceiveCount"] == deliveries
    assert queue["VisibilityTimeout"] > RESOURCES["WorkerFunction"]["Properties"]["Timeout"]
    watched = {name for alarm in of_type("AWS::CloudWatch::Alarm").values() for name in names_in(alarm["Dimensions"])}
    assert {"JobsQueue", "JobsDeadLetters"} <= watched


def test_only_the_worker_takes_jobs_one_at_a_time_and_reports_each() -> None:
    events = RESOURCES["WorkerFunction"]["Properties"]["Events"]
    assert events["Jobs"]["Properties"] == {
        "Queue": {"Fn::GetAtt": ["JobsQueue", "Arn"]},
        "BatchSize": 1,
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
        "ScalingConfig": {"MaximumConcurrency": {"Ref": "JobConcurrency"}},
    }
    assert PARAMETERS["JobConcurrency"]["MinValue"] == 2  # the least that an event source takes
    assert "Events" not in RESOURCES["ApiFunction"]["Properties"]
    assert "sqs:ReceiveMessage" not in json.dumps(RESOURCES["ApiRole"])


def test_a_full_queue_leaves_a_worker_for_schedules_and_for_invokes_by_hand() -> None:
    worker = RESOURCES["WorkerFunction"]["Properties"]
    assert worker["ReservedConcurrentExecutions"] == {"Ref": "WorkerConcurrency"}
    for value in ("Default", "MinValue"):
        assert PARAMETERS["JobConcurrency"][value] < PARAMETERS["WorkerConcurrency"][value]
    assert "below WorkerConcurrency" in PARAMETERS["JobConcurrency"]["Description"]


def test_the_jobs_table_has_the_key_and_the_ttl_that_the_store_writes() -> None:
    table = RESOURCES["JobsTable"]["Properties"]
    records = ROOT / "src" / "regelate" / "adapters" / "records"
    source = "".join((records / f"{name}.py").read_text() for name in ("dynamo_table", "dynamo_jobs"))
    assert table["KeySchema"] == [{"AttributeName": "pk", "KeyType": "HASH"}]
    assert table["TimeToLiveSpecification"] == {"AttributeName": "expires", "Enabled": True}
    indexes = {
        index["IndexName"]: {key["KeyType"]: key["AttributeName"] for key in index["KeySchema"]}
        for index in table["GlobalSecondaryIndexes"]
    }
    assert indexes == {
        INDEX: {"HASH": "listed_as", "RANGE": "listed_at"},
        WAITING: {"HASH": "waits_as", "RANGE": "listed_at"},
    }
    assert {d["AttributeName"] for d in table["AttributeDefinitions"]} == {"pk", "listed_as", "listed_at", "waits_as"}
    assert all(f"/index/{index}" in json.dumps(RESOURCES["JobsPolicy"]) for index in indexes)
    assert '{"pk": {"S": key}}' in source
    assert '"expires": {"N":' in source


def test_the_functions_find_the_table_and_the_queue_of_their_stack() -> None:
    variables = TEMPLATE["Globals"]["Function"]["Environment"]["Variables"]
    environ = {
        name: value if isinstance(value, str) else value["Ref"] for name, value in variables.items() if "JOBS" in name
    }
    settings = load_settings({**ENVIRON, **environ, "REGELATE_ENVIRONMENT": "production"})
    assert (settings.jobs.store, settings.jobs.table, settings.jobs.queue_url) == ("dynamodb", "JobsTable", "JobsQueue")


def test_alarms_on_metrics_of_ours_name_metrics_and_dimensions_that_exist() -> None:
    ours = [alarm for alarm in of_type("AWS::CloudWatch::Alarm").values() if alarm["Namespace"] == NAMESPACE]
    assert ours
    for alarm in ours:
        assert alarm["MetricName"] in {metric.name for metric in METRICS}
        dimensions = {dimension["Name"]: dimension["Value"] for dimension in alarm["Dimensions"]}
        assert dimensions == {"service": SERVICE, "environment": {"Ref": "Environment"}}


def test_every_alarm_has_its_page_in_the_runbook() -> None:
    headings = re.findall(r"^### (\w+)$", (ROOT / "docs" / "operations.md").read_text(), re.MULTILINE)
    assert set(of_type("AWS::CloudWatch::Alarm")) == {name for name in headings if name.endswith("Alarm")}


def test_every_request_to_the_api_has_a_line_in_json_that_holds_no_token() -> None:
    settings = RESOURCES["HttpApiStage"]["Properties"]["AccessLogSettings"]
    assert settings["DestinationArn"] == {"Fn::GetAtt": ["ApiAccessLogs", "Arn"]}
    fields = json.loads(settings["Format"])
    assert {"requestId", "ip", "route", "status"} <= set(fields)
    assert not any("header" in field.lower() or "claims" in field for field in fields.values())


def test_the_functions_touch_no_database_of_glue_outside_of_the_prefix() -> None:
    text = (ROOT / "template.yaml").read_text()
    assert {rest[:18] for rest in re.findall(r":(?:database|table)/(.*)", text)} == {"${DatabasePrefix}*"}


def test_what_sam_local_sets_is_declared() -> None:
    everywhere = set(TEMPLATE["Globals"]["Function"]["Environment"]["Variables"])
    for function, variables in json.loads((ROOT / "env.json").read_text()).items():
        own = RESOURCES[function]["Properties"].get("Environment", {}).get("Variables", {})
        assert set(variables) <= everywhere | set(own)
        assert load_settings({**ENVIRON, **variables}).auth == "none"


def test_samconfig_sets_parameters_that_exist_to_values_that_they_take() -> None:
    config = tomllib.loads((ROOT / "samconfig.toml").read_text())
    for environment in ("default", "production"):
        for override in config[environment]["deploy"]["parameters"]["parameter_overrides"]:
            name, _, value = override.partition("=")
            assert value in PARAMETERS[name].get("AllowedValues", [value])
            assert re.fullmatch(PARAMETERS[name].get("AllowedPattern", ".*"), value)


def test_the_documents_explain_every_parameter() -> None:
    told = set(re.findall(r"`([A-Z]\w+)`", (ROOT / "docs" / "deploy.md").read_text()))
    assert set(PARAMETERS) - told == set()
