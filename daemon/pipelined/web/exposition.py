# SPDX-License-Identifier: Apache-2.0
"""The text of a scrape, in Prometheus' text format or in OpenMetrics.

prometheus_client writes all families but those of pipelines and stages. These are nearly all of a
scrape, and are written here, six times as fast and without an object for each sample: what a
pipeline's or a stage's samples have in common, its labels, is escaped once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import overload

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar, Sample

from pipelined.http_port.accept_header import readable

__all__ = ["NO_LABELS", "Labels", "OwnedMetric", "choose_format"]

#: Schemes that prometheus_client applies to every name with an underscore. Nobody asks for them.
_NAMES_CHANGED = ("escaping=dots", "escaping=values")

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Labels:
    """Label values by name, and their text as it stands in a sample's braces."""

    __slots__ = ("before", "text", "values")

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values
        self.text = ",".join(
            [f'{name}="{value.translate(_ESCAPES)}"' for name, value in values.items()]
        )
        self.before = f"{self.text}," if values else ""

    def __or__(self, more: Labels) -> Labels:
        return Labels({**self.values, **more.values})


NO_LABELS = Labels({})


class _Samples(Sequence[Sample]):
    """Samples, made when somebody looks at them."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, Labels, Labels, float]] = []
        """Of each its name, its own labels, those of its owner, and its value."""
        self.exemplars: dict[int, Exemplar] = {}
        """Of those that have one, by their place in `kept`."""

    def __len__(self) -> int:
        return len(self.kept)

    @overload
    def __getitem__(self, at: int) -> Sample: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Sample]: ...
    def __getitem__(self, at: int | slice) -> Sample | Sequence[Sample]:
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(len(self)))]
        name, own, owners, value = self.kept[at]
        labels = {**owners.values, **own.values}
        return Sample(name, labels, value, exemplar=self.exemplars.get(at % len(self)))


class OwnedMetric(Metric):
    """A metric of pipelines or of stages, by its full name."""

    def __init__(self, name: str, documentation: str, kind: str) -> None:
        super().__init__(name.removesuffix("_total"), documentation, kind)
        self.full_name = name
        self._samples = _Samples()
        self.samples = self._samples  # type: ignore[assignment]

    def add(self, owners: Labels, own: Labels, value: float, suffix: str = "") -> None:
        """A sample of one owner, with labels of its own; its value is finite."""
        self._samples.kept.append((self.full_name + suffix, own, owners, value))

    def add_exemplar(self, labels: Mapping[str, str], value: float, timestamp: float) -> None:
        """One of what the sample that was added last counts; shown in OpenMetrics only.

        Names and values of its labels have at most 128 characters together.
        """
        self._samples.exemplars[len(self._samples) - 1] = Exemplar(dict(labels), value, timestamp)

    def text(self, *, openmetrics: bool) -> str:
        """All of it; there is nothing to escape in the HELP text."""
        name = self.name if openmetrics else self.full_name
        head = f"# HELP {name} {self.documentation}\n# TYPE {name} {self.type}\n"
        lines = [
            f"{name}{{{own.before}{owners.text}}} {float(value)!r}\n"
            for name, own, owners, value in self._samples.kept
        ]
        if openmetrics:
            for at, exemplar in self._samples.exemplars.items():
                lines[at] = f"{lines[at][:-1]}{_exemplar_text(exemplar)}\n"
        return head + "".join(lines)


def _exemplar_text(exemplar: Exemplar) -> str:
    assert exemplar.timestamp is not None
    labels = Labels(exemplar.labels).text
    return f" # {{{labels}}} {float(exemplar.value)!r} {exemplar.timestamp:.3f}"


class _Families(Collector):
    """Families that have been collected, as prometheus_client's encoders take them."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def choose_format(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """What turns collected families into text, and its content type, for this Accept header.

    If the header cannot be parsed, the format is Prometheus' plain text.
    """
    encode, content_type = choose_encoder(readable(accept))
    if content_type.endswith(_NAMES_CHANGED):
        return encode, content_type
    openmetrics = content_type.startswith("application/openmetrics-text")
    return partial(_encoded, encode, openmetrics), content_type


def _encoded(
    encode: Callable[[Collector], bytes], openmetrics: bool, collector: Collector
) -> bytes:
    text, others = [], []
    for family in collector.collect():
        if isinstance(family, OwnedMetric):
            text.append(family.text(openmetrics=openmetrics))
        else:
            others.append(family)
    return "".join(text).encode() + encode(_Families(others))
