# SPDX-License-Identifier: Apache-2.0
"""What a sweep reads, in words that know no BPF: the kernel side fills them, the model adds up."""
