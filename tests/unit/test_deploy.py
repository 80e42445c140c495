# SPDX-License-Identifier: Apache-2.0
"""deploy/ and its documents agree with each other, with the program, and with the files that an
engine or a cluster would load. tests/deploy holds the same files against published schemas."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from dashboard_files import documented
from pipelined import __version__
from pipelined.commands.export import DEFAULT_ADDRESS, DEFAULT_DIRECTORY
from pipelined.config import Config, merge
from pipelined.config.toml_file import load
from pipelined.http_port.exposure import protected_port
from pipelined.http_port.host_names import HostNames

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose.yaml"
KUBERNETES = DEPLOY / "kubernetes"
DASHBOARDS = ROOT / "dashboards"
CONTAINER, FLEET = ROOT / "docs" / "CONTAINER.md", ROOT / "docs" / "FLEET.md"
PROMETHEUS = ROOT / "docs" / "PROMETHEUS.md"
HEALTHCHECK = DEPLOY / "container" / "healthcheck.py"

#: Client-side `kubectl apply` notes a whole object in an annotation, which may not be longer.
LARGEST_APPLIED = 262_144


def module(file: Path) -> ModuleType:
    """A script of deploy/, loaded without running it."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec and spec.loader
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded  # dataclasses look themselves up there
    spec.loader.exec_module(loaded)
    return loaded


def read(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


COMPOSED = read(COMPOSE)
SERVICES: dict[str, Any] = COMPOSED["services"]
POD = read(KUBERNETES / "daemon" / "daemonset.yaml")["spec"]["template"]["spec"]
DAEMON = POD["containers"][0]
EXPORT_POD = read(KUBERNETES / "export" / "container.yaml")["spec"]["template"]["spec"]
SENDER = EXPORT_POD["containers"][0]


def documented_run() -> list[str]:
    found = re.search(r"^docker run (?:.*\\\n)*.*$", CONTAINER.read_text(), re.MULTILINE)
    assert found
    return shlex.split(found[0].replace("\\\n", " "))


def mounts(service: str) -> dict[str, str]:
    """Source by target, as the short syntax of compose has them."""
    split = (mount.split(":") for mount in SERVICES[service].get("volumes", []))
    return {target: source for source, target, *_ in split}


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("promtool")
    assert program, "promtool is missing: run make setup (Debian: apt-get install prometheus)"
    return subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60
    )


# -- privileges


def test_the_service_the_container_compose_and_the_pods_get_the_same_capabilities() -> None:
    unit = (DEPLOY / "systemd" / "pipelined.service").read_text()
    bounds = re.findall(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)
    words = documented_run()
    of_docker = {words[at + 1] for at, word in enumerate(words) if word == "--cap-add"}
    assert len(bounds) == 1
    assert {f"CAP_{name}" for name in of_docker} == set(bounds[0].split())
    assert set(SERVICES["pipelined"]["cap_add"]) == of_docker
    assert set(DAEMON["securityContext"]["capabilities"]["add"]) == of_docker


def test_everything_else_is_dropped_and_the_root_is_read_only() -> None:
    words = documented_run()
    assert words[words.index("--cap-drop") + 1] == "ALL"
    assert "--read-only" in words and "no-new-privileges" in words
    for service in SERVICES.values():
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "privileged" not in service
    assert SERVICES["pipelined"]["read_only"] is True
    of_pod = DAEMON["securityContext"]
    assert of_pod["capabilities"]["drop"] == ["ALL"]
    assert of_pod["readOnlyRootFilesystem"] is True
    assert of_pod["allowPrivilegeEscalation"] is False
    assert "privileged" not in of_pod
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


def test_compose_and_the_pods_mount_what_the_documented_container_does() -> None:
    words = documented_run()
    volumes = [words[at + 1].split(":") for at, word in enumerate(words) if word == "--volume"]
    targets = {target for _, target, *_ in volumes}
    assert set(mounts("pipelined")) == targets
    of_pod = {mount["mountPath"] for mount in DAEMON["volumeMounts"]}
    # the kubelet, which knows the names of pods, is on the nodes of a cluster alone
    assert of_pod == targets | {"/etc/pipelined", "/var/log/containers"}
    assert "--pid" in words and SERVICES["pipelined"]["pid"] == "host" and POD["hostPID"]


def test_pods_get_no_token_of_the_cluster() -> None:
    assert POD["automountServiceAccountToken"] is False
    account = read(KUBERNETES / "daemon" / "serviceaccount.yaml")
    assert account["automountServiceAccountToken"] is False
    assert "hostNetwork" not in POD


# -- compose


def test_compose_publishes_ports_on_loopback_only() -> None:
    ports = [port for service in SERVICES.values() for port in service["ports"]]
    assert ports and all(port.startswith("127.0.0.1:") for port in ports)


def test_every_file_that_compose_mounts_is_there() -> None:
    named = set(COMPOSED["volumes"])
    for service in SERVICES:
        for target, source in mounts(service).items():
            if source.startswith("."):
                assert (COMPOSE.parent / source).exists(), f"{service}: {source}"
            else:
                assert source in named or source == target == "/sys/fs/cgroup", (
                    f"{service}: {source}"
                )


def test_images_of_others_have_a_version() -> None:
    ours = ("pipelined", "export")
    images = [service["image"] for name, service in SERVICES.items() if name not in ours]
    assert images
    for image in images:
        assert re.fullmatch(r"docker\.io/\w+/\w+:v?\d+\.\d+\.\d+", image)


def test_the_image_is_built_from_the_checkout() -> None:
    assert (COMPOSE.parent / SERVICES["pipelined"]["build"]["context"] / "Dockerfile").exists()


def prometheus_as_composed(directory: Path) -> Path:
    """The files of compose's Prometheus as its container has them; the configuration's path."""
    placed = [config["target"] for config in SERVICES["prometheus"]["configs"]]
    assert placed == ["/etc/prometheus/prometheus.yml"]
    configuration = directory / placed[0].lstrip("/")
    configuration.parent.mkdir(parents=True)
    configuration.write_text(COMPOSED["configs"]["prometheus"]["content"])
    for target, source in mounts("prometheus").items():
        if source.startswith("."):
            shutil.copy(COMPOSE.parent / source, directory / target.lstrip("/"))
    return configuration


def test_promtool_takes_composes_configuration_with_the_rules_where_they_are_mounted(
    tmp_path: Path,
) -> None:
    checked = promtool("check", "config", prometheus_as_composed(tmp_path))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "SUCCESS: 2 rule files found" in checked.stdout


def test_composes_configuration_differs_from_the_example_in_the_target_alone() -> None:
    composed = yaml.safe_load(COMPOSED["configs"]["prometheus"]["content"])
    assert composed["scrape_configs"][0].pop("static_configs") == [{"targets": ["pipelined:9905"]}]
    example = read(DEPLOY / "prometheus" / "prometheus.yml")
    example["scrape_configs"][0].pop("static_configs")
    assert composed == example


def test_composes_prometheus_finds_its_files_and_keeps_exemplars() -> None:
    """What is given replaces what the image gives."""
    command = SERVICES["prometheus"]["command"]
    options = dict(option.removeprefix("--").split("=") for option in command)
    (placed,) = SERVICES["prometheus"]["configs"]
    assert options["config.file"] == placed["target"]
    assert options["storage.tsdb.path"] in mounts("prometheus")
    assert f"--enable-feature={options['enable-feature']}" in PROMETHEUS.read_text()


def test_the_daemon_listens_where_composes_prometheus_looks() -> None:
    command = SERVICES["pipelined"]["command"]
    assert command[command.index("--web.listen-address") + 1] == ":9905"


def test_ports_without_a_password_are_meant_to_have_none() -> None:
    """Published on loopback, or behind the network policy; otherwise they would not listen."""
    words = {
        "docker run": documented_run(),
        "daemon of compose": SERVICES["pipelined"]["command"],
        "sender of compose": SERVICES["export"]["command"],
        "sender of the pods": SENDER["args"],
    }
    for name, command in words.items():
        at = command.index("--web.listen-address") + 1
        assert command[at].startswith(":"), name
        assert "--web.allow-unauthenticated" in command, name
    assert protected_port(load(KUBERNETES / "daemon" / "pipelined.toml"))[1] is None


def test_the_daemon_answers_for_the_name_that_composes_prometheus_asks_for() -> None:
    command = SERVICES["pipelined"]["command"]
    allowed = merge(
        Config(), web_allowed_hosts=command[command.index("--web.allowed-hosts") + 1]
    ).web_allowed_hosts
    composed = yaml.safe_load(COMPOSED["configs"]["prometheus"]["content"])
    (targets,) = composed["scrape_configs"][0]["static_configs"]
    assert [HostNames(allowed).include(target) for target in targets["targets"]] == [True]


def test_grafana_finds_its_data_source_and_every_dashboard() -> None:
    mounted = mounts("grafana")
    provisioning = COMPOSE.parent / mounted["/etc/grafana/provisioning"]
    providers = read(provisioning / "dashboards" / "pipelined.yml")["providers"]
    directory = COMPOSE.parent / mounted[providers[0]["options"]["path"]]
    assert directory.samefile(DASHBOARDS)
    assert len(list(directory.glob("*.json"))) == 5
    source = read(provisioning / "datasources" / "prometheus.yml")["datasources"][0]
    environment = SERVICES["grafana"]["environment"]
    variable = re.fullmatch(r"\$\{(\w+)\}", source["url"])
    assert variable
    assert environment[variable[1]] == "http://prometheus:9090"
    assert "prometheus" in SERVICES


def test_the_data_source_takes_nothing_from_those_that_a_grafana_has() -> None:
    """It does not start with two defaults, and turns a source of the same name or uid to ours."""
    file = COMPOSE.parent / "grafana" / "provisioning" / "datasources" / "prometheus.yml"
    (source,) = read(file)["datasources"]
    assert source["isDefault"] is False
    assert "pipelined" in source["name"] and "pipelined" in source["uid"]


def test_grafana_opens_the_trace_of_an_exemplar_and_the_page_of_its_run() -> None:
    file = COMPOSE.parent / "grafana" / "provisioning" / "datasources" / "prometheus.yml"
    found = read(file)["datasources"][0]["jsonData"]["exemplarTraceIdDestinations"]
    exemplar = {"trace_id", "run_id"}  # its labels, in unit/test_metrics.py
    assert {destination["name"] for destination in found} == exemplar
    (url,) = [destination["url"] for destination in found if "url" in destination]
    # a $ alone would be a variable of Grafana's environment
    assert url == "http://$${__data.fields.instance}/run/$${__value.raw}"


def test_nobody_gets_a_grafana_with_a_known_password() -> None:
    assert ":?" in SERVICES["grafana"]["environment"]["GF_SECURITY_ADMIN_PASSWORD"]


# -- Kubernetes


def test_the_prometheusrule_is_what_the_script_makes_of_the_rules() -> None:
    script = module(KUBERNETES / "monitoring" / "rules.py")
    made = script.prometheus_rule()
    committed = (KUBERNETES / "monitoring" / "prometheusrule.yaml").read_text()
    assert committed == made, "cd deploy/kubernetes/monitoring; ./rules.py > prometheusrule.yaml"
    groups = [
        group
        for file in ("recording.rules.yml", "alerts.rules.yml")
        for group in read(DEPLOY / "prometheus" / file)["groups"]
    ]
    assert yaml.safe_load(made)["spec"]["groups"] == groups


def test_the_job_that_the_podmonitor_makes_is_the_one_that_alerts_look_for() -> None:
    monitor = read(KUBERNETES / "monitoring" / "podmonitor.yaml")
    namespace = read(KUBERNETES / "monitoring" / "kustomization.yaml")["namespace"]
    job = f"{namespace}/{monitor['metadata']['name']}"
    alerts = read(DEPLOY / "prometheus" / "alerts.rules.yml")["groups"]
    of_sender = read(KUBERNETES / "monitoring" / "podmonitor-export.yaml")
    senders = f"{namespace}/{of_sender['metadata']['name']}"
    looked_for = {
        (pattern, group["name"] == "pipelined-export-alerts")
        for group in alerts
        for rule in group["rules"]
        for pattern in re.findall(r'job=~"([^"]*)"', rule["expr"])
    }
    assert {sender for _, sender in looked_for} == {True, False}
    for pattern, sender in looked_for:
        assert re.fullmatch(pattern, senders if sender else job)
    (absent,) = re.findall(r'job!~"([^"]*)"', str(alerts))
    assert re.fullmatch(absent, senders) and not re.fullmatch(absent, job)


def test_the_podmonitor_selects_the_pods_and_their_port() -> None:
    monitor = read(KUBERNETES / "monitoring" / "podmonitor.yaml")["spec"]
    pods = read(KUBERNETES / "daemon" / "daemonset.yaml")["spec"]
    assert monitor["selector"] == pods["selector"]
    assert monitor["selector"]["matchLabels"] == pods["template"]["metadata"]["labels"]
    ports = {port["name"]: port["containerPort"] for port in DAEMON["ports"]}
    assert ports == {"metrics": 9905}
    assert monitor["podMetricsEndpoints"][0]["port"] in ports
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert DAEMON[probe]["httpGet"]["port"] in ports


def test_the_side_car_has_no_privilege_and_is_not_root() -> None:
    context = SENDER["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["runAsNonRoot"] and context["runAsUser"] != 0
    assert context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is False
    (before,) = EXPORT_POD["initContainers"]
    assert before["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN"]}
    assert f"{context['runAsUser']}, {context['runAsGroup']}" in before["command"][-1]


def test_the_side_car_keeps_its_place_in_a_directory_of_the_node() -> None:
    (mount,) = SENDER["volumeMounts"]
    (volume,) = EXPORT_POD["volumes"]
    assert (mount["name"], mount["mountPath"]) == (volume["name"], str(DEFAULT_DIRECTORY))
    assert volume["hostPath"]["path"] not in {
        each["hostPath"]["path"] for each in POD["volumes"] if "hostPath" in each
    }


def test_the_side_car_gets_its_variables_from_the_component_and_a_secret_that_may_be_absent() -> (
    None
):
    component = read(KUBERNETES / "export" / "kustomization.yaml")
    (generated,) = component["configMapGenerator"]
    variables = (KUBERNETES / "export" / generated["envs"][0]).read_text()
    assert re.findall(r"^(\w+)=", variables, re.M) == ["OTEL_EXPORTER_OTLP_ENDPOINT"]
    named, secret = SENDER["envFrom"]
    assert named["configMapRef"]["name"] == generated["name"]
    assert secret["secretRef"]["optional"] is True


def test_with_the_side_car_the_daemon_names_runs_with_their_traces() -> None:
    component = read(KUBERNETES / "export" / "kustomization.yaml")
    # the second one puts another container first
    of_daemon, of_sender, _ = component["patches"]
    assert of_sender["path"] == "container.yaml"
    ((change),) = yaml.safe_load(of_daemon["patch"])
    assert (change["op"], change["path"]) == ("add", "/spec/template/spec/containers/0/args/-")
    assert POD["containers"].index(DAEMON) == 0
    assert change["value"] == "--traces-exported"
    assert merge(Config(), traces_exported=True).traces_exported


def test_the_podmonitor_of_the_sender_looks_where_the_side_car_listens() -> None:
    monitor = read(KUBERNETES / "monitoring" / "podmonitor-export.yaml")["spec"]
    (port,) = SENDER["ports"]
    assert monitor["podMetricsEndpoints"][0]["port"] == port["name"]
    assert SENDER["args"][:3] == ["export", "--web.listen-address", f":{port['containerPort']}"]
    assert DEFAULT_ADDRESS.endswith(f":{port['containerPort']}")
    daemons = read(KUBERNETES / "daemon" / "daemonset.yaml")["spec"]["selector"]
    assert monitor["selector"] == daemons


def test_the_sender_is_off_unless_it_is_asked_for() -> None:
    assert "components" not in read(KUBERNETES / "kustomization.yaml")
    assert [name for name, service in SERVICES.items() if "profiles" in service] == ["export"]


def test_the_daemon_takes_the_pods_configuration() -> None:
    config = load(KUBERNETES / "daemon" / "pipelined.toml")
    assert (config.web_listen_address.host, config.web_listen_address.port) == ("0.0.0.0", 9905)
    assert DAEMON["args"][:2] == ["serve", "--config"]


def test_the_cluster_runs_the_version_of_this_checkout() -> None:
    images = read(KUBERNETES / "daemon" / "kustomization.yaml")["images"]
    tags = {image["name"]: image["newTag"] for image in images}
    assert tags == {DAEMON["image"]: __version__}


POLICY = read(KUBERNETES / "daemon" / "networkpolicy.yaml")["spec"]


def policy_with_sender() -> dict[str, Any]:
    """The policy after the component's patch, whose three changes add to lists."""
    policy: dict[str, Any] = json.loads(json.dumps(POLICY))
    ports, names, back_end = read(KUBERNETES / "export" / "networkpolicy.yaml")
    assert (ports["path"], names["path"]) == ("/spec/ingress/0/ports/-", "/spec/egress/-")
    assert back_end["path"] == names["path"]
    policy["ingress"][0]["ports"].append(ports["value"])
    policy["egress"] += [names["value"], back_end["value"]]
    return policy


def test_the_policy_lets_in_one_namespace_at_the_port_and_nothing_out() -> None:
    pods = read(KUBERNETES / "daemon" / "daemonset.yaml")["spec"]["selector"]
    assert POLICY["podSelector"] == pods
    assert POLICY["policyTypes"] == ["Ingress", "Egress"]
    (rule,) = POLICY["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": DAEMON["ports"][0]["name"]}]
    (source,) = rule["from"]
    assert list(source) == ["namespaceSelector"]
    assert list(source["namespaceSelector"]["matchLabels"]) == ["kubernetes.io/metadata.name"]
    assert POLICY["egress"] == []


def test_with_the_side_car_the_policy_opens_its_port_and_the_way_to_its_back_end() -> None:
    policy = policy_with_sender()
    ports = [port["port"] for port in policy["ingress"][0]["ports"]]
    assert ports == [container["ports"][0]["name"] for container in (DAEMON, SENDER)]
    names, back_end = policy["egress"]
    assert {(port["protocol"], port["port"]) for port in names["ports"]} == {
        ("UDP", 53),
        ("TCP", 53),
    }
    variables = (KUBERNETES / "export" / "export.env").read_text()
    url = re.search(
        r"^OTEL_EXPORTER_OTLP_ENDPOINT=http://[\w-]+\.([\w-]+)\.svc:(\d+)$", variables, re.M
    )
    assert url
    (namespace,) = back_end["to"]
    assert namespace["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": url[1]}
    assert back_end["ports"] == [{"protocol": "TCP", "port": int(url[2])}]


def test_the_chart_is_made_of_the_same_files() -> None:
    """A place that the chart has a value for, and that is gone from them, ends it with an error."""
    files = module(DEPLOY / "helm" / "build.py").files(__version__)
    values = yaml.safe_load(files["values.yaml"])
    assert "@" not in files["values.yaml"]
    assert values["config"] == (KUBERNETES / "daemon" / "pipelined.toml").read_text()
    assert values["resources"] == DAEMON["resources"]
    assert values["export"]["resources"] == SENDER["resources"]
    assert values["networkPolicy"]["from"] == POLICY["ingress"][0]["from"]
    assert values["export"]["egress"] == policy_with_sender()["egress"]
    schema = json.loads(files["values.schema.json"])["properties"]
    assert schema.keys() - {"global"} == values.keys()
    for name, value in values.items():
        if schema[name].get("additionalProperties") is False:
            assert schema[name]["properties"].keys() == value.keys(), name


def test_a_chart_of_other_files_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    script = module(DEPLOY / "helm" / "build.py")
    read_as_is = script._read
    monkeypatch.setattr(
        script, "_read", lambda path: read_as_is(path).replace("  egress: []\n", "")
    )
    with pytest.raises(
        SystemExit, match=r"0 times in deploy/kubernetes, not once:\n  egress: \[\]"
    ):
        script.files(__version__)


def test_each_dashboard_has_a_config_map_that_can_be_applied() -> None:
    generators = read(DASHBOARDS / "kustomization.yaml")["configMapGenerator"]
    files = sorted(file for generator in generators for file in generator["files"])
    assert files == sorted(file.name for file in DASHBOARDS.glob("*.json"))
    assert all(len(generator["files"]) == 1 for generator in generators)
    for file in files:
        assert len(json.dumps((DASHBOARDS / file).read_text())) < 0.9 * LARGEST_APPLIED


# -- the image's health check


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A port that says this to whoever has sent a line."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def healthcheck(port: int) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-I", "-S", HEALTHCHECK],
        env={"HEALTHCHECK_PORT": str(port)},
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert not done.stderr
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("answer", "healthy"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", True),
        (b"HTTP/1.1 401 Unauthorized\r\n\r\n", True),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", True),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", False),
        (b"SSH-2.0-OpenSSH_9.2\r\n", False),
        (b"", False),
    ],
    ids=["ready", "password", "tls", "starting", "other-protocol", "hangs-up"],
)
def test_the_health_check_takes_any_answer_but_a_server_error(answer: bytes, healthy: bool) -> None:
    with answering(answer) as port:
        status, verdict = healthcheck(port)
    assert (status == 0) is healthy
    assert verdict.startswith("healthy: " if healthy else "unhealthy: ")


def test_the_health_check_fails_where_nothing_listens() -> None:
    with answering(b"") as port:
        pass
    status, verdict = healthcheck(port)
    assert status == 1
    assert "refused" in verdict


def test_the_image_runs_this_health_check() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert f"COPY {HEALTHCHECK.relative_to(ROOT)} /usr/lib/pipelined/" in text
    assert f'/usr/lib/pipelined/{HEALTHCHECK.name}"' in text


# -- docs/FLEET.md, and the part of docs/PROMETHEUS.md for fleets


def configurations() -> list[str]:
    """Whole configurations, and rules, of servers for many hosts."""
    return [file.read_text() for file in sorted((DEPLOY / "prometheus/fleet").glob("*.yml"))]


def test_the_documents_name_every_configuration_for_fleets() -> None:
    named = re.findall(
        r"`(?:deploy/prometheus/fleet/)?([\w.-]+[.]yml)`",
        PROMETHEUS.read_text() + FLEET.read_text(),
    )
    there = {file.name for file in (DEPLOY / "prometheus/fleet").iterdir()}
    assert there - set(named) == set()


def test_promtool_takes_every_configuration_for_fleets(tmp_path: Path) -> None:
    file = tmp_path / "block.yml"
    checks = {"groups": ["rules"], "config": ["config", "--syntax-only"]}
    done = []
    for block in configurations():
        kind = "groups" if "groups" in yaml.safe_load(block) else "config"
        file.write_text(block)
        checked = promtool("check", *checks[kind], file)
        assert checked.returncode == 0, f"{block}\n{checked.stdout}{checked.stderr}"
        done.append(kind)
    assert done.count("groups") == 2 and done.count("config") >= 6


def test_every_configuration_for_fleets_loads_rules_that_are_there() -> None:
    for block in configurations():
        if "groups" not in (configuration := yaml.safe_load(block)):
            assert configuration.get("rule_files"), block
            for name in configuration["rule_files"]:
                places = (DEPLOY / "prometheus" / name, DEPLOY / "prometheus/fleet" / name)
                assert any(place.exists() for place in places), name


def test_each_cell_scrapes_its_own_hosts_and_records_what_the_centre_takes() -> None:
    pulled, pushed = (
        read(DEPLOY / "prometheus/fleet" / f"{n}.yml") for n in ("cell", "remote-write")
    )
    assert pulled["scrape_configs"] == pushed["scrape_configs"]
    assert "hashmod" in {r["action"] for r in pulled["scrape_configs"][0]["relabel_configs"]}
    rules = ["recording.rules.yml", "alerts.rules.yml", "cell.rules.yml"]
    assert pulled["rule_files"] == pushed["rule_files"] == rules


def test_every_name_in_a_relabelling_is_a_metric_or_a_label() -> None:
    page = (ROOT / "docs" / "METRICS.md").read_text()
    for block in configurations():
        for name in re.findall(r"pipelined_[a-z_]*[a-z]", block):
            assert name in page or name in RECORDED, name


RECORDED = "".join(
    rule["record"] + "\n"
    for group in read(DEPLOY / "prometheus" / "recording.rules.yml")["groups"]
    for rule in group["rules"]
)


def dropped_names() -> list[str]:
    """The patterns of metric names that some block drops."""
    return [
        relabel["regex"]
        for block in configurations()
        for job in yaml.safe_load(block).get("scrape_configs", [])
        for relabel in job.get("metric_relabel_configs", [])
        if relabel["action"] == "drop" and relabel["source_labels"] == ["__name__"]
    ]


def test_no_rule_asks_for_what_is_dropped() -> None:
    rules = "".join(
        (DEPLOY / "prometheus" / file).read_text()
        for file in ("recording.rules.yml", "alerts.rules.yml")
    )
    used = set(re.findall(r"(?<![:\w])pipelined_\w+", rules))
    assert used
    for pattern in dropped_names():
        assert not [name for name in used if re.fullmatch(pattern, name)]


def test_what_is_dropped_exists() -> None:
    names = [*documented(), *(f"{name}_bucket" for name in documented())]
    assert dropped_names()
    for pattern in dropped_names():
        for part in re.sub(r".*\((.*)\).*", r"\1", pattern).split("|"):
            one = re.sub(r"\(.*\)", part, pattern)
            assert [name for name in names if re.fullmatch(one, name)], one


def test_the_tables_are_the_arithmetic_of_the_measured_figures() -> None:
    script = module(DEPLOY / "fleet.py")
    text = FLEET.read_text()
    measured = re.findall(r"([\d,]+) series and ([\d,]+) bytes a scrape", text)
    assert len(measured) == 2, "of a usual host and of one at its bound"
    for figures in measured:
        series, size = (int(number.replace(",", "")) for number in figures)
        assert script.fleet_table([script.Fleet(1_000, series, size, 15.0)]) in text


def test_a_scrape_is_counted_by_what_its_series_are_about() -> None:
    script = module(DEPLOY / "fleet.py")
    one = script.Scrape.parse(
        "# TYPE pipelined_runs_total counter\n"
        'pipelined_runs_total{pipeline="cat|awk",unit="-"} 1\n'
        'pipelined_execs_total{command="cat",pipeline="cat|awk",position="1",unit="-"} 1\n'
        'pipelined_execs_total{command="awk",pipeline="cat|awk",position="2",unit="-"} 1\n'
        'pipelined_runs_total{pipeline="cat|awk",unit="a \\"b\\".service"} 1\n'
        "process_open_fds 7\n"
    )
    assert (one.of_host, one.of_pipelines, one.of_stages) == (1, 2, 2)
    assert (one.pipelines, one.stages, one.series) == (2, 2, 5)


def test_what_is_no_exposition_is_refused() -> None:
    with pytest.raises(ValueError, match="not the text format"):
        module(DEPLOY / "fleet.py").Scrape.parse("<html>\n")


def test_the_script_prints_both_tables_for_hosts_given_as_files(tmp_path: Path) -> None:
    file = tmp_path / "metrics"
    file.write_text('pipelined_runs_total{pipeline="cat|awk"} 1\n' * 15)
    done = subprocess.run(
        [sys.executable, DEPLOY / "fleet.py", file, "--hosts", "200", "--interval", "30"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"| {file} | 1 | 0 | 15 | 0, 15, 0 |" in done.stdout
    assert "| 200 | 3 k | 100 |" in done.stdout


def test_the_script_says_in_one_line_what_it_cannot_read(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, DEPLOY / "fleet.py", tmp_path / "none"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "No such file" in done.stderr
