/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How long readers sleep for disk, and how much of that time their pipelines were on CPU.
 * Owns no map; writes task_state.stall and .unclassed, and the stalls of `readahead`.
 * Called only when a sleep for disk begins, ends or is swept.
 * Costs a few look-ups for each of STALL_DEPTH enclosing stages.
 * Cannot see the class of a read's wait before the read goes on: it is that of the page that ended the wait
 * (consumption.bpf.h). Until then its stalls are kept as unclassed.
 */
#ifndef PIPELINED_STALLS_H
#define PIPELINED_STALLS_H

#include "tasks.bpf.h"

/* Time up to now at level 0 of the pipeline that this stage is in. */
static __always_inline u64 idle_ns(const struct stage *stage, u64 now)
{
	const struct pipeline *pipeline = &stage->pipeline;
	u64 moment, since, idle;

	for (int i = 0; i < MAX_ALIASES && pipeline->alias; i++) {
		pipeline = pipeline_at(pipeline->alias);
		if (!pipeline)
			return 0;
	}
	moment = pipeline->moment;
	idle = pipeline->time_ns[0][0] + pipeline->time_ns[0][1];
	since = (now - moment) & PIPELINE_CLOCK_MASK;
	if (!(moment / PIPELINE_CPU & PIPELINE_COUNT_MASK) && since <= PIPELINE_CLOCK_MASK / 2)
		idle += since;
	return idle;
}

GLOBAL(int, stall_began)(struct task_state *task, u32 kind, u64 mapping, u64 now)
{
	struct stage *stage;
	u32 index;

	if (!task)
		return 0;
	index = task->stage;
	task->stall.mapping = mapping;
	task->stall.ns = 0;
	for_enclosing_stages(i, STALL_DEPTH, stage, index) {
		task->stall.idle[i] = idle_ns(stage, now);
		task->stall.covered[i] = 0;
	}
	task->stall.kind = kind;
	return 0;
}

/* Another `elapsed` ns of a stall are over: adds them, and what of them was covered. */
GLOBAL(int, stall_continues)(struct task_state *task, u64 elapsed, u64 now)
{
	struct stage *stage;
	u32 index;

	if (!task)
		return 0;
	index = task->stage;
	__sync_fetch_and_add(&task->stall.ns, elapsed);
	for_enclosing_stages(i, STALL_DEPTH, stage, index) {
		u64 idle = idle_ns(stage, now);
		u64 grown = idle - __sync_lock_test_and_set(&task->stall.idle[i], idle);

		/* time moves between levels when a missed switch is made up for, and when pipelines merge */
		if ((s64)grown < 0)
			grown = 0;
		if (grown < elapsed)
			__sync_fetch_and_add(&task->stall.covered[i], elapsed - grown);
	}
	return 0;
}

/* Adds `count` stalls of a class with their time, and the part of both that was covered. */
static __always_inline void add_stalls(u32 index, u64 class, u64 count, u64 covered_count, u64 ns,
				       u64 covered_ns)
{
	struct readahead *entry = readahead_at(index);

	OPAQUE(class);
	if (!entry || class >= STALL_CLASSES)
		return;
	if (covered_ns > ns)
		covered_ns = ns;
	__sync_fetch_and_add(&entry->stalls[class][0], count - covered_count);
	__sync_fetch_and_add(&entry->stalls[class][1], covered_count);
	__sync_fetch_and_add(&entry->stall_ns[class][0], ns - covered_ns);
	__sync_fetch_and_add(&entry->stall_ns[class][1], covered_ns);
}

/* The class of what the task has slept for is known now. */
GLOBAL(int, classify_stalls)(struct task_state *task, u32 class)
{
	struct unclassed *stalls;
	struct stage *stage;
	u32 index;

	if (!task || !task->unclassed.count)
		return 0;
	stalls = &task->unclassed;
	index = task->stage;
	for_enclosing_stages(i, STALL_DEPTH, stage, index) {
		add_stalls(index, class, stalls->count, stalls->covered_count[i], stalls->ns,
			   stalls->covered_ns[i]);
	}
	__builtin_memset(stalls, 0, sizeof(*stalls));
	return 0;
}

/* The sleep is over. The class is known at once unless it was a read's. */
GLOBAL(int, stall_ended)(struct task_state *task)
{
	struct unclassed *stalls;
	struct stall *stall;
	u64 kind;

	if (!task)
		return 0;
	stall = &task->stall;
	stalls = &task->unclassed;
	kind = __sync_lock_test_and_set(&stall->kind, NO_STALL);
	if (kind == NO_STALL)
		return 0;
	if (kind != READ_STALLS || stalls->mapping != stall->mapping)
		classify_stalls(task, STALL_OTHER);
	stalls->mapping = stall->mapping;
	stalls->count += 1;
	stalls->ns += stall->ns;
	for (int i = 0; i < STALL_DEPTH; i++) {
		stalls->covered_count[i] += 2 * stall->covered[i] > stall->ns;
		stalls->covered_ns[i] += stall->covered[i];
	}
	if (kind == OTHER_STALLS)
		classify_stalls(task, STALL_OTHER);
	if (kind == FAULT_STALLS) {
		task->fault.slept = 1;
		classify_stalls(task, task->fault.missed ? STALL_MISS :
				   task->fault.ahead  ? STALL_LATE :
							STALL_OTHER);
	}
	return 0;
}

#endif
