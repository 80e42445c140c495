/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Process substitution (rule 3 of docs/CONCEPTS.md): pipes that a command line names as /dev/fd/N.
 * Owns no map; uses a page of `scratch`.
 * Called at exec, for processes that hold any descriptor above stderr.
 * Costs a read of the command line and a comparison for each of its first ARGUMENTS_LEN bytes.
 * Cannot see what stands behind those bytes, nor more than MAX_NAMED descriptors of one command.
 */
#ifndef PIPELINED_ARGUMENTS_H
#define PIPELINED_ARGUMENTS_H

#include "topology.bpf.h"

#define SLASH_FD_SLASH 0x2f64662f	/* "/fd/", little endian */
#define NAMED_STEP 64			/* places that are searched by one call */
#define MAX_NAMED 8			/* descriptors of one command line that are looked at */

static __always_inline int read_arguments(u64 p, struct scratch *scratch)
{
	unsigned long start = BPF_CORE_READ(TASK(p), mm, arg_start);
	unsigned long size = BPF_CORE_READ(TASK(p), mm, arg_end) - start;

	if (size > ARGUMENTS_LEN)
		size = ARGUMENTS_LEN;
	__builtin_memset(scratch->arguments, 0, ARGUMENTS_LEN);
	return !bpf_probe_read_user(scratch->arguments, size & (ARGUMENTS_LEN * 2 - 1),
				    (void *)start);
}

/* Where "/fd/" next stands in NAMED_STEP places of the arguments from `from` on; -1 if nowhere. */
GLOBAL(int, named_among)(u32 scratch, u64 from)
{
	struct scratch *page = scratch_at(scratch);
	char *text;

	OPAQUE(from);
	/* zeros follow the arguments: reading on beyond them needs no check */
	if (!page || from > 2 * ARGUMENTS_LEN - NAMED_STEP)
		return -1;
	text = page->arguments + from;
	for (u32 i = 0; i < NAMED_STEP; i++)
		if (*(u32 *)(text + i) == SLASH_FD_SLASH)
			return from + i;
	return -1;
}

/* The next "/fd/" in all arguments. In steps: the verifier goes through each turn of a loop. */
GLOBAL(int, next_named)(u32 scratch, u32 from)
{
	int at = -1;

	for (u32 i = 0; i < ARGUMENTS_LEN && at < 0; i += NAMED_STEP)
		at = named_among(scratch, from + i);
	return at;
}

/* The descriptor N of the "/fd/N" at this place of the arguments, or -1. */
GLOBAL(int, named_descriptor)(u32 scratch, u32 at)
{
	struct scratch *page = scratch_at(scratch);
	u64 digits = at;
	u32 tens, ones;

	OPAQUE(digits);
	if (!page || digits >= ARGUMENTS_LEN)
		return -1;
	tens = (u8)(page->arguments[digits + 4] - '0');
	ones = (u8)(page->arguments[digits + 5] - '0');
	return tens > 9 ? -1 : ones > 9 ? tens : tens * 10 + ones;
}

/* The current task's command line names this descriptor. If that is a FIFO, it will be used. */
GLOBAL(int, discover_descriptor)(u64 p, struct task_state *task, u32 fd, u64 now)
{
	struct fifo fifo = {};
	u32 index;

	if (!task || fd < 3 || !fifo_at(p, fd, &fifo) || fifo.both)
		return 0;
	index = own_stage(task, p);
	if (!index) {
		index = become_stage(p, task, 0, now);
		stage_exec(index, now);
	}
	fifo.standard = 1;
	fifo.fresh = 1;
	return register_end(index, &fifo, now);
}

/*
 * Process substitution (rule 3): the arguments name descriptors, as /dev/fd/N or as
 * /proc/self/fd/N, that were opened before this exec.
 */
GLOBAL(int, discover_arguments)(u64 p, struct task_state *task, u64 now)
{
	u32 scratch = take_scratch();
	struct scratch *page = scratch_at(scratch);
	int at = -1, named = 0;

	if (task && page && holds_above_stdio(p, page) && read_arguments(p, page))
		named = MAX_NAMED;
	for (int i = 0; i < named; i++) {
		at = next_named(scratch, at + 1);
		if (at < 0)
			break;
		discover_descriptor(p, task, named_descriptor(scratch, at), now);
	}
	give_scratch(scratch);
	return 0;
}

#endif
