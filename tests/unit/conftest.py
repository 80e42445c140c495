# SPDX-License-Identifier: Apache-2.0
"""Settings of all unit tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import settings

# Hypothesis fails an example that takes over 200 ms. How long one takes on a busy machine is no
# property of the code.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


@pytest.fixture(scope="session", autouse=True)
def _whole_batches() -> Iterator[None]:
    """However much CPU time a run takes here, the history writes those of a test in one batch.

    Of several batches the first has the longest runs, which then have none to be compared with.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelined.history.writer.BATCH_SECONDS", 60.0)
        yield


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """A command that a test runs here sends log records to a stderr that ends with the test."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
    for handler in root.handlers[:]:
        if type(handler) is logging.StreamHandler:  # those of pytest are of its own classes
            root.removeHandler(handler)
