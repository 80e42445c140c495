# SPDX-License-Identifier: Apache-2.0
"""Whether a port can be reached from other hosts, and the error if it asks nobody who they are.

A port that is reached from this host alone needs no password: every user of the host may read it.
Any other needs one, or clients with a certificate, unless `--web.allow-unauthenticated` says that
something else keeps strangers out. TLS alone does not: it hides the answers on the wire.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from pipelined.config import Address, Config
from pipelined.errors import ConfigurationError
from pipelined.http_port.listening import resolved

if TYPE_CHECKING:
    from pipelined.http_port.web_config_file import WebConfigFile

__all__ = ["is_exposed", "protected_port", "unauthenticated"]


def protected_port(config: Config) -> tuple[Address, WebConfigFile | None]:
    """Where the daemon listens, and the web config that protects the port.

    Raises UserError if the host is unknown or the web config is wrong, or if other hosts could read
    the port without a password or a certificate and nobody has allowed that.
    """
    address = resolved(config.web_listen_address)
    refused = is_exposed(address) and not config.web_allow_unauthenticated
    if config.web_config_file is not None:
        # TLS, YAML and bcrypt: 1.2 MB
        from pipelined.http_port.web_config_file import WebConfigFile

        exposed_at = address if refused else None
        return address, WebConfigFile(config.web_config_file, exposed_at=exposed_at)
    if refused:
        what_to_give = "give --web.config.file with passwords (docs/SECURITY.md), "
        raise unauthenticated(address, "which commands run here", what_to_give)
    return address, None


def is_exposed(address: Address) -> bool:
    """Whether other hosts may reach it. `address` has a numeric host, as `resolved` returns it.

    >>> is_exposed(Address("127.0.0.1", 9905)), is_exposed(Address("0.0.0.0", 9905))
    (False, True)
    """
    return not ipaddress.ip_address(address.host.partition("%")[0]).is_loopback


def unauthenticated(address: Address, shown: str, what_to_give: str) -> ConfigurationError:
    """The error for a port at `address` that everybody may read, who could see what is `shown`."""
    return ConfigurationError(
        f"will not listen on {address} without a password: whoever reaches it could see {shown}",
        f"{what_to_give}--web.allow-unauthenticated if something else keeps others out, or listen"
        " on 127.0.0.1",
    )
