# SPDX-License-Identifier: Apache-2.0
"""`pipelined serve`: the daemon's life, systemd, and the privileges it gives up."""
