# SPDX-License-Identifier: Apache-2.0
"""How the kernel side asks for a sweep."""

from __future__ import annotations

import mmap

__all__ = ["Wakeups"]


class Wakeups:
    """The ring buffer that carries no data: its arrival is the message."""

    def __init__(self, fd: int) -> None:
        page = mmap.PAGESIZE
        self._consumer = mmap.mmap(fd, page)
        self._producer = mmap.mmap(fd, page, prot=mmap.PROT_READ, offset=page)

    def clear(self) -> None:
        self._consumer[:8] = self._producer[:8]

    def close(self) -> None:
        self._consumer.close()
        self._producer.close()
