# SPDX-License-Identifier: Apache-2.0
"""The functions of the system's libbpf.so.1 that are used, and what its messages mean."""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pipelined.errors import NO_PROGRAMS, NotPermittedError, UserError
from pipelined.kernel.privileges import NEEDED, effective, lacking

__all__ = [
    "ENOTSUPP",
    "FORBIDDEN",
    "LIBBPF_ERRNO",
    "REFUSED",
    "UNSUPPORTED",
    "Libbpf",
    "failure",
    "line_that_matters",
    "verdict",
]

log = logging.getLogger(__name__)

_LIBBPF_DEBUG = 2
_LIBBPF_PRINT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)

#: libbpf's own error numbers begin here: what it cannot make out in a file, mostly.
LIBBPF_ERRNO = 4000

#: Capabilities belong to a thread.
_STATUS = Path("/proc/thread-self/status")

#: What has failed if programs cannot be loaded.
REFUSED = "the kernel refuses the BPF programs"
#: Why programs at functions are refused if the host forbids them.
FORBIDDEN = "the kernel forbids fentry and fexit programs (EPERM)"
#: The kernel's own error number for what it does not support, which has no text in user space.
ENOTSUPP = 524
#: Why programs at functions cannot be attached although they were loaded: arm64 with 6.1.
UNSUPPORTED = "the kernel cannot attach fentry and fexit programs (ENOTSUPP)"


class Libbpf:
    """libbpf with its argument types, and the messages it has for us."""

    def __init__(self) -> None:
        try:
            lib = ctypes.CDLL("libbpf.so.1", use_errno=True)
            libc = ctypes.CDLL(None)
        except OSError as error:
            raise UserError(
                f"libbpf.so.1 cannot be loaded ({error})", "install it: apt-get install libbpf1"
            ) from None
        self.library = lib
        """For functions that are not in the table below."""
        pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
        self._libc_vsnprintf = libc.vsnprintf
        self._libc_vsnprintf.argtypes = [text, ctypes.c_size_t, text, pointer]
        self._libc_vsnprintf.restype = number
        for name, result, arguments in (
            ("bpf_object__open_file", pointer, [text, pointer]),
            ("bpf_object__load", number, [pointer]),
            ("bpf_object__close", None, [pointer]),
            ("bpf_object__find_map_by_name", pointer, [pointer, text]),
            ("bpf_object__find_program_by_name", pointer, [pointer, text]),
            ("bpf_object__next_map", pointer, [pointer, pointer]),
            ("bpf_map__fd", number, [pointer]),
            ("bpf_map__name", text, [pointer]),
            ("bpf_map__reuse_fd", number, [pointer, number]),
            ("bpf_program__fd", number, [pointer]),
            ("bpf_obj_get_info_by_fd", number, [number, pointer, pointer]),
            ("bpf_map__set_max_entries", number, [pointer, ctypes.c_uint32]),
            ("bpf_program__set_autoload", number, [pointer, ctypes.c_bool]),
            ("bpf_program__set_attach_target", number, [pointer, number, text]),
            ("bpf_program__attach", pointer, [pointer]),
            ("bpf_program__attach_kprobe", pointer, [pointer, ctypes.c_bool, text]),
            ("bpf_link__destroy", number, [pointer]),
            ("bpf_link__fd", number, [pointer]),
            ("bpf_iter_create", number, [number]),
            ("bpf_map_update_elem", number, [number, pointer, pointer, ctypes.c_uint64]),
            ("bpf_map_lookup_elem", number, [number, pointer, pointer]),
            ("bpf_map_delete_elem", number, [number, pointer]),
            ("libbpf_set_print", pointer, [_LIBBPF_PRINT]),
        ):
            function = getattr(lib, name)
            function.restype = result
            function.argtypes = arguments
            setattr(self, name, function)
        self.messages: list[str] = []
        self._print = _LIBBPF_PRINT(self._on_message)
        self.libbpf_set_print(self._print)

    @contextmanager
    def without_messages(self) -> Iterator[None]:
        """No messages meanwhile, unless they go to the log.

        A load makes 2,000, each of which waits for Python's lock if other threads run.
        """
        if log.isEnabledFor(logging.DEBUG):
            yield
            return
        self.libbpf_set_print(_LIBBPF_PRINT())  # none
        try:
            yield
        finally:
            self.libbpf_set_print(self._print)

    # set from the table above
    bpf_object__open_file: ctypes._NamedFuncPointer
    bpf_object__load: ctypes._NamedFuncPointer
    bpf_object__close: ctypes._NamedFuncPointer
    bpf_object__find_map_by_name: ctypes._NamedFuncPointer
    bpf_object__find_program_by_name: ctypes._NamedFuncPointer
    bpf_object__next_map: ctypes._NamedFuncPointer
    bpf_map__fd: ctypes._NamedFuncPointer
    bpf_map__name: ctypes._NamedFuncPointer
    bpf_map__reuse_fd: ctypes._NamedFuncPointer
    bpf_map__set_max_entries: ctypes._NamedFuncPointer
    bpf_program__fd: ctypes._NamedFuncPointer
    bpf_obj_get_info_by_fd: ctypes._NamedFuncPointer
    bpf_program__set_autoload: ctypes._NamedFuncPointer
    bpf_program__set_attach_target: ctypes._NamedFuncPointer
    bpf_program__attach: ctypes._NamedFuncPointer
    bpf_program__attach_kprobe: ctypes._NamedFuncPointer
    bpf_link__destroy: ctypes._NamedFuncPointer
    bpf_link__fd: ctypes._NamedFuncPointer
    bpf_iter_create: ctypes._NamedFuncPointer
    bpf_map_update_elem: ctypes._NamedFuncPointer
    bpf_map_lookup_elem: ctypes._NamedFuncPointer
    bpf_map_delete_elem: ctypes._NamedFuncPointer
    libbpf_set_print: ctypes._NamedFuncPointer

    def _on_message(self, level: int, form: bytes, arguments: int) -> int:
        if level == _LIBBPF_DEBUG and not log.isEnabledFor(logging.DEBUG):
            return 0  # 2,000 lines a load
        # A va_list parameter is a pointer on x86-64 and on arm64 alike.
        buffer = ctypes.create_string_buffer(65536)
        self._libc_vsnprintf(buffer, len(buffer), form, arguments)
        message = buffer.value.decode(errors="replace").rstrip()
        self.messages.append(message)
        log.debug("%s", message)
        return 0


def verdict(verifier_log: str) -> str:
    """The verifier's last word, out of its log, or nothing."""
    log_end = re.search(r"^processed \d+ insns", verifier_log, re.M)
    if not log_end:
        return ""
    noise = (
        r"\d+: |;|mark_precise|verification time|stack depth|from |arg#|returning from|to caller"
    )
    before = verifier_log[: log_end.start()].rstrip().splitlines()
    messages = [line for line in before if not re.match(noise, line.strip())]
    return messages[-1].strip() if messages else ""


def line_that_matters(messages: Sequence[str]) -> str:
    """The verifier's verdict, or libbpf's first complaint, without its prefixes."""
    text = "\n".join(messages)
    reason = verdict(text)
    if reason:
        program = re.search(r"prog '(\w+)'", text)
        return f"program {program[1] if program else '?'}: {reason}"
    for message in messages:
        if message.startswith("libbpf: ") and ("fail" in message or "rror" in message):
            return message.removeprefix("libbpf: ").splitlines()[0]
    return ""


def failure(what: str, code: int, reason: str = "") -> UserError:
    """The error to raise if the kernel refused `what` with errno `code`, and the reason if any.

    That a user may not load programs is said without libbpf's words, which have other causes first.
    """
    code = abs(code)
    if code in (errno.EACCES, errno.E2BIG) and reason.startswith("program "):
        code = errno.EINVAL  # the verifier's: not a matter of privileges, or of sizes of maps
    hints = {
        errno.ENOMEM: "lower --max-stages and --max-pipes, or allow more memory",
        errno.E2BIG: "lower --max-stages and --max-pipes",
    }
    kind = UserError
    if code in (errno.EPERM, errno.EACCES):
        kind, hints[code] = NotPermittedError, _what_to_give()
    if what == REFUSED and kind is NotPermittedError:
        return NotPermittedError(NO_PROGRAMS, hints[code])
    error = os.strerror(code) if code < LIBBPF_ERRNO else f"libbpf's error {code}"
    return kind(
        f"{what}: {reason} ({error})" if reason else f"{what}: {error}",
        hints.get(code, "see `pipelined doctor` and the log with --log.level=debug"),
    )


def _what_to_give() -> str:
    """How this thread could load programs. If one capability alone is missing, it is named."""
    held = effective(_STATUS)
    missing = list(NEEDED) if held is None else lacking(held)
    if missing:
        names = f"{missing[0]}, which is missing" if len(missing) == 1 else " and ".join(missing)
        hint = f"run as root, or with {names}"
    else:
        hint = (
            "it has the capabilities: a user namespace, a security module or a filter of system"
            " calls forbids it"
        )
    return f"{hint}; `pipelined doctor` says more"
