# SPDX-License-Identifier: Apache-2.0
"""What a person reads at a prompt: reports, tables and `top`."""
