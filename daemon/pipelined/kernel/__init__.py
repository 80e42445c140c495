# SPDX-License-Identifier: Apache-2.0
"""BPF programs and their maps: which hooks exist, how they are loaded, how the maps are read."""
