# SPDX-License-Identifier: Apache-2.0
"""The rules behind the findings, one module per subject; `findings.RULES` lists them all."""
