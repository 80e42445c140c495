# SPDX-License-Identifier: Apache-2.0
"""What deploy/ hands to Kubernetes and to Docker compose, rendered by kustomize as `kubectl apply
-k` would, is valid by the published schemas. `make test-deploy` gets these and runs this."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft7Validator, ValidationError

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "build" / "deploy"
KUBERNETES = ROOT / "deploy" / "kubernetes"
#: The oldest release that is held against its schemas, and the newest that the package knows.
RELEASES = ["1.28", kubernetes_validate.latest_version()]
OPERATOR = "monitoring.coreos.com/v1"


#: Directories below deploy/kubernetes, each with the component that sends runs.
WITH_SENDER = {f"{directory}+export": directory for directory in (".", "daemon", "batch-nodes")}


@cache
def rendered(directory: str) -> list[dict[str, Any]]:
    """Every object that kustomize makes of a directory below deploy/kubernetes."""
    program = TOOLS / "kustomize"
    assert program.exists(), "run: make test-deploy"
    with tempfile.TemporaryDirectory(dir=TOOLS) as overlay:
        place = KUBERNETES / directory
        if base := WITH_SENDER.get(directory):
            place = Path(overlay)
            named = {"resources": base, "components": "export"}
            where = {kind: [os.path.relpath(KUBERNETES / at, place)] for kind, at in named.items()}
            (place / "kustomization.yaml").write_text(yaml.safe_dump(where))
        done = subprocess.run(
            [program, "build", place], capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    assert not done.stderr  # deprecations
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def one(kind: str, directory: str = ".", name: str = "pipelined") -> dict[str, Any]:
    found = [
        each
        for each in rendered(directory)
        if each["kind"] == kind and each["metadata"]["name"] == name
    ]
    assert len(found) == 1
    return found[0]


def closed(schema: Any) -> Any:
    """The schema with unknown fields refused, as the API server does with strict validation."""
    if isinstance(schema, dict):
        inner = {key: closed(value) for key, value in schema.items()}
        if isinstance(pattern := inner.get("pattern"), str):
            inner["pattern"] = pattern.replace("^(?i)", "(?i)^")  # Go allows it anywhere
        if "properties" in inner and not inner.get("x-kubernetes-preserve-unknown-fields"):
            inner.setdefault("additionalProperties", False)
        return inner
    return [closed(each) for each in schema] if isinstance(schema, list) else schema


def of_operator(kind: str) -> Any:
    """The schema of one of the Prometheus operator's resources."""
    file = TOOLS / f"monitoring.coreos.com_{kind.lower()}s.yaml"
    versions = yaml.safe_load(file.read_text())["spec"]["versions"]
    (version,) = (each for each in versions if each["name"] == "v1")
    schema = closed(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    return schema


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("directory", [".", "daemon", "batch-nodes", *WITH_SENDER])
def test_kubernetes_takes_every_object_of_its_own(directory: str, release: str) -> None:
    own = [each for each in rendered(directory) if each["apiVersion"] != OPERATOR]
    kinds = {"Namespace", "ServiceAccount", "ConfigMap", "DaemonSet", "NetworkPolicy"}
    assert kinds == {e["kind"] for e in own}
    for each in own:
        kubernetes_validate.validate(each, release, strict=True)


@pytest.mark.parametrize("directory", WITH_SENDER)
def test_a_daemon_whose_runs_are_sent_is_told_so(directory: str) -> None:
    containers = one("DaemonSet", directory)["spec"]["template"]["spec"]["containers"]
    told = [each["name"] for each in containers if "--traces-exported" in each["args"]]
    assert told == ["pipelined"]


@pytest.mark.parametrize("kind", ["PodMonitor", "PrometheusRule"])
def test_the_prometheus_operator_takes_its_objects(kind: str) -> None:
    found = [each for each in rendered(".") if each["kind"] == kind]
    assert len(found) == (2 if kind == "PodMonitor" else 1)
    for each in found:
        Draft7Validator(of_operator(kind)).validate(each)


@pytest.mark.parametrize("kind", ["PodMonitor", "PrometheusRule"])
def test_a_misspelt_field_is_refused(kind: str) -> None:
    """The two tests above are able to fail."""
    wrong = json.loads(json.dumps(one(kind)))
    wrong["spec"]["gruops"] = []
    with pytest.raises(ValidationError, match="gruops"):
        Draft7Validator(of_operator(kind)).validate(wrong)
    policy = json.loads(json.dumps(one("NetworkPolicy")))
    policy["spec"]["ingress"][0]["form"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(policy, RELEASES[-1], strict=True)
    daemonset = json.loads(json.dumps(one("DaemonSet")))
    daemonset["spec"]["template"]["spec"]["hostPid"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(daemonset, RELEASES[-1], strict=True)


def test_there_are_objects_of_the_operator_only_where_they_are_asked_for() -> None:
    assert {e["kind"] for e in rendered(".") if e["apiVersion"] == OPERATOR} == {
        "PodMonitor",
        "PrometheusRule",
    }
    assert not [e for e in rendered("daemon") if e["apiVersion"] == OPERATOR]


def test_the_pods_read_the_configuration_that_is_rendered() -> None:
    volumes = one("DaemonSet")["spec"]["template"]["spec"]["volumes"]
    (named,) = (volume["configMap"]["name"] for volume in volumes if "configMap" in volume)
    maps = {e["metadata"]["name"]: e["data"] for e in rendered(".") if e["kind"] == "ConfigMap"}
    assert maps[named].keys() == {"pipelined.toml"}
    assert named != "pipelined", "without a hash a changed file restarts nothing"


def test_every_dashboard_is_in_a_config_map_that_grafanas_sidecar_takes() -> None:
    found = {
        file: json.loads(text)
        for each in rendered(".")
        if each["metadata"].get("labels", {}).get("grafana_dashboard") == "1"
        for file, text in each["data"].items()
    }
    files = sorted((ROOT / "dashboards").glob("*.json"))
    assert found == {file.name: json.loads(file.read_text()) for file in files}


def test_everything_with_a_namespace_is_in_the_one_that_is_made() -> None:
    made = one("Namespace")["metadata"]["name"]
    placed = {e["metadata"].get("namespace") for e in rendered(".") if e["kind"] != "Namespace"}
    assert placed == {made}


def test_the_batch_nodes_alone_get_pods() -> None:
    pod = one("DaemonSet", "batch-nodes")["spec"]["template"]["spec"]
    assert "node.example.org/pool" in pod["nodeSelector"]
    assert {each["key"] for each in pod["tolerations"]} == {"node.example.org/pool"}
    assert "tolerations" not in one("DaemonSet")["spec"]["template"]["spec"]


@pytest.mark.parametrize("directory", WITH_SENDER)
def test_the_component_adds_a_container_that_reads_the_variables_that_are_rendered(
    directory: str,
) -> None:
    pod = one("DaemonSet", directory)["spec"]["template"]["spec"]
    daemon, sender = sorted(pod["containers"], key=lambda container: container["name"] == "export")
    plain = one("DaemonSet", WITH_SENDER[directory])["spec"]["template"]["spec"]
    (alone,) = plain["containers"]
    assert daemon == {**alone, "args": [*alone["args"], "--traces-exported"]}
    assert sender["image"] == pod["initContainers"][0]["image"] == daemon["image"]
    named = sender["envFrom"][0]["configMapRef"]["name"]
    maps = {e["metadata"]["name"] for e in rendered(directory) if e["kind"] == "ConfigMap"}
    assert named in maps and named != "pipelined-export"


@pytest.mark.parametrize("directory", WITH_SENDER)
def test_the_component_opens_the_way_to_the_back_end_and_the_senders_port(directory: str) -> None:
    policy = one("NetworkPolicy", directory)["spec"]
    assert [port["port"] for port in policy["ingress"][0]["ports"]] == ["metrics", "export"]
    assert [port["port"] for rule in policy["egress"] for port in rule["ports"]] == [53, 53, 4318]


def test_without_the_component_nothing_is_sent() -> None:
    assert len(one("DaemonSet")["spec"]["template"]["spec"]["containers"]) == 1
    assert one("NetworkPolicy")["spec"]["egress"] == []


def test_compose_takes_the_file() -> None:
    schema = Draft7Validator(json.loads((TOOLS / "compose-spec.json").read_text()))
    composed = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    schema.validate(composed)
    composed["services"]["pipelined"]["cap_ad"] = []
    with pytest.raises(ValidationError, match="cap_ad"):
        schema.validate(composed)
