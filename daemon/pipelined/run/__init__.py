# SPDX-License-Identifier: Apache-2.0
"""`pipelined run` and `compare`: start a command, wait for it, measure it."""
