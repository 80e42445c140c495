# SPDX-License-Identifier: Apache-2.0
"""`pipelined export`: finished runs leave the host as OpenTelemetry spans.

A process of its own, which needs no privilege: all that it knows it reads from the daemon's API.
"""
