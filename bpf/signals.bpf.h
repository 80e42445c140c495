/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who stops a stage with SIGHUP, SIGINT or SIGTERM: a process of its own run, or somebody outside.
 * Owns no map; writes two bits of stage.exit_status.
 * Called when a signal is sent.
 * Costs a comparison for any other signal, and a walk outwards from both processes for these three.
 * Cannot see whose timer sends a signal, nor what was sent before the hook was attached.
 */
#ifndef PIPELINED_SIGNALS_H
#define PIPELINED_SIGNALS_H

#include "lifecycle.bpf.h"

/* include/uapi/asm-generic/signal.h */
#define SIGHUP 1
#define SIGINT 2
#define SIGTERM 15

/* Is it one of the signals by which a run is interrupted, and does the target get it because of this sender? */
static __always_inline int stops(int signal, int result)
{
	return (signal == SIGHUP || signal == SIGINT || signal == SIGTERM) &&
	       result != SIGNAL_IGNORED && result != SIGNAL_ALREADY_PENDING;
}

/*
 * Is a sender whose innermost stage is `from` in the pipeline of stage `index`? One in a stage that was stopped from
 * outside itself only passes that on.
 */
GLOBAL(int, sends_from_inside)(u32 from, u32 index)
{
	u32 pipeline = pipeline_root(index);
	struct stage *stage;

	for_each_enclosing_stage(stage, from) {
		if (stage->exit_status & EXIT_STOPPED_OUTSIDE)
			return 0;
		if (!(stage->word & WORD_RETIRED) && pipeline_root(from) == pipeline)
			return 1;
	}
	return 0;
}

/* A sender in stage `from` stops a process in stage `index`. For a nested run its outer pipeline is outside. */
GLOBAL(int, count_stop)(u32 from, u32 index)
{
	struct stage *stage;

	for_each_enclosing_stage(stage, index) {
		if (stage->exit_status & EXIT_SEEN)
			continue;
		if (sends_from_inside(from, index))
			__sync_fetch_and_or(&stage->exit_status, EXIT_STOPPED_INSIDE);
		else
			__sync_fetch_and_or(&stage->exit_status, EXIT_STOPPED_OUTSIDE);
	}
	return 0;
}

/* The innermost stage of the current process, 0 = none. */
static __always_inline u32 stage_of_sender(struct task_struct *self)
{
	struct task_state *task = state_of(self);
	u64 now;

	if (is_gone(task))
		return 0;
	now = bpf_ktime_get_ns();
	settle_stage(task, now);
	/* a subshell that has neither forked nor slept yet */
	if (self->group_leader->flags & PF_FORKNOEXEC)
		discover_self(task, ASK_READER, now);
	return stage_of(task);
}

/* signal_generate, in the sender's context. Ctrl-C comes from a worker of the kernel, which is in no stage. */
static __always_inline void signal_sent(int signal, struct task_struct *target, int result)
{
	struct task_state *task;
	u32 index;

	if (!stops(signal, result))
		return;
	task = state_of(target);
	if (is_gone(task))
		return;
	index = task->pending ? task->pending : task->stage;
	if (index)
		count_stop(stage_of_sender(bpf_get_current_task_btf()), index);
}

#endif
