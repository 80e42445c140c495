/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What ran inside a stage: its processes but the root by their names, how many have ended, their CPU time, the longest life.
 * Owns the map `children`; writes task_state.cpu_ns by way of accounting.bpf.h, and the CPU and life of children in `stages`.
 * Called when a thread has left its CPU for the last time.
 * Costs a look at CHILD_NAMES names at most for each enclosing stage, and four additions.
 * Cannot see the names of processes that still run, nor those that came when all places were taken: these are added up in the
 * last one. A child counts under the name that it ends with.
 */
#ifndef PIPELINED_CHILDREN_H
#define PIPELINED_CHILDREN_H

#include "stages.bpf.h"

MAP_SHARED_ARRAY(children, struct children, SIZED(children, 16385));	/* as `stages` */

/* The name that a stage would have if this process were its root. */
static __always_inline void child_name(u64 p, const struct task_state *task, struct command *name)
{
	if (task->script.name[0])
		*name = task->script;
	else
		program_of(p, task, name);
}

/* A place of a stage; NULL only if there is no such stage. */
static __always_inline struct child *place_at(u32 index, u64 at)
{
	struct children *all = bpf_map_lookup_elem(MAP(children), &index);

	OPAQUE(at);
	return all && at <= CHILD_NAMES ? &all->named[at] : NULL;
}

/*
 * Is this the place of this name, or free for it? It is taken by its longest life, which is never 0 then; the name comes
 * after that, its first part last. Who comes in between takes another place: the daemon adds up what has the same name.
 */
GLOBAL(int, is_place_of)(u32 index, u64 at, u64 first, u64 second)
{
	struct child *child = place_at(index, at);

	if (!child)
		return 1;
	if (!child->longest_ns && __sync_val_compare_and_swap(&child->longest_ns, 0, 1) == 0) {
		child->name[1] = second;
		__sync_lock_test_and_set(&child->name[0], first);
		return 1;
	}
	return child->name[0] == first && child->name[1] == second;
}

/* Returns 0 if another CPU has changed the longest life meanwhile. */
static __always_inline int lived(struct child *child, u64 life)
{
	u64 longest = child->longest_ns;

	return longest >= life || __sync_val_compare_and_swap(&child->longest_ns, longest, life) == longest;
}

/* Adds a thread that ended, and if it has a life the end of its process, to what has this name. */
GLOBAL(int, add_child)(u32 index, u64 first, u64 second, u64 cpu, u64 life)
{
	struct child *child;
	u64 at = 0;

	while (at < CHILD_NAMES && !is_place_of(index, at, first, second))
		at++;
	child = place_at(index, at);
	if (!child)
		return 0;
	__sync_fetch_and_add(&child->cpu_ns, cpu);
	if (!life)
		return 0;
	__sync_fetch_and_add(&child->count, 1);
	for (int i = 0; i < RETRIES && !lived(child, life); i++)
		;
	return 0;
}

/* A thread has ended, with this time on CPU, and with it its process, after this life, or 0: for stages that it is not the root of. */
GLOBAL(int, credit_child)(u64 p, const struct task_state *task, u64 cpu, u64 life)
{
	u64 name[COMM_LEN / sizeof(u64)] = {};
	struct stage *stage;
	u32 index;

	if (!task)
		return 0;
	child_name(p, task, (struct command *)name);
	index = task->stage;
	for_each_enclosing_stage(stage, index) {
		if (is_process(&stage->root, p))
			continue;
		__sync_fetch_and_add(&stage->children_cpu_ns, cpu);
		__sync_fetch_and_add(&stage->children_life_ns, life);
		add_child(index, name[0], name[1], cpu, life);
	}
	return 0;
}

#endif
