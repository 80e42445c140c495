# SPDX-License-Identifier: Apache-2.0
"""Settings of all unit tests."""

from __future__ import annotations

from hypothesis import settings

# Hypothesis fails an example that takes over 200 ms. How long one takes on a busy machine is no
# property of the code.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
