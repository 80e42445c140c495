# SPDX-License-Identifier: Apache-2.0
"""Health check of the container image: exit 0 if the daemon answers on its port and is ready.

Asks 127.0.0.1 for /readyz in plain HTTP, at port 9905 or the one in HEALTHCHECK_PORT. Any answer
but a server error (5xx: hooks are still being attached) is health: a port with a password says
401, one with TLS 400, and both come from a daemon that is alive. An engine starts this every half
minute, so it imports little: it takes 30 ms of CPU.
"""

from __future__ import annotations

import os
import socket
import sys

_TIMEOUT = 4.0  # seconds, below the engine's own of 5


def status(port: int) -> int:
    """The HTTP status that the daemon on `port` answers with.

    Raises OSError when it does not answer in time, and ValueError when that is not HTTP.
    """
    with socket.create_connection(("127.0.0.1", port), _TIMEOUT) as connection:
        connection.settimeout(_TIMEOUT)
        connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        with connection.makefile("rb") as answer:
            version, _, rest = answer.readline(256).partition(b" ")
    if not version.startswith(b"HTTP/"):
        raise ValueError(f"no HTTP answer on port {port}")
    return int(rest[:3])


def main() -> int:
    port = os.environ.get("HEALTHCHECK_PORT", "9905")
    try:
        answered = status(int(port))
    except (OSError, ValueError) as error:
        print(f"unhealthy: 127.0.0.1:{port}: {error}")
        return 1
    healthy = answered < 500
    print(f"{'healthy' if healthy else 'unhealthy'}: 127.0.0.1:{port} answers {answered}")
    return 0 if healthy else 1


if __name__ == "__main__":
    sys.exit(main())
