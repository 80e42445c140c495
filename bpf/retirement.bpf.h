/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How threads and inner stages leave a stage that has retired (members.bpf.h), and when a shell that runs the last
 * part of a pipeline itself retires: as soon as it no longer holds the pipe.
 * Owns no map; writes task_state.stage.
 * Called when a thread leaves its CPU, forks, execs or exits, and by the sweep for those that sleep.
 * Costs a look at the word of the thread's stage per switch.
 * Cannot tell the bytes and calls of a running thread before the retirement from those of the rest of its time slice.
 */
#ifndef PIPELINED_RETIREMENT_H
#define PIPELINED_RETIREMENT_H

#include "topology.bpf.h"

/* Moves a thread that counts for `counts` out of its stage, which has retired, to the nearest around it that has not. */
static __always_inline void move_out(struct task_state *task, u64 counts, u64 now)
{
	u32 old = task->stage, outer = unretired(old);

	stage_hold(outer);
	if (__sync_val_compare_and_swap(&task->stage, old, outer) != old) {
		stage_put(outer, now);
		return;
	}
	task->cached_end = 0;
	task->slept_on = 0;
	if (counts) {
		stage_add(outer, counts, now);
		stage_add(old, -counts, now);
	}
	stage_put(old, now);
}

/* The current task leaves its stage, which has retired, on CPU, with what it did until now. */
GLOBAL(int, leave_retired)(struct task_state *task, u64 now)
{
	if (is_gone(task))
		return 0;
	/* also if its switch to the CPU was missed: what repair_missed_switch finds later is no longer this stage's */
	if (task->clock)
		bring_up_to_date(task, 0, 0, now);
	credit_usage(bpf_get_current_task(), task);
	move_out(task, state_counts(task->clock >> CLOCK_STATE_SHIFT), now);
	if (!task->stage && !task->born_ns)
		task->clock = 0;
	return 0;
}

/* Another task, which is asleep, leaves it; one that runs or waits for disk will have an event soon. */
GLOBAL(int, leave_asleep)(struct task_state *task, u64 now)
{
	u64 clock;

	if (is_gone(task))
		return 0;
	clock = task->clock;
	if (state_counts(clock >> CLOCK_STATE_SHIFT))
		return 0;
	move_out(task, 0, now);
	if (!task->stage && !task->born_ns)
		__sync_val_compare_and_swap(&task->clock, clock, 0);
	return 0;
}

/* A stage inside one that has retired is moved out. */
static __always_inline void move_inner_out(u32 index, u64 now)
{
	struct stage *stage = index ? stage_at(index) : NULL;
	u32 outer;

	if (!stage)
		return;
	outer = word_outer(stage->word);
	if (is_retired(outer))
		set_outer(index, unretired(outer), now);
}

/* bash moves a descriptor that it needs again to the highest free one below 256. */
#define SAVED_FROM 240
#define SAVED_TO 256

static __always_inline int holds_saved(u64 p, const struct pipe_key *key)
{
	for (u32 fd = SAVED_FROM; fd < SAVED_TO; fd++)
		if (holds_at(p, fd, key, SIDE_READ))
			return 1;
	return 0;
}

/* A shell that ran the last part of a pipeline no longer holds its pipe: that part is over. */
GLOBAL(int, end_last_part)(u64 p, u32 index, u64 now)
{
	struct stage *stage = index ? stage_at(index) : NULL;
	struct pipe_key key;

	if (!stage || !(stage->flags & STAGE_LAST_PART) || !is_process(&stage->root, p))
		return 0;
	key = stage->ends[0].pipe;	/* see is_last_part */
	if (key.inode && !holds_anywhere(p, &key, SIDE_READ) && !holds_saved(p, &key) &&
	    retire(index, now))
		members_add(index, -1, now);
	return 0;
}

/* The current task is in a stage that may be over. */
GLOBAL(int, leave_if_over)(struct task_state *task, u64 now)
{
	if (is_gone(task))
		return 0;
	end_last_part(bpf_get_current_task(), task->stage, now);
	if (is_retired(task->stage))
		leave_retired(task, now);
	return 0;
}

/* In the task's own context: it enters the stage that another task has assigned to it, and leaves what is over. */
static __always_inline void settle_stage(struct task_state *task, u64 now)
{
	struct stage *stage;

	take_up_pending(task, now);
	stage = task->stage ? stage_at(task->stage) : NULL;
	if (stage && stage->word & (WORD_RETIRED | WORD_LAST_PART))
		leave_if_over(task, now);
}

#endif
