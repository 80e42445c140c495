# SPDX-License-Identifier: Apache-2.0
"""The port: sockets, TLS, passwords and limits. It knows nothing of pipelines."""
