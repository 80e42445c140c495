/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How maps, programs and global functions are written for bcc, which compiles this source on the host that runs it,
 * with the types of that host's kernel (daemon/pipelined/kernel/bcc_compiler.py). libbpf.bpf.h defines the same names
 * for the other loader.
 *
 * bcc rewrites only the file that it is given; what that includes is compiled as it is. bcc supports neither functions
 * that call each other nor programs with typed arguments: the daemon links the former, and loads the result itself. So
 *  - every function has a section of its own, where bcc looks for programs;
 *  - a call of a global function is written as a call of helper CALL_MARK + its number, and a map as descriptor
 *    MAP_MARK + its number. The daemon defines MARK_… as these numbers, and puts the real ones in their place.
 */
#ifndef PIPELINED_BCC_H
#define PIPELINED_BCC_H

#include "kernel.bpf.h"

#define SEC(name)
#define __always_inline inline __attribute__((always_inline))

#define MAP(name) ((void *)bpf_pseudo_fd(1, MAP_MARK + MARK_##name))

#define MAP_ARRAY(name, value, entries) BPF_TABLE("array", u32, value, name, entries)
#define MAP_SHARED_ARRAY(name, value, entries) \
	BPF_F_TABLE("array", u32, value, name, entries, BPF_F_MMAPABLE)
#define MAP_PERCPU(name, value, entries) BPF_TABLE("percpu_array", u32, value, name, entries)
#define MAP_HASH(name, key, value, entries) BPF_F_TABLE("hash", key, value, name, entries, 0)
#define MAP_TASK_STORAGE(name, value) BPF_TASK_STORAGE(name, value)
#define MAP_STACK(name, value, entries) BPF_STACK(name, value, entries)
#define MAP_RINGBUF(name, bytes) BPF_RINGBUF_OUTPUT(name, (bytes) / PAGE_SIZE)

#define SECTION_OF(name) __attribute__((section(".bpf.fn." #name)))

/* In parentheses: `name(` alone is a call, by a macro that the daemon writes. */
#define GLOBAL(type, name) __attribute__((noinline)) SECTION_OF(name) type(name)
#define LOCAL(type, name) GLOBAL(type, name)	/* the daemon changes its linkage in the BTF */
#define CALL(name) ((typeof(&name))(CALL_MARK + MARK_##name))

#define PROGRAM(name) SECTION_OF(name) int name

#undef BPF_PROG
#define BPF_PROG(name, args...)                                                 \
	SECTION_OF(name) name(unsigned long long *ctx);                         \
	static __always_inline int arguments_of_##name(unsigned long long *ctx, ##args); \
	int name(unsigned long long *ctx)                                       \
	{                                                                       \
		_Pragma("GCC diagnostic push")                                  \
		_Pragma("GCC diagnostic ignored \"-Wint-conversion\"")          \
		return arguments_of_##name(___bpf_ctx_cast(args));              \
		_Pragma("GCC diagnostic pop")                                   \
	}                                                                       \
	static __always_inline int arguments_of_##name(unsigned long long *ctx, ##args)

/* bcc's helpers of these names are methods of its maps */
#define bpf_map_lookup_elem ((void *(*)(void *, const void *))BPF_FUNC_map_lookup_elem)
#define bpf_map_update_elem \
	((long (*)(void *, const void *, const void *, u64))BPF_FUNC_map_update_elem)
#define bpf_map_delete_elem ((long (*)(void *, const void *))BPF_FUNC_map_delete_elem)

/* The types are the running kernel's: nothing has to be relocated. */
#define READ_1(from, a)                                                         \
	({                                                                      \
		typeof((from)->a) value_;                                       \
		bpf_probe_read_kernel(&value_, sizeof(value_), &(from)->a);     \
		value_;                                                         \
	})
#define READ_2(from, a, b) READ_1(READ_1(from, a), b)
#define READ_3(from, a, b, c) READ_1(READ_2(from, a, b), c)
#define READ_4(from, a, b, c, d) READ_1(READ_3(from, a, b, c), d)
#define READ_N(_1, _2, _3, _4, read, ...) read
#define BPF_CORE_READ(from, path...) READ_N(path, READ_4, READ_3, READ_2, READ_1)(from, path)
#define BPF_CORE_READ_BITFIELD(from, field) ((from)->field)
#define BPF_CORE_READ_STR_INTO(to, from, field) \
	bpf_probe_read_kernel_str(to, sizeof(*(to)), (from)->field)

/* The daemon has looked up which of the two this kernel's struct file has. */
#if FILE_HAS_REF
#define FILE_REFERENCES(file) (BPF_CORE_READ(file, f_ref.refcnt.counter) + 1)
#else
#define FILE_REFERENCES(file) BPF_CORE_READ(file, f_count.counter)
#endif

#if FOLIO_HAS_NR_PAGES
#define FOLIO_COUNT(folio) BPF_CORE_READ(folio, _nr_pages)
#else
#define FOLIO_COUNT(folio) BPF_CORE_READ(folio, _folio_nr_pages)
#endif
#define FOLIO_PAGES(folio) (!(*(const u64 *)(folio) & 1ULL << PG_head) ? 1 : FOLIO_COUNT(folio))

#endif
