/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The maps that several headers use, the look-ups into them, and the walk over the stages around one.
 * Owns `stages`, `functions`, `readahead`, `free_stages`, `pipes`, `commands`, `units`, `lost`, `control`, `wakeups`
 * and `scratch`. The others stand with what they are for: `tasks` and `noted` in tasks.bpf.h, `asleep` in
 * sleep.bpf.h, `cpu_reads` in readahead.bpf.h, `windows` in window.bpf.h.
 * Called from every hook. A look-up in an array is read in place, without a call; one in a hash is a call.
 * The daemon sets the entries of maps that are SIZED. What does not fit is counted in `lost`. The daemon maps
 * shared arrays into its memory, so that a sweep reads them without system calls; index 0 is never used.
 */
#ifndef PIPELINED_MAPS_H
#define PIPELINED_MAPS_H

#include "pipelined.h"

/* Keeps clang from indexing with a copy that the verifier has not seen bounded. */
#define OPAQUE(index) asm volatile("" : "+r"(index))

#define MAX_DEPTH 6	/* stages that enclose a task; deeper ones are not told */

/* Such a function cannot take a typed task: it gets the address and reads it guardedly. */
#define TASK(address) ((struct task_struct *)(address))

MAP_SHARED_ARRAY(stages, struct stage, SIZED(stages, 16385));	/* --max-stages + 1 */
MAP_SHARED_ARRAY(functions, struct functions, SIZED(functions, 1));	/* as `stages`, if the tier is on */
MAP_SHARED_ARRAY(readahead, struct readahead, SIZED(readahead, 1));	/* the same */
MAP_STACK(free_stages, u32, SIZED(free_stages, 16384));	/* indexes of free records, the lowest on top */
MAP_HASH(pipes, struct pipe_key, struct pipe, SIZED(pipes, 16384));	/* --max-pipes */

struct command {
	char name[COMM_LEN];
};

MAP_HASH(commands, struct command, u32, 256);	/* config: interpreters and wrappers */
#define UNIT_LEN 64

struct unit {
	char name[UNIT_LEN];
};

MAP_HASH(units, struct unit, u32, 256);	/* config: whose programs are stages alone */
MAP_SHARED_ARRAY(lost, u64, LOST_KINDS);
MAP_SHARED_ARRAY(control, struct control, 1);
MAP_RINGBUF(wakeups, 4096);	/* wake-ups only, never data */

#define ARGUMENTS_LEN 512	/* of a command line that are searched for /dev/fd/N */

/*
 * What a look at a process needs room for. Where the programs of tracepoints can be
 * preempted (7.3), several of one CPU may be under way: each takes a page of its own.
 */
struct scratch {
	u64 taken;
	u64 files[64];
	char arguments[2 * ARGUMENTS_LEN + 8];	/* the second half stays zero */
	struct pipe no_pipe;	/* stays zero */
	char cgroup[UNIT_LEN];
	struct unit unit;
};

#define SCRATCH_PAGES 4	/* when all are taken, it is counted in `lost` */

MAP_PERCPU(scratch, struct scratch, SCRATCH_PAGES);

static __always_inline void add_lost(u32 kind, u64 count)
{
	u64 *counter = bpf_map_lookup_elem(MAP(lost), &kind);

	if (counter)
		__sync_fetch_and_add(counter, count);
}

static __always_inline void count_lost(u32 kind)
{
	add_lost(kind, 1);
}

static __always_inline struct scratch *scratch_at(u32 at)
{
	return bpf_map_lookup_elem(MAP(scratch), &at);
}

/* A page that nobody else uses until give_scratch; SCRATCH_PAGES when there is none. */
GLOBAL(u32, take_scratch)(void)
{
	u32 at;

	for (at = 0; at < SCRATCH_PAGES; at++) {
		struct scratch *page = scratch_at(at);

		if (page && !__sync_lock_test_and_set(&page->taken, 1))
			return at;
	}
	count_lost(LOST_UPDATES);
	return at;
}

static __always_inline void give_scratch(u32 at)
{
	struct scratch *page = scratch_at(at);

	if (page)
		__sync_lock_test_and_set(&page->taken, 0);
}

static __always_inline struct readahead *readahead_at(u32 index)
{
	return bpf_map_lookup_elem(MAP(readahead), &index);
}

static __always_inline struct stage *stage_at(u32 index)
{
	return bpf_map_lookup_elem(MAP(stages), &index);
}

static __always_inline struct pipeline *pipeline_at(u32 index)
{
	struct stage *stage = stage_at(index);

	return stage ? &stage->pipeline : NULL;
}

static __always_inline u32 word_outer(u64 word)
{
	return word >> WORD_OUTER_SHIFT & INDEX_MASK;
}

#endif
