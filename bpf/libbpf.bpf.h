/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How maps, programs and global functions are written for libbpf. bcc.bpf.h defines the same
 * names for the other loader; no other file depends on which one it is built for.
 */
#ifndef PIPELINED_LIBBPF_H
#define PIPELINED_LIBBPF_H

#include "kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#define MAP(name) (&name)

/* The daemon sets another size before it loads the object. */
#define SIZED(map, otherwise) (otherwise)

#define MAP_OF(name_, type_, entries, flags, key_type, value_type) \
	struct {                                                   \
		__uint(type, BPF_MAP_TYPE_##type_);                \
		__uint(max_entries, entries);                      \
		__uint(map_flags, flags);                          \
		__type(key, key_type);                             \
		__type(value, value_type);                         \
	} name_ SEC(".maps")

#define MAP_ARRAY(name, value, entries) MAP_OF(name, ARRAY, entries, 0, u32, value)
#define MAP_SHARED_ARRAY(name, value, entries) MAP_OF(name, ARRAY, entries, BPF_F_MMAPABLE, u32, value)
#define MAP_PERCPU(name, value, entries) MAP_OF(name, PERCPU_ARRAY, entries, 0, u32, value)
#define MAP_HASH(name, key, value, entries) MAP_OF(name, HASH, entries, 0, key, value)
#define MAP_TASK_STORAGE(name, value) MAP_OF(name, TASK_STORAGE, 0, BPF_F_NO_PREALLOC, int, value)
#define MAP_STACK(name, value_type, entries)            \
	struct {                                        \
		__uint(type, BPF_MAP_TYPE_STACK);       \
		__uint(max_entries, entries);           \
		__type(value, value_type);              \
	} name SEC(".maps")
#define MAP_RINGBUF(name, bytes)                        \
	struct {                                        \
		__uint(type, BPF_MAP_TYPE_RINGBUF);     \
		__uint(max_entries, bytes);             \
	} name SEC(".maps")

/* Verified once, not at each call: this keeps every program within the verifier's limit. */
#define GLOBAL(type, name) __attribute__((noinline)) type name

/* Verified at each call, because it takes what a global function cannot: a typed task. */
#define LOCAL(type, name) static __noinline type name

/* A program that takes its context without unpacking it. */
#define PROGRAM(name) int name

#define FILE_REFERENCES(file)                                                              \
	(bpf_core_field_exists(struct file___ref, f_ref) ?                                 \
		 BPF_CORE_READ((struct file___ref *)(file), f_ref.refcnt.counter) + 1 :    \
		 BPF_CORE_READ((struct file___count *)(file), f_count.counter))

/* A folio of one page has no count and is no head page. Its flags are its first word. */
#define FOLIO_PAGES(folio)                                                                    \
	(!(*(const u64 *)(folio) & 1ULL << bpf_core_enum_value(enum pageflags, PG_head)) ? 1 :  \
	 bpf_core_field_exists(struct folio___since, _nr_pages) ?                               \
		 BPF_CORE_READ((struct folio___since *)(folio), _nr_pages) :                    \
		 BPF_CORE_READ((struct folio___before *)(folio), _folio_nr_pages))

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#endif
