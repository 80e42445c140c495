# SPDX-License-Identifier: Apache-2.0
"""What a run means: its bottleneck, findings with advice, comparisons. Pure."""
