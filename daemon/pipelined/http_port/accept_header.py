# SPDX-License-Identifier: Apache-2.0
"""What a client says of the format of metrics, before prometheus_client gets it."""

from __future__ import annotations

from prometheus_client.exposition import choose_encoder

__all__ = ["readable"]


def readable(accept: str) -> str:
    """The Accept header; empty if prometheus_client cannot parse it, or make a content type of it.

    >>> readable("application/openmetrics-text; version=latest")
    ''
    """
    try:
        _, content_type = choose_encoder(accept)
    except (TypeError, ValueError):  # its version is not a number
        return ""
    return accept if content_type.isascii() else ""  # a version with odd digits is in it
