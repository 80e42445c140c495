# SPDX-License-Identifier: Apache-2.0
"""The text of a scrape, in Prometheus' text format or in OpenMetrics.

prometheus_client writes all families but those of pipelines and stages, which are nearly all
samples of a scrape and are written here, six times as fast: what their samples have in common, the
labels of a pipeline or a stage, is sorted and escaped once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

__all__ = ["Labels", "choose_format"]

#: Schemes that prometheus_client applies to every name with an underscore. Nobody asks for them.
_NAMES_CHANGED = ("escaping=dots", "escaping=values")

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Labels(dict[str, str]):
    """Label values by name, and their text as it stands in a sample's braces."""

    __slots__ = ("text",)
    text: str

    def __init__(self, labels: Mapping[str, str]) -> None:
        super().__init__(labels)
        self.text = ",".join(
            [f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items()]
        )

    def with_own(self, own: Labels) -> Labels:
        """These labels and those of one sample."""
        if not own:
            return self
        both = Labels.__new__(Labels)
        both.update(self)
        both.update(own)
        both.text = f"{own.text},{self.text}"
        return both


class _Families(Collector):
    """Families that have been collected, as prometheus_client's encoders take them."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def choose_format(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """What turns collected families into text, and its content type, for this Accept header.

    If the header cannot be parsed, the format is Prometheus' plain text. Every family must have a
    sample.
    """
    try:
        encode, content_type = choose_encoder(accept)
    except (TypeError, ValueError):  # its version is not a number
        encode, content_type = choose_encoder("")
    if content_type.endswith(_NAMES_CHANGED):
        return encode, content_type
    openmetrics = content_type.startswith("application/openmetrics-text")
    return partial(_encoded, encode, openmetrics), content_type


def _encoded(
    encode: Callable[[Collector], bytes], openmetrics: bool, collector: Collector
) -> bytes:
    text, others = [], []
    for family in collector.collect():
        if isinstance(family.samples[0].labels, Labels):
            text.append(_written(family, openmetrics))
        else:
            others.append(family)
    return "".join(text).encode() + encode(_Families(others))


def _written(family: Metric, openmetrics: bool) -> str:
    """A family whose samples all have `Labels`; numbers are finite, HELP texts need no escapes."""
    name = family.name
    if family.type == "counter" and not openmetrics:
        name += "_total"
    head = f"# HELP {name} {family.documentation}\n# TYPE {name} {family.type}\n"
    return head + "".join(
        [
            f"{sample.name}{{{sample.labels.text}}} {float(sample.value)!r}\n"  # type: ignore[attr-defined]
            for sample in family.samples
        ]
    )
