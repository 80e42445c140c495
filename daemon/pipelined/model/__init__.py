# SPDX-License-Identifier: Apache-2.0
"""From map records to runs and totals: pure, needs neither root nor BPF."""
