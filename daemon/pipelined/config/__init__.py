# SPDX-License-Identifier: Apache-2.0
"""The daemon's options: described in `options`, parsed by `values`, read by `toml_file`."""

from pipelined.config.options import (
    DEFAULT_HISTORY_AGE,
    DEFAULT_HISTORY_SIZE,
    OPTIONS,
    Config,
    Option,
    merge,
)
from pipelined.config.values import Address, parse_duration

__all__ = [
    "DEFAULT_HISTORY_AGE",
    "DEFAULT_HISTORY_SIZE",
    "OPTIONS",
    "Address",
    "Config",
    "Option",
    "merge",
    "parse_duration",
]
