# SPDX-License-Identifier: Apache-2.0
"""The daemon's options: what they are, and how flags and a TOML file set them."""

from pipelined.config.options import (
    DEFAULT_HISTORY_AGE,
    DEFAULT_HISTORY_SIZE,
    OPTIONS,
    Address,
    Config,
    Option,
    is_listed,
    load,
    merge,
    parse_duration,
    parse_listen_address,
)

__all__ = [
    "DEFAULT_HISTORY_AGE",
    "DEFAULT_HISTORY_SIZE",
    "OPTIONS",
    "Address",
    "Config",
    "Option",
    "is_listed",
    "load",
    "merge",
    "parse_duration",
    "parse_listen_address",
]
