/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How threads outlive the daemon: what a checkpoint keeps of them is written out by a sweep, and found again by the
 * programs of the next daemon, which has restored the stages.
 * Owns the maps `saved_tasks`, which the daemon fills before it attaches the programs, and `written_task`.
 * Called by the sweep, and at the fork and the exec of a thread that no sweep has come to yet.
 * Costs nothing at a switch; for each saved thread a copy of 296 bytes in a sweep that saves.
 * Cannot see what a thread did between the checkpoint and the attaching of the programs.
 */
#ifndef PIPELINED_RESUMING_H
#define PIPELINED_RESUMING_H

#include "topology.bpf.h"

MAP_HASH(saved_tasks, struct process, struct saved_task, SIZED(saved_tasks, 1));	/* as many as were saved */
MAP_ARRAY(written_task, struct written_task, 1);	/* only one sweep runs at a time */

/* Is the map `saved_tasks` to be asked? Until the first sweep has come to all threads. */
static __always_inline int is_resuming(void)
{
	struct control *control = control_page();

	return control && control->resuming;
}

/* What the daemon before this one knew of a thread; NULL: nothing, or its number belonged to another one. */
static __always_inline struct saved_task *saved_of(struct task_struct *p)
{
	struct process key = { .start_ns = p->start_time, .pid = p->pid };

	return bpf_map_lookup_elem(MAP(saved_tasks), &key);
}

static __always_inline void recall(struct task_state *task, const struct saved_task *saved)
{
	task->exec_ns = saved->exec_ns;
	task->cpu_ns = saved->cpu_ns;
	task->parent = saved->parent;
	__builtin_memcpy(task->fed_by_parent, saved->fed_by_parent, sizeof(task->fed_by_parent));
	task->starter = saved->starter;
	__builtin_memcpy(task->script.name, saved->script, COMM_LEN);
	__builtin_memcpy(task->applet.name, saved->applet, COMM_LEN);
	task->job = saved->job;
	task->instance = saved->instance;
}

/*
 * The first thread of a pipeline has been met: its clock, which has stood since the checkpoint, goes on from when the
 * first sweep began.
 */
GLOBAL(int, start_clock)(u32 index, u64 now)
{
	struct pipeline *pipeline = pipeline_at(pipeline_root(index));
	struct control *control = control_page();

	if (pipeline && control)
		__sync_val_compare_and_swap(&pipeline->moment, control->watched_ns & PIPELINE_CLOCK_MASK,
					    (control->began_ns ? control->began_ns : now) & PIPELINE_CLOCK_MASK);
	return 0;
}

/* A thread of a stage has been met, which is one of those around it too. */
static __always_inline void stages_met(u32 index, u64 now)
{
	struct stage *stage;

	for_each_enclosing_stage(stage, index) {
		__sync_fetch_and_and(&stage->flags, ~STAGE_UNMET);
		start_clock(index, now);
	}
}

/*
 * Puts a thread that is in `state` back into the stage that it was in. What it did meanwhile is credited to nobody. If
 * it has become another program, its stages take that one's name.
 */
GLOBAL(int, resume)(u64 p, struct task_state *task, const struct saved_task *saved, u32 state, u64 now)
{
	struct stage *stage;
	u32 index;

	if (!task || !saved || is_gone(task) || !claim(task))
		return 0;
	recall(task, saved);
	index = unretired(saved->stage);
	stage = index ? stage_at(index) : NULL;
	if (stage && !task->stage) {
		note(task, BPF_CORE_READ(TASK(p), pid));
		credit_usage(p, task);
		take_own_times(p, task);
		stages_met(index, now);
		adopt(task, index, state, now);
		note_again(task, BPF_CORE_READ(TASK(p), pid));
		if (saved->exec_id != task->exec_id) {
			task->applet.name[0] = 0;	/* of the exec before */
			take_name(p, task, index);
		}
	}
	release(task);
	return 0;
}

/* All threads have been met: gives up the hold on a restored stage. If none of them is in it, it ended unwatched. */
GLOBAL(int, release_restored)(u32 index, u64 now)
{
	struct control *control = control_page();
	struct stage *stage = stage_at(index);

	if (!control || !stage || stage->word & WORD_ENDED)
		return 0;
	return stage_put(index, stage->flags & STAGE_UNMET ? control->watched_ns : now);
}

#define RELEASED_AT_ONCE 64

/* Gives up the extra holds of some stages; the daemon sweeps until none is left. */
static __always_inline void release_some(u64 now)
{
	struct control *control = control_page();

	if (!control || control->resuming)
		return;
	for (int i = 0; i < RELEASED_AT_ONCE; i++) {
		u32 index = control->restored;

		if (!index)
			return;
		release_restored(index, now);
		control->restored = index - 1;
	}
}

/*
 * What a checkpoint keeps of a thread, in the only entry of `written_task`. Returns 0 if it keeps nothing. Of an instance
 * that is in no stage nor job the main thread is kept alone: what a service forks is mostly forked by that.
 */
GLOBAL(int, describe_task)(const struct task_state *task, u32 is_main)
{
	struct written_task *written = only_entry(MAP(written_task));
	struct stage *stage;
	u32 index;

	if (!written || is_gone(task))
		return 0;
	index = task->pending ? task->pending : task->stage;
	if (!index && !task->job.source && !task->starter.pid && !(is_main && task->instance))
		return 0;
	stage = stage_at(index);
	if (!stage)
		return 0;
	written->task.stage = index ? reference_of(stage, index) : 0;
	written->task.exec_ns = task->exec_ns;
	written->task.cpu_ns = task->cpu_ns;
	written->task.parent = task->parent;
	__builtin_memcpy(written->task.fed_by_parent, task->fed_by_parent, sizeof(task->fed_by_parent));
	written->task.starter = task->starter;
	written->task.exec_id = task->exec_id;
	__builtin_memcpy(written->task.script, task->script.name, COMM_LEN);
	__builtin_memcpy(written->task.applet, task->applet.name, COMM_LEN);
	written->task.job = task->job;
	written->task.instance = task->instance;
	return 1;
}

/* Writes it out, if this sweep is to save and keeps anything of the thread. */
static __always_inline void save_task(struct seq_file *to, struct task_struct *p)
{
	struct written_task *written = only_entry(MAP(written_task));
	struct control *control = control_page();

	if (!control || !control->saving || !written || !describe_task(state_of(p), p->pid == p->tgid))
		return;
	written->thread.start_ns = p->start_time;
	written->thread.pid = p->pid;
	bpf_seq_write(to, written, sizeof(*written));
}

#endif
