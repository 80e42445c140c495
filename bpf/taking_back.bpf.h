/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A stage has been moved out of another one: what it credited to that is taken off there.
 * Owns no map; writes the counts of `stages`, `functions`, `readahead` and `children`.
 * Called when an edge joins a stage with the one around it: at most once in a stage's life.
 * Costs a look at each of their counts.
 * Cannot take back the bytes of pipes, which are credited to the stage that knows the pipe, nor the CPU time of threads
 * of the stage's root that have ended.
 */
#ifndef PIPELINED_TAKING_BACK_H
#define PIPELINED_TAKING_BACK_H

#include "children.bpf.h"

/* No more than there is: two CPUs may have split a stall otherwise, and the daemon reads these without a sign. */
static __always_inline void take_off(u64 *from, u64 count)
{
	u64 there = *from;

	__sync_fetch_and_add(from, -(count < there ? count : there));
}

/* The same of the first `count` numbers of two records. */
#define take_off_each(from, taken, count)                            \
	for (u32 i = 0; i < (count); i++)                            \
		take_off(&((u64 *)(from))[i], ((u64 *)(taken))[i]);

GLOBAL(int, take_back_functions)(u32 outer_index, u32 left_index)
{
	struct functions *outer = bpf_map_lookup_elem(MAP(functions), &outer_index);
	struct functions *left = bpf_map_lookup_elem(MAP(functions), &left_index);

	if (outer && left)
		take_off_each(outer, left, __builtin_offsetof(struct functions, pipe_in_bytes) / sizeof(u64));
	return 0;
}

GLOBAL(int, take_back_readahead)(u32 outer_index, u32 left_index)
{
	struct readahead *outer = readahead_at(outer_index), *left = readahead_at(left_index);

	if (outer && left)
		take_off_each(outer, left, sizeof(struct readahead) / sizeof(u64));
	return 0;
}

static __always_inline int is_named(const struct child *child, const struct child *other)
{
	return child && child->longest_ns && child->name[0] == other->name[0] && child->name[1] == other->name[1];
}

/* What ran in the stage by one name. */
GLOBAL(int, take_back_child)(u32 outer_index, u32 left_index, u64 at)
{
	struct child *left = place_at(left_index, at), *outer;
	u64 place = at < CHILD_NAMES ? 0 : CHILD_NAMES;

	if (!left || !left->longest_ns)
		return 0;
	while (place < CHILD_NAMES && !is_named(place_at(outer_index, place), left))
		place++;
	outer = place_at(outer_index, place);
	if (!outer)
		return 0;
	take_off(&outer->count, left->count);
	take_off(&outer->cpu_ns, left->cpu_ns);
	return 0;
}

/* What the stage's own record counts, but for its pipe ends. */
GLOBAL(int, take_back_counts)(u32 outer_index, u32 left_index)
{
	struct stage *outer = stage_at(outer_index), *left = stage_at(left_index);

	if (!outer || !left)
		return 0;
	for (int i = 0; i < STATES; i++)
		__sync_fetch_and_add(&outer->time_ns[i], -left->time_ns[i]);
	__sync_fetch_and_add(&outer->user_ns, -left->user_ns);
	__sync_fetch_and_add(&outer->system_ns, -left->system_ns);
	__sync_fetch_and_add(&outer->read_bytes, -left->read_bytes);
	__sync_fetch_and_add(&outer->written_bytes, -left->written_bytes);
	__sync_fetch_and_add(&outer->read_calls, -left->read_calls);
	__sync_fetch_and_add(&outer->write_calls, -left->write_calls);
	__sync_fetch_and_add(&outer->sleeps_empty, -left->sleeps_empty);
	__sync_fetch_and_add(&outer->sleeps_full, -left->sleeps_full);
	__sync_fetch_and_add(&outer->forks, -left->forks);
	__sync_fetch_and_add(&outer->execs, -left->execs);
	__sync_fetch_and_add(&outer->exec_failures, -left->exec_failures);
	__sync_fetch_and_add(&outer->exited_children, -left->exited_children);
	__sync_fetch_and_add(&outer->children_cpu_ns, -left->children_cpu_ns);
	__sync_fetch_and_add(&outer->children_life_ns, -left->children_life_ns);
	return 0;
}

static __always_inline void take_back(u32 outer_index, u32 left_index)
{
	struct stage *outer = stage_at(outer_index), *left = stage_at(left_index);

	if (!outer || !left)
		return;
	take_back_counts(outer_index, left_index);
	/* sleeps at an inner stage's ends are in its own slots, and in the sums of the stages around it */
	for (int i = 0; i < STAGE_ENDS; i++) {
		struct pipe_end *end = &left->ends[i];

		if ((end->side_and_flags & END_SIDE_MASK) == SIDE_READ + 1)
			__sync_fetch_and_add(&outer->sleeps_empty, -end->sleeps);
		else
			__sync_fetch_and_add(&outer->sleeps_full, -end->sleeps);
	}
	take_back_functions(outer_index, left_index);
	take_back_readahead(outer_index, left_index);
	for (u64 at = 0; at <= CHILD_NAMES; at++)
		take_back_child(outer_index, left_index, at);
}

#endif
