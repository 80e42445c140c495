# SPDX-License-Identifier: Apache-2.0
"""The Helm chart gives the objects that kustomize makes of deploy/kubernetes, and each value has
its effect. `make test-chart` gets helm and kustomize and runs this; `make test-release` too."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft7Validator

from deploy.test_schemas import OPERATOR, RELEASES, TOOLS, of_operator, rendered
from pipelined import __version__
from unit.test_deploy import module

ROOT = Path(__file__).parents[2]
EVERYTHING = (
    *("monitoring.enabled=true", "dashboards.enabled=true", "export.enabled=true"),
    *("webConfig.secretName=web", "export.clientSecretName=client"),
    "export.url=https://127.0.0.1:9905",
)

Object = dict[str, Any]


@pytest.fixture(scope="session")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart of the version in the source, unpacked."""
    place = tmp_path_factory.mktemp("chart") / "pipelined"
    for path, text in module(ROOT / "deploy/helm/build.py").files(__version__).items():
        file = place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return place


def helm(*words: str | Path) -> subprocess.CompletedProcess[str]:
    program = TOOLS / "helm"
    assert program.exists(), "run: make test-chart"
    if words[0] == "template":  # of which cluster, it cannot know
        words = (*words, "--kube-version", f"{RELEASES[0]}.0")
    return subprocess.run(
        [program, *words], capture_output=True, text=True, check=False, env={"HOME": str(TOOLS)}
    )


@cache
def made(chart: Path, *values: str) -> list[Object]:
    """What a release named `it` in the namespace pipelined would have, with these values."""
    options = [word for value in values for word in ("--set", value)]
    done = helm("template", "it", chart, "--namespace", "pipelined", *options)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def one(objects: list[Object], kind: str, name: str = "pipelined") -> Object:
    (found,) = (e for e in objects if (e["kind"], e["metadata"]["name"]) == (kind, name))
    return found


def pod(objects: list[Object]) -> Object:
    spec: Object = one(objects, "DaemonSet")["spec"]["template"]["spec"]
    return spec


def container(objects: list[Object], name: str = "pipelined") -> Object:
    (found,) = (each for each in pod(objects)["containers"] if each["name"] == name)
    return found


def comparable(objects: list[Object]) -> dict[tuple[str, str], Object]:
    """By kind and name. What only one of the two has for one purpose is left out: the namespace,
    which helm gets from outside, and how a changed ConfigMap restarts the pods."""
    found = {}
    for each in copy.deepcopy(objects):
        if each["kind"] == "Namespace":
            continue
        if each["kind"] == "DaemonSet":
            template = each["spec"]["template"]
            notes = template["metadata"].pop("annotations", {})
            kept = {key: text for key, text in notes.items() if not key.startswith("checksum/")}
            template["metadata"]["annotations"] = kept
            for names in ("containers", "volumes"):
                template["spec"][names].sort(key=lambda part: str(part["name"]))
        name = without_hash(each["metadata"]["name"])
        each["metadata"]["name"] = name
        found[each["kind"], name] = yaml.safe_load(
            re.sub(
                r"(?m)^( *(?:- )*name: pipelined(?:-export)?)-[0-9a-z]{10}$", r"\1", yaml.dump(each)
            )
        )
    return found


def without_hash(name: str) -> str:
    return re.sub(r"-(?=[a-z0-9]*\d)[a-z0-9]{10}$", "", name)


@pytest.mark.parametrize(
    ("directory", "values"),
    [
        ("daemon", ()),
        (".", ("monitoring.enabled=true", "dashboards.enabled=true")),
        ("daemon+export", ("export.enabled=true",)),
        (
            ".+export",
            ("monitoring.enabled=true", "dashboards.enabled=true", "export.enabled=true"),
        ),
    ],
)
def test_the_chart_gives_what_kustomize_makes(
    chart: Path, directory: str, values: tuple[str, ...]
) -> None:
    of_chart, of_kustomize = comparable(made(chart, *values)), comparable(rendered(directory))
    assert of_chart.keys() == of_kustomize.keys()
    for what, expected in of_kustomize.items():
        assert of_chart[what] == expected, what


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("values", [(), EVERYTHING])
def test_kubernetes_and_the_operator_take_every_object(
    chart: Path, values: tuple[str, ...], release: str
) -> None:
    for each in made(chart, *values):
        if each["apiVersion"] == OPERATOR:
            Draft7Validator(of_operator(each["kind"])).validate(each)
        else:
            kubernetes_validate.validate(each, release, strict=True)


def test_helm_lint_finds_nothing(chart: Path) -> None:
    for options in ((), ("--set", ",".join(EVERYTHING))):
        done = helm("lint", "--strict", chart, *options)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "0 chart(s) failed" in done.stdout


def test_the_archive_is_one_that_helm_takes(tmp_path: Path) -> None:
    words = [sys.executable, ROOT / "deploy/helm/build.py", tmp_path]
    archive = Path(subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip())
    shown = yaml.safe_load(helm("show", "chart", archive).stdout)
    version = subprocess.run(
        [sys.executable, ROOT / "deploy/version.py", "--chart"], capture_output=True, text=True
    ).stdout
    assert (shown["name"], shown["version"]) == ("pipelined", version.strip())
    with tarfile.open(archive) as tar:
        assert {(member.uid, member.uname, member.mode) for member in tar} == {(0, "", 0o644)}


# Values


def test_the_image_is_that_of_the_release_or_the_one_that_is_given(chart: Path) -> None:
    assert container(made(chart))["image"] == f"registry.example.org/pipelined:{__version__}"
    given = made(chart, "image.repository=r/p", "image.tag=t", "export.enabled=true")
    spec = pod(given)
    assert {each["image"] for each in (*spec["containers"], *spec["initContainers"])} == {"r/p:t"}


def test_nodes_are_chosen_by_labels_and_tolerations(chart: Path) -> None:
    spec = pod(
        made(
            chart,
            *("nodeSelector.pool=batch", "tolerations[0].key=pool"),
            *(
                "priorityClassName=high",
                "imagePullSecrets[0].name=pull",
                "resources.limits.memory=1Gi",
            ),
        )
    )
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "batch"}
    assert spec["tolerations"] == [{"key": "pool"}]
    assert spec["priorityClassName"] == "high"
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert spec["containers"][0]["resources"]["limits"] == {"memory": "1Gi"}


def test_flags_and_the_hosts_name_reach_the_daemon_and_the_sender(chart: Path) -> None:
    objects = made(
        chart,
        *("hostName=n", "args={--log.level=debug}"),
        *("export.enabled=true", "export.args={--failed}"),
    )
    assert "--host-name=n" in container(objects)["args"]
    assert container(objects)["args"][-1] == "--log.level=debug"
    assert container(objects, "export")["args"][-1] == "--failed"


def test_attributes_of_the_values_come_behind_the_nodes_name(chart: Path) -> None:
    def attributes(*values: str) -> str:
        sender = container(made(chart, "export.enabled=true", *values), "export")
        (text,) = (e["value"] for e in sender["env"] if e["name"] == "OTEL_RESOURCE_ATTRIBUTES")
        return str(text)

    assert attributes() == "k8s.node.name=$(NODE_NAME)"
    given = r'export.env.OTEL_RESOURCE_ATTRIBUTES=k8s.cluster.name=prod\,team="a: b"'
    assert attributes(given) == 'k8s.node.name=$(NODE_NAME),k8s.cluster.name=prod,team="a: b"'


def test_a_changed_option_restarts_the_pods(chart: Path) -> None:
    def sums(*values: str) -> list[str]:
        notes = one(made(chart, *values), "DaemonSet")["spec"]["template"]["metadata"]
        return sorted(value for key, value in notes["annotations"].items() if "checksum" in key)

    assert sums() == sums() != sums("config=max-stages = 5")
    sent = "export.enabled=true"
    assert sums(sent) != sums(sent, "export.env.OTEL_SERVICE_NAME=x")


def test_with_a_web_config_the_port_asks_for_a_password_and_the_probes_need_none(
    chart: Path,
) -> None:
    objects = made(chart, "webConfig.secretName=web")
    daemon = container(objects)
    assert daemon["args"][-2:] == [
        "--web.config.file=/etc/pipelined-web/web.yml",
        "--no-web.allow-unauthenticated",
    ]
    (volume,) = (each for each in pod(objects)["volumes"] if "secret" in each)
    assert volume["secret"] == {"secretName": "web", "defaultMode": 0o400}
    mounted = {each["name"]: each["mountPath"] for each in daemon["volumeMounts"]}
    assert mounted[volume["name"]] == "/etc/pipelined-web"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert daemon[probe]["exec"]["command"][-1] == "/usr/lib/pipelined/healthcheck.py"
        assert "httpGet" not in daemon[probe]


def test_with_a_web_config_the_sender_has_a_password_of_its_own(chart: Path) -> None:
    objects = made(chart, *EVERYTHING)
    sender = container(objects, "export")
    assert "--url=https://127.0.0.1:9905" in sender["args"]
    assert "--http.config.file=/etc/pipelined-client/client.yml" in sender["args"]
    assert "web" not in {each["name"] for each in sender["volumeMounts"]}, "the server's key"
    assert "client" in {each["name"] for each in sender["volumeMounts"]}
    done = helm("template", chart, "--set", "webConfig.secretName=web,export.enabled=true")
    assert done.returncode != 0
    assert "with webConfig the sender needs a password" in done.stderr


def test_the_network_policy_lets_in_whom_the_values_name(chart: Path) -> None:
    label = "networkPolicy.from[0].namespaceSelector.matchLabels.team"
    (rule,) = one(made(chart, f"{label}=x"), "NetworkPolicy")["spec"]["ingress"]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"team": "x"}}}]
    kinds = {each["kind"] for each in made(chart, "networkPolicy.enabled=false")}
    assert "NetworkPolicy" not in kinds


def test_objects_of_the_operator_get_labels_and_the_endpoint_what_it_needs(chart: Path) -> None:
    objects = made(
        chart,
        *("monitoring.enabled=true", "monitoring.labels.release=p"),
        "monitoring.endpoint.scheme=https",
    )
    of_operator_ = [each for each in objects if each["apiVersion"] == OPERATOR]
    assert len(of_operator_) == 3
    assert all(each["metadata"]["labels"]["release"] == "p" for each in of_operator_)
    (endpoint,) = one(objects, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["scheme"] == "https"


@pytest.mark.parametrize("value", ["tolerance=1", "image.name=x", "networkPolicy.enabled=maybe"])
def test_a_value_that_there_is_not_is_refused(chart: Path, value: str) -> None:
    done = helm("template", chart, "--set", value)
    assert done.returncode != 0
    assert "values don't meet the specifications of the schema" in done.stderr
