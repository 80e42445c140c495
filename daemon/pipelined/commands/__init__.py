# SPDX-License-Identifier: Apache-2.0
"""The subcommands of `pipelined`, one module each: their options, and what they call."""
