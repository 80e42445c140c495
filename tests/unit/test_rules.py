# SPDX-License-Identifier: Apache-2.0
"""deploy/prometheus: Prometheus takes the rules, they do what tests/prometheus says, and nothing
in them asks for a metric, a label or a page that is not there."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelined.commands.export import DEFAULT_ADDRESS
from traces.documented import of_prometheus
from unit.test_metrics import (
    STORED,
    FakeHistory,
    FakeSinks,
    FakeWebConfig,
    MeasuredObserver,
    scrape,
    scrape_sender,
    several_series,
)

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus"
RECORDING, ALERTS = RULES / "recording.rules.yml", RULES / "alerts.rules.yml"
CASES = sorted((ROOT / "tests" / "prometheus").glob("*.test.yml"))

#: What Prometheus adds to each series that it scrapes.
TARGET = {"job", "instance"}
#: Metrics that are not the daemon's.
OF_PROMETHEUS = {"up"}

_RULE = re.compile(r"^      - (alert|record): (\S+)\n((?:^        .*\n|^\n)*)", re.MULTILINE)
_NAME = re.compile(r"(?<![\w:])(?:\w+:)?(?:pipelined|process)_\w+(?::\w+)?|\bup\b")
_SELECTOR = re.compile(rf"({_NAME.pattern})\{{([^}}]*)\}}")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left)\s*\(([\w, ]*)\)")


@dataclass(frozen=True)
class Rule:
    kind: str
    name: str
    body: str

    @property
    def expression(self) -> str:
        return self.block("expr")

    @property
    def names(self) -> set[str]:
        """Metrics and recorded series that the expression asks for."""
        return set(_NAME.findall(re.sub(r'"[^"]*"', '""', self.expression)))

    def block(self, key: str) -> str:
        """The text of one key, which may go over several deeper indented lines."""
        found = re.search(rf"^( +){key}:(.*\n(?:\1 +.*\n|\n)*)", self.body, re.MULTILINE)
        return (
            "" if found is None else found[2].strip().removeprefix("|").removeprefix(">-").strip()
        )


def rules_of(file: Path) -> list[Rule]:
    """The rules of a file, as far as these files use YAML. promtool says if one is missed."""
    text = re.sub(r"^ *#.*\n", "", file.read_text(), flags=re.MULTILINE)
    return [Rule(*found) for found in _RULE.findall(text + "\n")]


ALL = rules_of(RECORDING) + rules_of(ALERTS)
RECORDED = [rule for rule in ALL if rule.kind == "record"]
ALERTING = [rule for rule in ALL if rule.kind == "alert"]


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("promtool")
    assert program, "promtool is missing: run make setup (Debian: apt-get install prometheus)"
    return subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=1200
    )


@cache
def exposed() -> dict[str, dict[str, set[str]]]:
    """Metric → its labels → the values that the collectors of daemon and sender gave them."""
    found: dict[str, dict[str, set[str]]] = {}
    of_daemon = scrape(
        MeasuredObserver(several_series()), FakeHistory(STORED), FakeWebConfig(), FakeSinks()
    )
    for name, labels in (*of_daemon, *scrape_sender()):
        of_metric = found.setdefault(name, {})
        for label, value in labels:
            of_metric.setdefault(label, set()).add(value)
    return found


def by_name(rule: Rule) -> str:
    return rule.name


each_rule = pytest.mark.parametrize("rule", ALL, ids=by_name)
each_recording = pytest.mark.parametrize("rule", RECORDED, ids=by_name)
each_alert = pytest.mark.parametrize("alert", ALERTING, ids=by_name)


# -- what promtool says


@pytest.mark.parametrize("file", [RECORDING, ALERTS], ids=lambda file: file.name)
def test_promtool_reads_every_rule_that_these_tests_read(file: Path) -> None:
    checked = promtool("check", "rules", file)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"SUCCESS: {len(rules_of(file))} rules found" in checked.stdout


def test_the_configuration_is_valid_and_loads_both_files() -> None:
    checked = promtool("check", "config", RULES / "prometheus.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "SUCCESS: 2 rule files found" in checked.stdout


def test_the_example_has_a_job_for_the_sender_to_be_uncommented(tmp_path: Path) -> None:
    text = (RULES / "prometheus.yml").read_text()
    head, name, job = text.partition("  # - job_name: pipelined-export\n")
    lines = re.sub(r"^  # ", "  ", name + job.split("\n\n")[0], flags=re.MULTILINE)
    (tmp_path / "prometheus.yml").write_text(
        head.replace("  - recording.rules.yml\n", "").replace("  - alerts.rules.yml\n", "") + lines
    )
    checked = promtool("check", "config", tmp_path / "prometheus.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    jobs = yaml.safe_load((tmp_path / "prometheus.yml").read_text())["scrape_configs"]
    assert [job["job_name"] for job in jobs] == ["pipelined", "pipelined-export"]
    assert jobs[1]["static_configs"] == [{"targets": [DEFAULT_ADDRESS]}]


#: Alerts that look back for days: half a minute of promtool each.
DAYS = {"failures.test.yml", "history.test.yml"}


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] * (case.name in DAYS)) for case in CASES],
    ids=[case.name for case in CASES],
)
def test_the_rules_do_what_the_case_says(case: Path) -> None:
    tested = promtool("test", "rules", case)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_a_case_is_able_to_fail(tmp_path: Path) -> None:
    source = (ROOT / "tests" / "prometheus" / "recording.test.yml").read_text()
    wrong = tmp_path / "wrong.test.yml"
    wrong.write_text(
        source.replace("../../deploy", f"{ROOT}/deploy").replace("value: 0.444", "value: 0.445")
    )
    assert promtool("test", "rules", wrong).returncode != 0


# -- what is tested


@each_alert
def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not(
    alert: Rule,
) -> None:
    text = "".join(case.read_text() for case in CASES)
    outcomes = re.findall(
        rf"alertname: {alert.name}\n +eval_time: \w+\n +exp_alerts:( \[\])?\n", text
    )
    assert set(outcomes) == {"", " []"}


@each_recording
def test_every_recording_rule_is_asked_for_by_a_case_or_another_rule(rule: Rule) -> None:
    cases = "".join(case.read_text() for case in CASES)
    assert rule.name in cases or any(rule.name in other.names for other in ALL if other != rule)


# -- what alerts say


#: Warning, or critical of a job whose name says so.
OF_THE_JOB = """'{{ if match "^critical-" $labels.unit }}critical{{ else }}warning{{ end }}'"""
SEVERITIES = dict.fromkeys(["PipelineFailed", "PipelineOutOfMemory", "PipelineOverdue"], OF_THE_JOB)


@each_alert
def test_every_alert_says_what_is_wrong_how_bad_it_is_and_where_to_read_on(alert: Rule) -> None:
    assert alert.block("severity") == SEVERITIES.get(alert.name, "warning")
    assert len(alert.block("summary")) > 20
    assert len(alert.block("description")) > len(alert.block("summary"))
    page, _, anchor = alert.block("runbook_url").partition("#")
    sections = re.findall(r"^## (\w+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert alert.name in sections
    assert anchor == alert.name.lower()


def test_the_runbook_has_no_section_of_an_alert_that_is_gone() -> None:
    sections = re.findall(r"^## (\w+)$", (ROOT / "docs" / "RUNBOOK.md").read_text(), re.MULTILINE)
    assert set(sections) == {alert.name for alert in ALERTING}


# -- what rules ask for


@each_rule
def test_a_rule_asks_only_for_series_that_exist(rule: Rule) -> None:
    recorded = {other.name for other in RECORDED}
    assert rule.names
    assert rule.names <= recorded | set(exposed()) | OF_PROMETHEUS


@each_rule
def test_a_rule_uses_only_labels_that_exist(rule: Rule) -> None:
    every = TARGET.union(*exposed().values())
    used = {
        label.strip()
        for labels in _GROUPING.findall(rule.expression)
        for label in labels.split(",")
        if label.strip()
    }
    assert used <= every
    for name, inside in _SELECTOR.findall(rule.expression):
        labels = exposed().get(name)
        for label, _, _ in _MATCHER.findall(inside):
            assert label in (every if labels is None else TARGET | set(labels)), (name, label)


@each_rule
def test_a_rule_asks_only_for_label_values_that_the_daemon_gives(rule: Rule) -> None:
    fixed = {
        "level",
        "state",
        "mode",
        "side",
        "overlapped",
        "class",
        "nested",
        "tier",
        "reason",
        "at",
    }
    for name, inside in _SELECTOR.findall(rule.expression):
        for label, operator, value in _MATCHER.findall(inside):
            known = exposed().get(name, {}).get(label)
            if label in fixed and known is not None:
                wanted = value.split("|") if operator in ("=~", "!~") else [value]
                assert set(wanted) <= known, (name, label)


@each_rule
def test_a_sum_over_pipelines_leaves_nested_ones_out(rule: Rule) -> None:
    if rule.name.split(":")[0] in {"unit", "instance", "job"}:
        assert rule.expression.count('nested="false"') == len(_NAME.findall(rule.expression))


def test_the_page_lists_what_is_recorded() -> None:
    page = (ROOT / "docs" / "PROMETHEUS.md").read_text()
    listed = set(re.findall(r"`(\w+:pipelined_\w+:\w+)`", page))
    for metric, levels in re.findall(r"^\| `(\w+:\w+)` \| ([a-z, ]+) \|", page, re.MULTILINE):
        listed |= {f"{level}:{metric}" for level in levels.split(", ")}
    assert listed == {rule.name for rule in RECORDED}


def yaml_with(key: str) -> tuple[str, Any]:
    """The block of the page that has this key, and what is in it."""
    page = (ROOT / "docs" / "PROMETHEUS.md").read_text()
    for block in re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        if key in (found := yaml.safe_load(block)):
            return block, found
    raise AssertionError(key)


def test_what_the_page_makes_critical_is_what_can_be(tmp_path: Path) -> None:
    block, found = yaml_with("alerting")
    (tmp_path / "prometheus.yml").write_text(block)
    checked = promtool("check", "config", tmp_path / "prometheus.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    (relabel,) = found["alerting"]["alert_relabel_configs"]
    of_job = re.compile(relabel["regex"])
    wanted = {rule.name for rule in ALERTING if of_job.fullmatch(f"{rule.name};billing.service")}
    assert wanted == set(SEVERITIES)
    assert not of_job.fullmatch("PipelineFailed;nightly.service")


def test_what_the_page_inhibits_are_alerts_with_the_labels_that_it_compares() -> None:
    _, found = yaml_with("route")
    labels = TARGET.union(*exposed().values())
    for rule in found["inhibit_rules"]:
        assert set(rule["equal"]) <= labels
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            assert matcher.removeprefix("alertname=").strip('"') in {each.name for each in ALERTING}


def parsed_by_promtool(queries: list[str], directory: Path) -> list[Rule]:
    """The queries as rules, after promtool has taken them."""
    file = directory / "queries.rules.yml"
    file.write_text(
        "groups:\n  - name: queries\n    rules:\n"
        + "".join(f"      - record: q:{n}\n        expr: {q}\n" for n, q in enumerate(queries))
    )
    checked = promtool("check", "rules", file)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    written = rules_of(file)
    assert len(written) == len(queries)
    return written


def test_the_queries_about_metrics_are_valid_and_ask_for_metrics_that_exist(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "METRICS.md").read_text()
    blocks = re.findall(r"(?:^    [^#\n].*\n)+", page, re.MULTILINE)
    queries = [" ".join(block.split()) for block in blocks]
    written = parsed_by_promtool(queries, tmp_path)
    assert len(written) > 15
    assert {name for rule in written for name in rule.names} <= set(exposed())
    labels = {label for of_metric in exposed().values() for label in of_metric}
    for rule in written:
        for names in _GROUPING.findall(rule.expression):
            assert {name.strip() for name in names.split(",") if name.strip()} <= labels, rule


def test_the_queries_of_the_page_are_valid_and_ask_for_series_that_exist(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "PROMETHEUS.md").read_text()
    section = page.split("## Queries to start from")[1].split("\n## ")[0]
    queries = re.findall(r"^    ([^#\n].*)$", section, re.MULTILINE)
    written = parsed_by_promtool(queries, tmp_path)
    assert len(written) > 3
    assert {name for rule in written for name in rule.names} <= {rule.name for rule in RECORDED}


def test_the_query_for_failures_of_spans_counts_the_first_one_of_a_job(tmp_path: Path) -> None:
    failed = 'traces_span_metrics_duration_seconds_count{pipelined_run_outcome="failed"'
    stored = {"first": "_x45 1x3", "second": "0x30 5x15 7x3", "long ago": "4x48"}
    case = {
        "interval": "1h",
        "input_series": [
            {"series": f'{failed}, pipelined_unit="{unit}"}}', "values": values}
            for unit, values in stored.items()
        ],
        "promql_expr_test": [
            {
                "expr": of_prometheus()["which failed most often?"],
                "eval_time": "2d",
                "exp_samples": [
                    {"labels": f'{{pipelined_unit="{unit}"}}', "value": value}
                    for unit, value in (("first", 1), ("second", 7))
                ],
            }
        ],
    }
    (tmp_path / "spans.test.yml").write_text(yaml.safe_dump({"tests": [case]}))
    tested = promtool("test", "rules", tmp_path / "spans.test.yml")
    assert tested.returncode == 0, tested.stdout + tested.stderr
