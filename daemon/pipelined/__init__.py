# SPDX-License-Identifier: Apache-2.0
"""pipelined: is your pipeline actually pipelined?"""

__version__ = "0.2.0"
