/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How maps and global functions are written for a shared library in user space, in which the programs run on a host
 * that is made up (kernel.c). bpf/libbpf.bpf.h and bpf/bcc.bpf.h define the same names for the kernel.
 *
 * Maps are plain memory, which host.py allocates: what `struct map` says of them is all that it needs. The helpers
 * are those that the programs of the `sched` tier call. An environment is empty.
 */
#ifndef PIPELINED_NATIVE_H
#define PIPELINED_NATIVE_H

#include <stdlib.h>
#include <string.h>
#include "kernel.bpf.h"

#undef __always_inline
#define __always_inline inline __attribute__((always_inline))

enum { TASKS = 64, CPUS = 2 };

enum map_kind { ARRAY, PERCPU_ARRAY, HASH, STACK, TASK_STORAGE, RINGBUF };

struct map {
	const char *name;
	u32 kind, key_size, value_size, entries;
	u32 count;	/* of the elements of a hash or a stack */
	void *memory;
} __attribute__((aligned(64)));	/* as the linker lays them out: they are an array */

#define MAP(name) (&name)
#define SIZED(map, otherwise) (otherwise)

#define MAP_OF(name, kind, key_size, value_size, entries) \
	static struct map name __attribute__((section("maps"), used)) = { #name, kind, key_size, value_size, entries }
#define MAP_ARRAY(name, value, entries) MAP_OF(name, ARRAY, 4, sizeof(value), entries)
#define MAP_SHARED_ARRAY(name, value, entries) MAP_ARRAY(name, value, entries)
#define MAP_PERCPU(name, value, entries) MAP_OF(name, PERCPU_ARRAY, 4, sizeof(value), entries)
#define MAP_HASH(name, key, value, entries) MAP_OF(name, HASH, sizeof(key), sizeof(value), entries)
#define MAP_STACK(name, value, entries) MAP_OF(name, STACK, 0, sizeof(value), entries)
#define MAP_TASK_STORAGE(name, value) MAP_OF(name, TASK_STORAGE, 0, sizeof(value), TASKS)
#define MAP_RINGBUF(name, bytes) MAP_OF(name, RINGBUF, 0, 0, bytes)

#define GLOBAL(type, name) static __attribute__((noinline, unused)) type name
#define LOCAL(type, name) GLOBAL(type, name)

/* What is behind a null pointer reads as zeros, as in the kernel. */
#define READ_1(from, a)                                                 \
	({                                                              \
		typeof(from) from_ = (from);                            \
		from_ ? from_->a : (typeof(from_->a))0;                 \
	})
#define READ_2(from, a, b) READ_1(READ_1(from, a), b)
#define READ_3(from, a, b, c) READ_1(READ_2(from, a, b), c)
#define READ_4(from, a, b, c, d) READ_1(READ_3(from, a, b, c), d)
#define READ_N(_1, _2, _3, _4, read, ...) read
#define BPF_CORE_READ(from, path...) READ_N(path, READ_4, READ_3, READ_2, READ_1)(from, path)
#define BPF_CORE_READ_BITFIELD(from, field) ((from)->field)
#define BPF_CORE_READ_STR_INTO(to, from, field) bpf_probe_read_kernel_str(to, sizeof(*(to)), (from)->field)

struct open_file {
	struct file file;
	int references;
};
#define FILE_REFERENCES(address) (((struct open_file *)(address))->references)

static u64 clock_ns;
static struct task_struct *current;
static u32 current_cpu;

/* A program is stopped in the middle of its work, at the call of a helper, while the daemon sweeps on another CPU. */
static void (*interrupt)(void);
static u32 calls_to_interrupt;

static void helper_called(void)
{
	struct task_struct *stopped = current;
	u32 cpu = current_cpu;

	if (!calls_to_interrupt || --calls_to_interrupt)
		return;
	interrupt();
	current = stopped;
	current_cpu = cpu;
}

static u32 element_size(const struct map *map)
{
	return (map->key_size + map->value_size + 7) & ~7;
}

static void *bpf_map_lookup_elem(struct map *map, const void *key)
{
	u32 index = *(const u32 *)key;
	char *at = map->memory;

	helper_called();
	if (map->kind != HASH) {
		if (index >= map->entries)
			return NULL;
		if (map->kind == PERCPU_ARRAY)
			index += current_cpu * map->entries;
		return at + (u64)index * map->value_size;
	}
	for (u32 i = 0; i < map->count; i++, at += element_size(map))
		if (!memcmp(at, key, map->key_size))
			return at + map->key_size;
	return NULL;
}

static long bpf_map_update_elem(struct map *map, const void *key, const void *value, u64 flags)
{
	char *found = bpf_map_lookup_elem(map, key);

	if (found && flags & BPF_NOEXIST)
		return -17;
	if (!found) {
		if (map->count == map->entries)
			return -7;
		found = (char *)map->memory + element_size(map) * map->count++;
		memcpy(found, key, map->key_size);
		found += map->key_size;
	}
	memcpy(found, value, map->value_size);
	return 0;
}

static long bpf_map_delete_elem(struct map *map, const void *key)
{
	char *found = bpf_map_lookup_elem(map, key);

	if (!found)
		return -2;
	memmove(found - map->key_size, (char *)map->memory + element_size(map) * --map->count, element_size(map));
	return 0;
}

static long bpf_map_pop_elem(struct map *map, void *value)
{
	helper_called();
	if (!map->count)
		return -2;
	memcpy(value, (char *)map->memory + --map->count * map->value_size, map->value_size);
	return 0;
}

static u32 number_of(const struct task_struct *task);

static void *bpf_task_storage_get(struct map *map, struct task_struct *task, void *initial, u64 flags)
{
	void **storage = (void **)map->memory + number_of(task);

	helper_called();
	if (!*storage && flags & BPF_LOCAL_STORAGE_GET_F_CREATE)
		*storage = calloc(1, map->value_size);
	return *storage;
}

static long bpf_ringbuf_output(struct map *map, void *data, u64 size, u64 flags)
{
	map->count++;
	return 0;
}

/* What the sweep writes out for a checkpoint. */
static char saved[TASKS * 512];
static u32 saved_size;

static long bpf_seq_write(struct seq_file *to, const void *data, u32 size)
{
	if (size > sizeof(saved) - saved_size)
		return -75;
	memcpy(saved + saved_size, data, size);
	saved_size += size;
	return 0;
}

/* No two calls return the same. */
static u64 bpf_ktime_get_ns(void)
{
	helper_called();
	return ++clock_ns;
}

static u64 bpf_get_current_task(void)
{
	return (u64)current;
}

static struct task_struct *bpf_get_current_task_btf(void)
{
	return current;
}

static u64 bpf_get_current_pid_tgid(void)
{
	return (u64)current->tgid << 32 | (u32)current->pid;
}

static u32 bpf_get_smp_processor_id(void)
{
	return current_cpu;
}

static long bpf_task_pt_regs(struct task_struct *task);

static long bpf_probe_read_kernel(void *to, u32 size, const void *from)
{
	if (!from) {
		memset(to, 0, size);
		return -14;
	}
	memcpy(to, from, size);
	return 0;
}

static long bpf_probe_read_kernel_str(void *to, u32 size, const void *from)
{
	u64 length;

	if (!from)
		return bpf_probe_read_kernel(to, size, from);
	length = strnlen(from, size - 1);
	memcpy(to, from, length);
	((char *)to)[length] = 0;
	return length + 1;
}

static long bpf_probe_read_user(void *to, u32 size, const void *from)
{
	return bpf_probe_read_kernel(to, size, from);
}

static long bpf_probe_read_user_str(void *to, u32 size, const void *from)
{
	return from ? bpf_probe_read_kernel_str(to, size, from) : bpf_probe_read_user(to, size, from);
}

/* The verifier needs no help here, and FORGET is written in its instructions. */
#include "maps.bpf.h"
#undef FORGET
#define FORGET(value, unknown) ((void)(unknown))

#endif
