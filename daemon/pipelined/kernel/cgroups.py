# SPDX-License-Identifier: Apache-2.0
"""What the cgroups of stages are called, as the kernel side noted it when a stage was made."""

from __future__ import annotations

import os
import struct
from ctypes import sizeof

from pipelined.kernel.layout import CGROUP_NAME, CgroupName
from pipelined.kernel.loader import Loaded

__all__ = ["NotedCgroups"]


class NotedCgroups:
    """The names of one loaded object. The kernel side forgets the oldest ones."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded

    def __call__(self, cgroup_id: int) -> tuple[str, int] | None:
        """The last name of its path, and the id of the cgroup that it is in; 0 if it is the root.

        None if it was not noted, has been forgotten, or may have been cut.
        """
        raw = self._loaded.get("cgroups", struct.pack("=Q", cgroup_id), sizeof(CgroupName))
        if raw is None:
            return None
        noted = CgroupName.from_buffer_copy(raw)
        if len(noted.name) >= CGROUP_NAME - 1:
            return None
        return os.fsdecode(noted.name), noted.above
