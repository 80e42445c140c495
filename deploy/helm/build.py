#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the Helm chart of deploy/kubernetes, and prints the path of the archive.

    deploy/helm/build.py FOLDER        FOLDER/pipelined-chart-0.2.0.tgz

The templates are the files of deploy/kubernetes, with values in the places that `_TEMPLATES` names:
an object is written once, there. If such a place is not found exactly once, nothing is made.
tests/release/test_chart.py holds that chart and kustomize give the same objects. Needs PyYAML, and
neither helm nor kustomize. The time in the archive is SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import sys
import tarfile
import textwrap
import time
from pathlib import Path
from typing import Any

import yaml

_HERE = Path(__file__).resolve().parent
_TOP = _HERE.parents[1]
_BASE = _TOP / "deploy/kubernetes"
sys.path.insert(0, str(_HERE.parent))

from version import chart, image, version  # noqa: E402 - found only by the path above

__all__ = ["files"]

_LABELS = "{ app.kubernetes.io/name: pipelined }"
_OTHERS = """{{- with .Values.monitoring.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}"""
_PROBE = """{{- if .Values.webConfig.secretName }}
            exec: { command: [/usr/bin/python3, -I, -S, /usr/lib/pipelined/healthcheck.py] }
            {{- else }}
            httpGet: { path: PATH, port: metrics }
            {{- end }}"""
_IMAGE = '"{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"'

_CONFIG_MAPS = (
    """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: pipelined
data:
  pipelined.toml: |
    {{- .Values.config | nindent 4 }}
""",
    """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: pipelined-export
data:
  {{- toYaml .Values.export.env | nindent 2 }}
""",
)
_DASHBOARDS = """\
{{- if .Values.dashboards.enabled }}
{{- range $path, $_ := .Files.Glob "dashboards/*.json" }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ base $path | trimSuffix ".json" }}
  namespace: {{ $.Release.Namespace }}
  labels: { grafana_dashboard: "1" }
data:
  {{ base $path }}: |
    {{- $.Files.Get $path | nindent 4 }}
{{- end }}
{{- end }}
"""


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = version(_TOP)
    output = Path(sys.argv[1]).resolve() / f"pipelined-chart-{found}.tgz"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(_packed(files(found)))
    print(output)


def files(found: str) -> dict[str, str]:
    """The files of the chart of a version, by their paths."""
    return {
        "Chart.yaml": _chart(found),
        "values.yaml": _values(),
        "values.schema.json": (_HERE / "values.schema.json").read_text(),
        "templates/NOTES.txt": (_HERE / "NOTES.txt").read_text(),
        "templates/serviceaccount.yaml": _placed(_read("daemon/serviceaccount.yaml")),
        "templates/configmap.yaml": _placed(_CONFIG_MAPS[0]),
        "templates/daemonset.yaml": _daemonset(),
        "templates/networkpolicy.yaml": _if("networkPolicy.enabled", _network_policy()),
        "templates/configmap-export.yaml": _if(
            "export.enabled", _placed(_CONFIG_MAPS[1], labels=False)
        ),
        **{
            f"templates/{name}.yaml": _if("monitoring.enabled", text)
            for name, text in _monitoring().items()
        },
        "templates/dashboards.yaml": _DASHBOARDS,
        **{
            f"dashboards/{path.name}": path.read_text()
            for path in sorted((_TOP / "dashboards").glob("*.json"))
        },
    }


def _chart(found: str) -> str:
    return f"""\
# SPDX-License-Identifier: Apache-2.0
apiVersion: v2
name: pipelined
description: Watches every shell pipeline of a cluster's nodes with eBPF
type: application
version: {chart(found)}
appVersion: "{image(found)}"
kubeVersion: ">=1.28.0-0"
"""


# Templates: what is in deploy/kubernetes, with values.


def _daemonset() -> str:
    text = _edited(
        _placed(_read("daemon/daemonset.yaml")),
        (
            f"      labels: {_LABELS}\n",
            f"""\
      labels: {_LABELS}
      annotations:
        # A changed file restarts the pods, node by node.
        checksum/config: {{{{ .Values.config | sha256sum }}}}
        {{{{- if .Values.export.enabled }}}}
        checksum/export: {{{{ toJson .Values.export.env | sha256sum }}}}
        kubectl.kubernetes.io/default-container: pipelined
        {{{{- end }}}}
""",
        ),
        (
            "      nodeSelector: { kubernetes.io/os: linux }\n",
            """\
      nodeSelector:
        {{- toYaml .Values.nodeSelector | nindent 8 }}
      {{- with .Values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
""",
        ),
        ("          image: pipelined\n", f"          image: {_IMAGE}\n"),
        (
            "          args: [serve, --config, /etc/pipelined/pipelined.toml,"
            " --host-name=$(NODE_NAME)]\n",
            """\
          args:
            - serve
            - --config
            - /etc/pipelined/pipelined.toml
            - --host-name={{ .Values.hostName }}
            {{- if .Values.export.enabled }}
            - --traces-exported
            {{- end }}
            {{- if .Values.webConfig.secretName }}
            - --web.config.file=/etc/pipelined-web/web.yml
            - --no-web.allow-unauthenticated
            {{- end }}
            {{- with .Values.args }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
""",
        ),
        _resources(_object("daemon/daemonset.yaml")["containers"][0], ".Values.resources"),
        *(
            (
                f"          {name}Probe:\n            httpGet: {{ path: {path}, port: metrics }}",
                f"          {name}Probe:\n            " + _PROBE.replace("PATH", path),
            )
            for name, path in (
                ("startup", "/readyz"),
                ("liveness", "/healthz"),
                ("readiness", "/readyz"),
            )
        ),
        (
            "            - { name: config, mountPath: /etc/pipelined, readOnly: true }\n",
            """\
            - { name: config, mountPath: /etc/pipelined, readOnly: true }
            {{- if .Values.webConfig.secretName }}
            - { name: web, mountPath: /etc/pipelined-web, readOnly: true }
            {{- end }}
""",
        ),
        (
            "      volumes:\n",
            "      volumes:\n"
            "        {{- if .Values.webConfig.secretName }}\n"
            "        - name: web\n"
            "          secret: { secretName: {{ .Values.webConfig.secretName | quote }},"
            " defaultMode: 0400 }\n"
            "        {{- end }}\n",
        ),
    )
    before, container, volume = _sender()
    return _edited(
        text,
        ("      containers:\n", f"{_if('export.enabled', before)}      containers:\n"),
        (
            "      volumes:\n",
            f"{_if('export.enabled', container)}      volumes:\n{_if('export.enabled', volume)}",
        ),
    )


def _sender() -> tuple[str, str, str]:
    """Of the component's container.yaml: what runs first, the container, and its volume."""
    text = _read("export/container.yaml")
    parts = re.split(r"^      (?:initContainers|containers|volumes):\n", text, flags=re.M)
    if len(parts) != 4:
        sys.exit("deploy/helm: export/container.yaml does not have the three lists that it had")
    _, before, container, volume = parts
    image_line = ("          image: pipelined\n", f"          image: {_IMAGE}\n")
    container = _edited(
        container,
        image_line,
        (
            '          args: [export, --web.listen-address, ":9906",'
            " --web.allow-unauthenticated]\n",
            """\
          args:
            - export
            - --web.listen-address
            - ":9906"
            - --web.allow-unauthenticated
            {{- with .Values.export.url }}
            - --url={{ . }}
            {{- end }}
            {{- if .Values.export.clientSecretName }}
            - --http.config.file=/etc/pipelined-client/client.yml
            {{- else if .Values.webConfig.secretName }}
            {{- fail "with webConfig the sender needs a password: export.clientSecretName" }}
            {{- end }}
            {{- with .Values.export.args }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
""",
        ),
        # Kubernetes takes `env` before what the ConfigMap has.
        (
            "            - { name: OTEL_RESOURCE_ATTRIBUTES,"
            ' value: "k8s.node.name=$(NODE_NAME)" }\n',
            "            - name: OTEL_RESOURCE_ATTRIBUTES\n"
            '              value: {{ list "k8s.node.name=$(NODE_NAME)"'
            ' .Values.export.env.OTEL_RESOURCE_ATTRIBUTES | compact | join "," | quote }}\n',
        ),
        (
            "            - secretRef: { name: pipelined-export, optional: true }\n",
            "            - secretRef:"
            " { name: {{ .Values.export.secretName | quote }}, optional: true }\n",
        ),
        _resources(_object("export/container.yaml")["containers"][0], ".Values.export.resources"),
        (
            "            - { name: export, mountPath: /var/lib/pipelined-export }\n",
            """\
            - { name: export, mountPath: /var/lib/pipelined-export }
            {{- if .Values.export.clientSecretName }}
            - { name: client, mountPath: /etc/pipelined-client, readOnly: true }
            {{- end }}
""",
        ),
    )
    volume += """\
        {{- with .Values.export.clientSecretName }}
        - name: client
          secret: { secretName: {{ . | quote }} }
        {{- end }}
"""
    return f"      initContainers:\n{_edited(before, image_line)}", container, volume


def _network_policy() -> str:
    return _edited(
        _placed(_read("daemon/networkpolicy.yaml")),
        (
            """\
    - from:
        - namespaceSelector:
            matchLabels: { kubernetes.io/metadata.name: monitoring }
""",
            """\
    - from:
        {{- toYaml .Values.networkPolicy.from | nindent 8 }}
""",
        ),
        (
            "        - { protocol: TCP, port: metrics }\n",
            """\
        - { protocol: TCP, port: metrics }
        {{- if .Values.export.enabled }}
        - { protocol: TCP, port: export }
        {{- end }}
""",
        ),
        (
            "  egress: []\n",
            """\
  {{- if .Values.export.enabled }}
  egress:
    {{- toYaml .Values.export.egress | nindent 4 }}
  {{- else }}
  egress: []
  {{- end }}
""",
        ),
    )


def _monitoring() -> dict[str, str]:
    texts = {
        name: _read(f"monitoring/{name}.yaml")
        for name in ("podmonitor", "podmonitor-export", "prometheusrule")
    }
    texts["podmonitor"] = _edited(
        texts["podmonitor"],
        (
            "      interval: 15s\n",
            """\
      interval: 15s
      {{- with .Values.monitoring.endpoint }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
""",
        ),
    )
    # Prometheus' own templates are not Helm's.
    texts["prometheusrule"] = texts["prometheusrule"].replace("{{", '{{ "{{" }}')
    return {
        name: _edited(
            _placed(text),
            (
                f"  labels: {_LABELS}\n",
                f"  labels:\n    app.kubernetes.io/name: pipelined\n    {_OTHERS}\n",
            ),
        )
        for name, text in texts.items()
    }


def _placed(text: str, *, labels: bool = True) -> str:
    """The object with the namespace of the release, and with the label that kustomize adds."""
    name = re.search(r"^metadata:\n  name: \S+\n", text, re.M)
    if name is None:
        sys.exit(f"deploy/helm: no name where it was:\n{text}")
    added = "  namespace: {{ .Release.Namespace }}\n"
    if labels:
        added += f"  labels: {_LABELS}\n"
    return text[: name.end()] + added + text[name.end() :]


def _if(value: str, text: str) -> str:
    return f"{{{{- if .Values.{value} }}}}\n{text}{{{{- end }}}}\n"


def _resources(container: dict[str, Any], value: str) -> tuple[str, str]:
    """The change that puts a value in place of the resources of a container."""
    of = container["resources"]

    def flow(amounts: dict[str, Any]) -> str:
        return "{ " + ", ".join(f"{name}: {amount}" for name, amount in amounts.items()) + " }"

    old = (
        f"            requests: {flow(of['requests'])}\n            limits: {flow(of['limits'])}\n"
    )
    return old, f"            {{{{- toYaml {value} | nindent 12 }}}}\n"


def _edited(text: str, *changes: tuple[str, str]) -> str:
    """The text with each change made; each place has to be there exactly once."""
    for old, new in changes:
        if text.count(old) != 1:
            sys.exit(f"deploy/helm: {text.count(old)} times in deploy/kubernetes, not once:\n{old}")
        text = text.replace(old, new)
    return text


# Values: the defaults are what is in deploy/kubernetes.


def _values() -> str:
    daemon = _object("daemon/daemonset.yaml")
    sender = _object("export/container.yaml")["containers"][0]
    (image_of,) = yaml.safe_load(_read("daemon/kustomization.yaml"))["images"]
    policy = yaml.safe_load(_read("daemon/networkpolicy.yaml"))["spec"]
    _, *egress = yaml.safe_load(_read("export/networkpolicy.yaml"))
    lines = re.findall(r"^(\w+)=(.*)$", _read("export/export.env"), re.M)
    text = (_HERE / "values.yaml").read_text()
    text = text.replace(
        "  @CONFIG@\n", textwrap.indent(_read("daemon/pipelined.toml"), "  ", lambda _: True)
    )
    for name, value in {
        "REPOSITORY": image_of["newName"],
        "NODE_SELECTOR": daemon["nodeSelector"],
        "RESOURCES": daemon["containers"][0]["resources"],
        "FROM": policy["ingress"][0]["from"],
        "ENV": dict(lines),
        "SECRET": sender["envFrom"][1]["secretRef"]["name"],
        "EXPORT_RESOURCES": sender["resources"],
        "EGRESS": [change["value"] for change in egress],
    }.items():
        text = re.sub(
            rf"^( *)(\w+: )@{name}@$", lambda at, it=value: _valued(at, it), text, flags=re.M
        )
    head, _, rest = text.partition("\n\n")
    return f"{head.splitlines()[0]}\n\n{rest}"


def _valued(at: re.Match[str], value: Any) -> str:
    if isinstance(value, str):
        return f"{at[1]}{at[2]}{value}"
    block = yaml.safe_dump(value, sort_keys=False)
    return f"{at[1]}{at[2].rstrip()}\n{textwrap.indent(block.rstrip(), at[1] + '  ')}"


def _read(path: str) -> str:
    return (_BASE / path).read_text()


def _object(path: str) -> dict[str, Any]:
    """The pod of a DaemonSet."""
    pod: dict[str, Any] = yaml.safe_load(_read(path))["spec"]["template"]["spec"]
    return pod


def _packed(made: dict[str, str]) -> bytes:
    """The archive, in which nothing depends on who makes it, and when."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path, text in sorted(made.items(), key=lambda item: (item[0] != "Chart.yaml", item[0])):
            member = tarfile.TarInfo(f"pipelined/{path}")
            content = text.encode()
            member.size, member.mode = len(content), 0o644
            member.mtime = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
            tar.addfile(member, io.BytesIO(content))
    return gzip.compress(archive.getvalue(), 9, mtime=0)


if __name__ == "__main__":
    main()
