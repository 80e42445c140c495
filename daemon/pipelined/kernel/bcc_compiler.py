# SPDX-License-Identifier: Apache-2.0
"""The process in which bcc compiles, and which loads and attaches the result.

bcc supports neither programs with typed arguments (tp_btf, fentry …) nor functions that call each
other, so it only makes instructions, maps and BTF, and the rest is done here: bpf/bcc.bpf.h
describes how calls and maps are marked in the instructions. Kernel types come from the running
kernel's BTF, written as one C header; no kernel headers are needed.

It talks to bcc_loader.py over the socket whose descriptor is the first argument, and ends when
that closes. The second argument is the directory of bcc's Python module.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import json
import os
import re
import socket
import struct
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelined.kernel.libbpf import REFUSED, Libbpf, verdict

# include/uapi/linux/bpf.h
_BPF_PSEUDO_CALL = 1
_BPF_PSEUDO_MAP_FD = 1
_CALL = 0x85
_LOAD_64 = 0x18
_BTF_KIND_INT = 1
_BTF_KIND_STRUCT = 4
_BTF_KIND_TYPEDEF = 8
_BTF_KIND_FUNC = 12
_BTF_KINDS_ENUM = (6, 19)
_BTF_FUNC_GLOBAL = 1
_MAP_INFO_BTF_ID = 64  # offset in struct bpf_map_info
_PROG_TYPE = {"kprobe": 2, "tracepoint": 5}
_PROG_TYPE_TRACING = 26
_ATTACH_TYPE = {"tp_btf": 23, "fentry": 24, "fexit": 25, "iterator": 28}
_INSTRUCTION = struct.Struct("=BBhi")

# As in the marks that bpf/bcc.bpf.h makes of these: the number of a function or a map is added.
_CALL_MARK = 0x1000_0000
_MAP_MARK = 0x2000_0000
_MARK_MASK = 0x0FFF_FFFF

#: What the structures that bcc's own header names are called.
_OF_BCC = ("bpf_", "btf_", "__sk_buff", "xdp_md")

#: BPF_LOG_STATS of include/linux/bpf_verifier.h: what is wrong, not each instruction on the way.
_LOG_LEVEL = 4
_LOG_SIZE = 65536

#: bcc looks for its kernel headers under these names. All it needs is in the one of types.
_HEADERS = (
    *("linux/kconfig", "linux/version", "linux/log2", "linux/types", "linux/bpf_common"),
    *("uapi/linux/if_packet", "uapi/linux/if_ether", "uapi/linux/bpf", "uapi/linux/ptrace"),
    "asm/page",
)
_HEADER = """\
#ifndef PIPELINED_TYPES
#define PIPELINED_TYPES
#define BPF_NO_PRESERVE_ACCESS_INDEX
#define CONFIG_BPF_SYSCALL 1
#define _UAPI__LINUX_BPF_H__
#define __LINUX_BPF_H__
#define KERNEL_VERSION(a, b, c) (((a) << 16) + ((b) << 8) + (c))
#define LINUX_VERSION_CODE {version}
#define PAGE_SIZE {page_size}
#include "{types}"
{helpers}
#endif
"""

#: bcc's own header names every helper of its time, older kernels' types do not: the numbers of
#: include/uapi/linux/bpf.h from this one on (5.16). There are no others: 211 was the last.
_LATER_HELPERS_FROM = 176
_LATER_HELPERS = (
    *("get_branch_snapshot", "trace_vprintk", "skc_to_unix_sock", "kallsyms_lookup_name"),
    *("find_vma", "loop", "strncmp", "get_func_arg", "get_func_ret", "get_func_arg_cnt"),
    *("get_retval", "set_retval", "xdp_get_buff_len", "xdp_load_bytes", "xdp_store_bytes"),
    *("copy_from_user_task", "skb_set_tstamp", "ima_file_hash", "kptr_xchg"),
    *("map_lookup_percpu_elem", "skc_to_mptcp_sock", "dynptr_from_mem"),
    *("ringbuf_reserve_dynptr", "ringbuf_submit_dynptr", "ringbuf_discard_dynptr"),
    *("dynptr_read", "dynptr_write", "dynptr_data", "tcp_raw_gen_syncookie_ipv4"),
    *("tcp_raw_gen_syncookie_ipv6", "tcp_raw_check_syncookie_ipv4"),
    *("tcp_raw_check_syncookie_ipv6", "ktime_get_tai_ns", "user_ringbuf_drain"),
    *("cgrp_storage_get", "cgrp_storage_delete"),
)


class _RefusedError(Exception):
    """The kernel refused something; sent to the parent."""

    def __init__(self, what: str, code: int, reason: str = "") -> None:
        super().__init__(what)
        self.answer = {"what": what, "errno": abs(code), "reason": reason}


class _LoadOptions(ctypes.Structure):
    """struct bpf_prog_load_opts of libbpf 1.1; later ones add to its end."""

    _fields_ = (
        ("sz", ctypes.c_size_t),
        ("attempts", ctypes.c_int),
        ("expected_attach_type", ctypes.c_int),
        ("prog_btf_fd", ctypes.c_uint),
        ("prog_flags", ctypes.c_uint),
        ("prog_ifindex", ctypes.c_uint),
        ("kern_version", ctypes.c_uint),
        ("attach_btf_id", ctypes.c_uint),
        ("attach_prog_fd", ctypes.c_uint),
        ("attach_btf_obj_fd", ctypes.c_uint),
        ("fd_array", ctypes.c_void_p),
        ("func_info", ctypes.c_char_p),
        ("func_info_cnt", ctypes.c_uint),
        ("func_info_rec_size", ctypes.c_uint),
        ("line_info", ctypes.c_void_p),
        ("line_info_cnt", ctypes.c_uint),
        ("line_info_rec_size", ctypes.c_uint),
        ("log_level", ctypes.c_uint),
        ("log_size", ctypes.c_uint),
        ("log_buf", ctypes.c_void_p),
    )


class _Source:
    """Functions that are called, and maps, as the macros in the source declare them."""

    def __init__(self, directory: Path) -> None:
        text = "".join(path.read_text() for path in sorted(directory.glob("*.[ch]")))
        # the macros' own definitions stand in the loaders' headers, behind a #define
        self.local = re.findall(r"^LOCAL\([^,]+, (\w+)\)", text, re.M)
        self.functions = re.findall(r"^GLOBAL\([^,]+, (\w+)\)", text, re.M) + self.local
        self.maps = re.findall(r"^MAP_[A-Z_]+\((\w+),", text, re.M)
        self.main = directory / "pipelined.bpf.c"
        own = "".join(
            path.read_text() for path in directory.glob("*.h") if path.name != "kernel.bpf.h"
        )
        enums = re.findall(r"^enum(?: \w+)? \{(.*?)\}", own, re.M | re.S)
        self.names = {
            *re.findall(r"^(?:struct|enum) (\w+) \{", own, re.M),
            *re.findall(
                r"\b[A-Z][A-Z0-9_]+\b", re.sub(r"/\*.*?\*/", "", "".join(enums), flags=re.S)
            ),
        }
        """Of its types and constants: some kernel may have others of these names."""
        self.structures = set(
            re.findall(
                r"^struct (\w+?)(?:___\w+)? \{", (directory / "kernel.bpf.h").read_text(), re.M
            )
        )
        """Of the kernel, that it uses."""


def _is_used(lib: ctypes.CDLL, btf: int, index: int, structures: Collection[str]) -> bool:
    """Whether our source or bcc's header may use this type: constants, numbers, some structures.

    What these are made of comes along. To read all of the kernel's takes clang longer.
    """
    words = lib.btf__type_by_id(btf, index)  # struct btf_type: name_off, info
    kind = words[1] >> 24 & 0x1F
    if kind == _BTF_KIND_STRUCT:
        name = lib.btf__name_by_offset(btf, words[0]).decode()
        return name in structures or name.startswith(_OF_BCC)
    if kind == _BTF_KIND_TYPEDEF:
        index = lib.btf__resolve_type(btf, index)
        kind = lib.btf__type_by_id(btf, index)[1] >> 24 & 0x1F if index > 0 else 0  # 0: void
        return kind in (_BTF_KIND_INT, *_BTF_KINDS_ENUM)
    return kind in _BTF_KINDS_ENUM


def _write_types(lib: ctypes.CDLL, structures: Collection[str], path: Path) -> None:
    """The running kernel's types as C, as bpftool btf dump … format c has them.

    Of the structures, those that are named, and what they are made of.
    """
    pointer = ctypes.c_void_p
    libc = ctypes.CDLL(None)
    libc.fopen.restype = pointer
    libc.fopen.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    libc.fclose.argtypes = [pointer]
    lib.btf__load_vmlinux_btf.restype = pointer
    lib.btf__type_cnt.argtypes = [pointer]
    lib.btf__type_by_id.restype = ctypes.POINTER(ctypes.c_uint32)
    lib.btf__type_by_id.argtypes = [pointer, ctypes.c_uint]
    lib.btf__name_by_offset.restype = ctypes.c_char_p
    lib.btf__name_by_offset.argtypes = [pointer, ctypes.c_uint]
    lib.btf__resolve_type.argtypes = [pointer, ctypes.c_uint]
    lib.btf_dump__new.restype = pointer
    lib.btf_dump__new.argtypes = [pointer, pointer, pointer, pointer]
    lib.btf_dump__dump_type.argtypes = [pointer, ctypes.c_uint]
    btf = lib.btf__load_vmlinux_btf()
    if not btf:
        raise _RefusedError("the kernel's BTF cannot be read", ctypes.get_errno())
    file = libc.fopen(os.fsencode(path), b"w")
    # its printer has the parameters of vfprintf
    dump = lib.btf_dump__new(btf, ctypes.cast(libc.vfprintf, pointer), file, None)
    for index in range(1, lib.btf__type_cnt(btf)):
        if not _is_used(lib, btf, index, structures):
            continue
        if lib.btf_dump__dump_type(dump, index) < 0:
            raise _RefusedError("the kernel's BTF cannot be written as C", ctypes.get_errno())
    libc.fclose(file)


def _also_in_kernel(names: Collection[str], declared: str) -> list[str]:
    """Those of `names` that the kernel's types and constants have."""
    there = set(re.findall(r"^(?:struct|enum|union) (\w+) \{", declared, re.M))
    there.update(re.findall(r"^\t(\w+) = -?\d+,$", declared, re.M))
    return sorted(there.intersection(names))


def _has_field(declared: str, struct: str, field: str) -> int:
    found = re.search(rf"^struct {struct} \{{.*?^\}}", declared, re.M | re.S)
    return int(bool(found and re.search(rf"\b{field};", found[0])))


def _compile(
    lib: ctypes.CDLL, source: _Source, sizes: Mapping[str, int], machine: str
) -> tuple[Any, Any]:
    """bcc's library, and the compiled module with its maps; bcc prints what is wrong."""
    version = [int(n) for n in re.findall(r"\d+", os.uname().release)[:3]]
    code = (version[0] << 16) + (version[1] << 8) + min(version[2], 255)
    os.environ["BCC_LINUX_VERSION_CODE"] = str(code)
    with tempfile.TemporaryDirectory(prefix="pipelined-") as name:
        directory = Path(name)
        types = directory / "types.h"
        _write_types(lib, source.structures, types)
        declared = types.read_text()
        helpers = [
            f"#define BPF_FUNC_{helper} {n}"
            for n, helper in enumerate(_LATER_HELPERS, _LATER_HELPERS_FROM)
            if not re.search(rf"\bBPF_FUNC_{helper}\b", declared)
        ]
        text = _HEADER.format(
            version=code,
            page_size=os.sysconf("SC_PAGE_SIZE"),
            types=types,
            helpers="\n".join(helpers),
        )
        for header in _HEADERS:
            path = directory / "include" / f"{header}.h"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        os.environ["BCC_KERNEL_SOURCE"] = name
        lines = ["#define PIPELINED_BCC"]
        lines += [
            f"#define {name} pipelined_{name}" for name in _also_in_kernel(source.names, declared)
        ]
        lines += [f"#define FILE_HAS_REF {_has_field(declared, 'file', 'f_ref')}"]
        lines += [f"#define FOLIO_HAS_NR_PAGES {_has_field(declared, 'folio', '_nr_pages')}"]
        lines += [f"#define __TARGET_ARCH_{'arm64' if machine == 'aarch64' else 'x86'}"]
        lines += [f"#define CALL_MARK {_CALL_MARK}", f"#define MAP_MARK {_MAP_MARK}"]
        lines += ["#define SIZED(map, otherwise) SIZE_##map"]
        lines += [f"#define SIZE_{map} {entries}" for map, entries in sizes.items()]
        lines += [f"#define MARK_{map} {n}" for n, map in enumerate(source.maps)]
        for n, function in enumerate(source.functions):
            lines += [f"#define MARK_{function} {n}"]
            lines += [f"#define {function}(...) CALL({function})(__VA_ARGS__)"]
        lines += [f'#include "{source.main}"', ""]
        # bcc takes the host for the target, and LLVM would lay out wide padding as the host does
        flags = ["-target", "bpf", f"-D__{machine}__", f"-I{source.main.parent}"]
        flags += ["-fcf-protection=none"]  # bcc may ask for what only its host has
        flags += ["-fms-extensions"]  # structures without a name in others: 6.19's own types
        bcc = importlib.import_module("bcc")
        module = bcc.BPF(text="\n".join(lines).encode(), cflags=flags)
    return bcc.lib, module.module


class _Loader:
    """Links, loads and attaches the programs of one module."""

    def __init__(self, lib: ctypes.CDLL, bcc: Any, module: Any, source: _Source) -> None:
        self._lib = lib
        self._bcc = bcc
        self._module = module
        self._source = source
        self.maps = {name: int(bcc.bpf_table_fd(module, name.encode())) for name in source.maps}
        self._programs: dict[str, int] = {}
        self._declare()
        self._btf_fd = self._take_over_btf(self.maps["stages"])

    def _declare(self) -> None:
        pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint
        for name, result, arguments in (
            ("btf__load_from_kernel_by_id", pointer, [number]),
            ("btf__find_by_name_kind", ctypes.c_int, [pointer, text, number]),
            ("btf__raw_data", pointer, [pointer, pointer]),
            ("bpf_btf_load", ctypes.c_int, [pointer, ctypes.c_size_t, pointer]),
            ("libbpf_find_vmlinux_btf_id", ctypes.c_int, [text, ctypes.c_int]),
            (
                "bpf_prog_load",
                ctypes.c_int,
                [ctypes.c_int, text, text, text, ctypes.c_size_t, pointer],
            ),
        ):
            function = getattr(self._lib, name)
            function.restype = result
            function.argtypes = arguments

    def _take_over_btf(self, map_fd: int) -> int:
        """bcc's BTF, through one of its maps, loaded again with the functions' true linkage.

        bcc makes all functions static in it, but global ones are verified once, not at each
        call, and have to be called so.
        """
        lib = self._lib
        info = ctypes.create_string_buffer(256)
        size = ctypes.c_uint(len(info))
        if lib.bpf_obj_get_info_by_fd(map_fd, info, ctypes.byref(size)):
            raise _RefusedError("cannot ask about a map", ctypes.get_errno())
        (btf_id,) = struct.unpack_from("=I", info, _MAP_INFO_BTF_ID)
        btf = lib.btf__load_from_kernel_by_id(btf_id)
        if not btf:
            raise _RefusedError("the programs' BTF cannot be read", ctypes.get_errno())
        self._types = {
            name: lib.btf__find_by_name_kind(btf, name.encode(), _BTF_KIND_FUNC)
            for name in self._source.functions
        }
        for name, index in self._types.items():
            # struct btf_type: name_off, info; linkage is in the low half of info
            words = lib.btf__type_by_id(btf, index)
            linkage = 0 if name in self._source.local else _BTF_FUNC_GLOBAL
            words[1] = words[1] & 0xFFFF_0000 | linkage
        data = lib.btf__raw_data(btf, ctypes.byref(size))
        fd: int = lib.bpf_btf_load(data, size.value, None)
        if fd < 0:
            raise _RefusedError("the kernel refuses the programs' BTF", fd)
        self._btf = btf
        return fd

    def _code(self, name: str) -> bytes:
        size = self._bcc.bpf_function_size(self._module, name.encode())
        start = self._bcc.bpf_function_start(self._module, name.encode())
        if not size:
            raise _RefusedError(f"bcc made no function {name}", errno.ENOENT)
        return ctypes.string_at(start, size)

    def _link(self, name: str) -> tuple[bytes, dict[str, int]]:
        """Instructions of a program and all that it calls, and where each function begins."""
        order = [name]
        starts: dict[str, int] = {}
        linked: list[list[int]] = []
        calls: list[tuple[int, str]] = []
        for function in order:
            starts[function] = len(linked)
            for code, registers, offset, value in _INSTRUCTION.iter_unpack(self._code(function)):
                mark = value & ~_MARK_MASK
                if code == _CALL and mark == _CALL_MARK:
                    callee = self._source.functions[value & _MARK_MASK]
                    if callee not in order:
                        order.append(callee)
                    calls.append((len(linked), callee))
                    registers = _BPF_PSEUDO_CALL << 4
                elif code == _LOAD_64 and registers >> 4 == _BPF_PSEUDO_MAP_FD:
                    value = self.maps[self._source.maps[value & _MARK_MASK]]
                linked.append([code, registers, offset, value])
        for at, callee in calls:
            linked[at][3] = starts[callee] - at - 1
        return b"".join(_INSTRUCTION.pack(*instruction) for instruction in linked), starts

    def load(self, name: str, hook: str, method: str) -> None:
        instructions, starts = self._link(name)
        options = _LoadOptions(sz=ctypes.sizeof(_LoadOptions), prog_btf_fd=self._btf_fd)
        kind = _PROG_TYPE.get(method, _PROG_TYPE_TRACING)
        if method in _ATTACH_TYPE:
            target = hook.removeprefix("iter/").encode()
            attach_type = _ATTACH_TYPE[method]
            found = self._lib.libbpf_find_vmlinux_btf_id(target, attach_type)
            if found < 0:
                raise _RefusedError(f"no {hook} in the kernel's BTF", found)
            options.expected_attach_type = attach_type
            options.attach_btf_id = found
        records = [
            struct.pack("=II", start, self._type_of(function)) for function, start in starts.items()
        ]
        options.func_info = b"".join(records)
        options.func_info_cnt = len(records)
        options.func_info_rec_size = 8
        fd = self._bpf_prog_load(kind, name, instructions, options)
        if fd < 0:
            verifier_log = ctypes.create_string_buffer(_LOG_SIZE)
            options.log_level = _LOG_LEVEL
            options.log_size = _LOG_SIZE
            options.log_buf = ctypes.cast(verifier_log, ctypes.c_void_p)
            self._bpf_prog_load(kind, name, instructions, options)
            reason = verdict(verifier_log.value.decode(errors="replace"))
            raise _RefusedError(
                REFUSED,
                fd,
                f"program {name}: {reason}" if reason else "",
            )
        self._programs[name] = fd

    def _type_of(self, function: str) -> int:
        if function not in self._types:
            self._types[function] = self._lib.btf__find_by_name_kind(
                self._btf, function.encode(), _BTF_KIND_FUNC
            )
        return int(self._types[function])

    def _bpf_prog_load(
        self, kind: int, name: str, instructions: bytes, options: _LoadOptions
    ) -> int:
        fd: int = self._lib.bpf_prog_load(
            kind,
            name.encode(),
            b"Dual BSD/GPL",
            instructions,
            len(instructions) // _INSTRUCTION.size,
            ctypes.byref(options),
        )
        return fd

    def attach(self, name: str, hook: str, method: str) -> tuple[int, int]:
        """Descriptors of the link or perf event that keeps it attached, and of the program."""
        program = self._programs[name]
        if method == "iterator":
            fd = self._bcc.bcc_iter_attach(program, None, 0)
        elif method == "kprobe":
            event = f"pipelined_{hook}".encode()
            fd = self._bcc.bpf_attach_kprobe(program, 0, event, hook.encode(), 0, 0)
        elif method == "tracepoint":
            fd = self._bcc.bpf_attach_tracepoint(program, b"syscalls", hook.encode())
        else:
            # also what fentry and fexit are attached by: their program says where
            fd = self._bcc.bpf_attach_raw_tracepoint(program, None)
        if fd < 0:
            raise _RefusedError(f"cannot attach to {hook}", ctypes.get_errno() or -fd)
        return int(fd), program


def _serve(connection: socket.socket, lib: Libbpf) -> None:
    loader: _Loader | None = None
    while request := connection.recv(65536):
        asked = json.loads(request)
        fds: Sequence[int] = ()
        answer: Mapping[str, Any] = {}
        try:
            if loader is None:
                source = _Source(Path(asked["source"]))
                bcc, module = _compile(lib.library, source, asked["sizes"], asked["machine"])
                loader = _Loader(lib.library, bcc, module, source)
                fds = [loader.maps[name] for name in asked["maps"]]
            elif "load" in asked:
                loader.load(asked["load"], asked["hook"], asked["method"])
            else:
                fds = loader.attach(asked["attach"], asked["hook"], asked["method"])
        except _RefusedError as error:
            answer = error.answer
        socket.send_fds(connection, [json.dumps(answer).encode()], fds)


def main() -> None:
    descriptor, dist_packages = sys.argv[1:]
    sys.path.append(dist_packages)
    with socket.socket(fileno=int(descriptor)) as connection:
        _serve(connection, Libbpf())
    os._exit(0)  # nothing to save; LLVM takes its time to clean up


if __name__ == "__main__":
    main()
