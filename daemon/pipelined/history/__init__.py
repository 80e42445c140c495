# SPDX-License-Identifier: Apache-2.0
"""Finished runs, kept in SQLite: written by the daemon, read by the pages, API and commands."""
