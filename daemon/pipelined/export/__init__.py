# SPDX-License-Identifier: Apache-2.0
"""`pipelined export`: finished runs leave the host as OpenTelemetry spans.

A process of its own, which needs no privilege: all that it knows it reads from the daemon's API.
OpenTelemetry's packages are optional: a module here that needs them says so by an ImportError.
"""

from pipelined.errors import UserError

__all__ = ["not_installed"]


def not_installed(error: ImportError) -> UserError:
    """What to tell a user whose Python lacks them."""
    return UserError(
        f"OpenTelemetry's packages are not installed: {error}",
        "install them with: pip install 'pipelined[export]'",
    )
