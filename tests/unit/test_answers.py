# SPDX-License-Identifier: Apache-2.0
"""The published schema, docs/API.md and the program's answers agree."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from flask.testing import FlaskClient
from hypothesis import given
from jsonschema import Draft202012Validator

from answer_schema import SCHEMA, problems
from pipelined.analysis.comparison import compare_runs, compare_trials, comparison_as_dict
from pipelined.analysis.comparison_reasons import Trial
from pipelined.answers.described import describe_run
from pipelined.history.history import History
from pipelined.run.child import Ended
from pipelined.run.profile import Profile, write_json
from pipelined.runs import Run
from pipelined.runs.codec import written
from pipelined.starter import Starter, boot_id
from pipelined.web.app import create_app
from unit.invented import (
    START,
    make_ended,
    make_finished,
    make_inside,
    make_live,
    make_stage,
)
from unit.observed import HOST, FakeObserver, hook, run, three_runs
from unit.test_codec import patient, runs

TOP = Path(__file__).parents[2]
ME = Starter(4711, 100)


@pytest.fixture(scope="module")
def reference() -> Iterator[ModuleType]:
    """deploy/api_reference.py, loaded without running it."""
    file = TOP / "deploy" / "api_reference.py"
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[file.stem]


# -- the schema itself


def test_the_schema_is_that_of_the_types(reference: ModuleType) -> None:
    assert reference.SCHEMA.read_text() == reference.schema(), "run: make api"


def test_the_tables_of_the_page_are_those_of_the_types(reference: ModuleType) -> None:
    page = reference.REFERENCE.read_text()
    assert page == reference.reference(page), "run: make api"


def test_a_key_that_means_the_same_in_another_class_is_only_named(reference: ModuleType) -> None:
    page = (TOP / "docs" / "API.md").read_text()
    rows = page.split("<!-- keys of Summary Compared like Run -->")[1].split("<!-- end")[0]
    assert "| `usual_seconds` |" in rows and "| `cores_used` |" not in rows
    (named,) = [line for line in rows.splitlines() if line.startswith("As of a run: ")]
    assert "`cores_used`" in named and "`outcome`" not in named  # which means another thing here
    with pytest.raises(ValueError, match=r"no class .*Nobody"):
        reference.reference(page.replace(" like Run -->", " like Nobody -->"))


def test_keys_of_an_object_follow_the_key_that_has_it(reference: ModuleType) -> None:
    page = (TOP / "docs" / "API.md").read_text()
    keys = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    begin = keys.index("edges")
    assert keys[begin : begin + 3] == ["edges", "edges[].writer", "edges[].reader"]
    assert "surroundings.pipelines[].cpu_seconds" in keys
    with pytest.raises(ValueError, match=r"no key of the table has \['Host'\]"):
        reference.reference(page.replace(" OtherPipeline -->", " OtherPipeline Host -->"))


def test_a_class_may_be_in_the_schema_alone(reference: ModuleType) -> None:
    page = (TOP / "docs" / "API.md").read_text()
    assert "<!-- in the schema alone: DiagramJson BoxJson " in page
    with pytest.raises(ValueError, match=r"no class \['Nobody'\].* leave out \['DiagramJson'\]"):
        reference.reference(page.replace("alone: DiagramJson", "alone: Nobody"))


def test_a_class_that_no_table_shows_is_found(reference: ModuleType) -> None:
    page = reference.REFERENCE.read_text().replace("keys of Finding ", "keys of Edge ")
    with pytest.raises(ValueError, match=r"leave out \['Finding'\]"):
        reference.reference(page)


def test_the_page_names_every_key_of_a_stage() -> None:
    page = (TOP / "docs" / "API.md").read_text().split("\n### A stage\n")[1].split("\n### ")[0]
    named = set(re.findall(r"`(\w+)`", page))
    assert sorted(SCHEMA["$defs"]["Stage"]["properties"].keys() - named) == []


def test_the_table_of_errors_has_every_status_that_the_program_names() -> None:
    page = (TOP / "docs" / "API.md").read_text().split("\n## Errors\n")[1]
    rows = re.findall(r"(?m)^\| ([\d, ]+) \| (.*)", page)
    listed = {
        status for first, text in rows for status in re.findall(r"\b\d{3}\b", f"{first} {text}")
    }
    package = TOP / "daemon" / "pipelined"
    source = "\n".join(
        file.read_text() for part in ("http_port", "web") for file in (package / part).glob("*.py")
    )
    named = set(re.findall(r"(?:Refusal\(|abort\(|else |: \()([45]\d\d)\b", source))
    assert len(named) > 10
    assert sorted(named - listed) == []


def test_the_schema_is_one_of_draft_2020_12() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def properties() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, definition in SCHEMA["$defs"].items():
        for key, described in definition["properties"].items():
            yield f"{name}.{key}", described


def test_every_object_and_every_key_has_a_meaning() -> None:
    assert [name for name, found in SCHEMA["$defs"].items() if not found["description"]] == []
    assert [name for name, found in properties() if not found["description"]] == []


UNITS = {
    "_timestamp_seconds": "seconds since 1970-01-01 UTC",
    "_seconds": "seconds",
    "_bytes": "bytes",
    "_ratio": "ratio, 0 to 1",
}


def holds_objects(described: dict[str, Any]) -> bool:
    return described.get("type") in ("object", "array") or "anyOf" in described


def test_numbers_have_the_unit_that_their_names_end_in() -> None:
    ended = [
        (name, found, next(unit for ending, unit in UNITS.items() if name.endswith(ending)))
        for name, found in properties()
        if name.endswith(tuple(UNITS)) and "$ref" not in found and not holds_objects(found)
    ]
    assert len(ended) > 50
    assert [name for name, found, unit in ended if found.get("unit") != unit] == []


def test_a_key_that_the_schema_does_not_have_is_a_problem() -> None:
    described = json.loads(json.dumps(written(run(1))))
    described["stages"][0]["colour_of_the_moon"] = "grey"
    (problem,) = problems(described, "Run")
    assert problem.startswith("$.stages[0]: Additional properties are not allowed")


def test_a_key_that_is_missing_is_a_problem() -> None:
    described = json.loads(json.dumps(written(run(1))))
    del described["stages"][1]["pipe_bytes"]["in"]
    assert problems(described, "Run") == ["$.stages[1].pipe_bytes: 'in' is a required property"]


# -- answers


@patient
@given(runs)
def test_every_run_is_as_the_schema_has_it(found: Run) -> None:
    for shown in (False, True):
        described = json.loads(json.dumps(describe_run(found, HOST, shown)))
        assert problems(described, "DescribedRun") == []


@pytest.fixture
def history(tmp_path: Path) -> History:
    """A history with three runs, of which one is nested."""
    job = make_ended(1, "job.sh|tee")
    kept = History(tmp_path, host=HOST, max_age=1e12, show_arguments=True)
    for one in (job, make_inside(job, 2), make_ended(5)):
        kept.sink.put(make_finished(one))
    kept.sink.start()
    kept.sink.close(20)
    return kept


@pytest.fixture
def client(history: History) -> FlaskClient:
    job = make_live(make_ended(1, "job.sh|tee", wall=60.0))
    inner = make_live(make_inside(job, 2, "seq|(sort,wc)", wall=50.0))
    observer = FakeObserver(*three_runs(), inner, job)
    observer.talks = [run(7)]
    observer.starter = ME
    observer.found_hooks = [replace(hook("vfs_read"), attached=False, pending=True)]
    app = create_app(observer, host=HOST, history=history, show_arguments=True)  # type: ignore[arg-type]
    return app.test_client()


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/api/v1/pipelines", "Pipelines"),
        ("/api/v1/pipelines?conversations=true", "Pipelines"),
        ("/api/v1/pipelines/summary?since=2020-01-01", "PipelinesSummary"),
        ("/api/v1/jobs/summary?since=2020-01-01", "JobsSummary"),
        (f"/api/v1/started?by={ME.address(boot_id())}", "Started"),
        ("/api/v1/runs", "RunList"),
        ("/api/v1/runs?since=0&limit=1", "RunList"),
        ("/api/v1/runs/last", "RunWithTimeline"),
        ("/api/v1/runs/run-3", "RunWithTimeline"),
        ("/api/v1/now", "Now"),
        ("/api/v1/hooks", "Hooks"),
        ("/api/v1/compare?a=run-1&b=run-2", "Comparison"),
        ("/healthz", "Health"),
        ("/readyz", "Readiness"),
        ("/api/v1/nothing", "Error"),
    ],
)
def test_an_answer_is_as_the_schema_has_it(client: FlaskClient, path: str, name: str) -> None:
    answer = client.get(path).get_json()
    assert problems(answer, name) == []
    assert Draft202012Validator(SCHEMA).is_valid(answer)


def test_every_path_of_the_api_is_in_the_schema(client: FlaskClient) -> None:
    rules = client.application.url_map.iter_rules()
    paths = {rule.rule.replace("<which>", "ID") for rule in rules if "/api/" in rule.rule}
    described = " ".join(SCHEMA["$defs"][name]["description"] for name in SCHEMA["$defs"])
    assert {path for path in paths if path not in described} == {"/api/v1/schema"}


def test_the_schema_is_served(client: FlaskClient) -> None:
    answer = client.get("/api/v1/schema")
    assert (answer.content_type, answer.json) == ("application/schema+json", SCHEMA)


def test_the_report_of_a_command_is_as_the_schema_has_it(tmp_path: Path) -> None:
    stages = (make_stage(1, "sort", cpu=9.0, read_bytes=1 << 24),)
    busy = replace(make_ended(3, "sort"), stages=stages, wall_seconds=9.0)
    found = (make_ended(1, "cat|sort|uniq"), make_live(make_ended(2)), busy)
    ended = Ended(0, START, 12.0, 10.0)
    file = tmp_path / "run.json"
    with file.open("w") as out:
        write_json(Profile(("sh",), ended, found, {"stages": 0, "pipes": 2}), out)
    described = json.loads(file.read_text())
    assert problems(described, "RunReport") == []
    assert described["parts"][0]["top_finding"]["id"] == "sort-locale"


def test_comparisons_are_as_the_schema_has_them() -> None:
    slow, quick = make_ended(1, "cat|sort|uniq", wall=9.0), make_ended(2, "sort", wall=3.0)
    nothing_seen = [Trial(1.0, 0.5, None)] * 5
    rounds = [Trial(slow.wall_seconds, slow.cpu_seconds, slow)] * 5
    for found in (
        compare_runs(slow, quick),
        compare_trials(["a", "b", "c"], [rounds, nothing_seen, rounds], ["a note"]),
    ):
        assert problems(json.loads(json.dumps(comparison_as_dict(found))), "Comparison") == []
