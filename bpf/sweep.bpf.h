/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The sweep: credits every task of every stage up to now, and looks at tasks that are in no stage, among them those
 * older than the daemon.
 * Owns no map; sets control.watch_pid and control.restored, and makes records for tasks that have none.
 * Called by the task iterator, which the daemon runs, for each task of the host.
 * Costs are in docs/BENCHMARKS.md, measured by `make bench ARGS='--only many'`.
 * Cannot see what a task did before it was picked up: its stage begins then.
 */
#ifndef PIPELINED_SWEEP_H
#define PIPELINED_SWEEP_H

#include "lifecycle.bpf.h"

#define FORK_NS (NS_PER_S / 10)	/* a fork takes less, from the list of tasks to its event */

static __always_inline int is_on_cpu(struct task_struct *p)
{
	return p->se.cfs_rq->rq->curr->pid == p->pid;	/* task_struct.on_cpu is gone in 7.3 */
}

/* Since when a task has been waiting for a CPU; 0 if it has one, or sleeps. */
LOCAL(u64, waiting_since)(struct task_struct *p, const struct task_state *task, u64 now)
{
	return p->__state || is_on_cpu(p) ? 0 : now - queued_ns(p, task);
}

LOCAL(u32, present_state)(struct task_struct *p, u64 address)
{
	struct sleep sleep = {};
	struct call call = {};

	if (is_on_cpu(p))
		return STATE_CPU;
	if (!p->__state)
		return STATE_RUNQUEUE;
	saved_call(p, &call);
	look_asleep(p, address, &call, &sleep);
	return sleep.state;
}

/* The stage that a task in no stage inherits: of its process, or of the parent unless that has exec'd since. */
static __always_inline u32 inherited_stage(struct task_struct *p)
{
	int is_main = p->tgid == p->pid;
	struct task_struct *leader = p->group_leader;
	struct task_state *above;

	if (is_main)
		leader = p->real_parent->group_leader;
	above = state_of(leader);
	if (is_gone(above) || (is_main && p->start_time < above->exec_ns))
		return 0;
	return unretired(above->stage);
}

/* A task in no stage: it was running before the daemon, or was not known to use a pipe. */
LOCAL(int, pick_up)(struct task_struct *p, struct task_state *task, u64 address, u64 now)
{
	struct discovery discovery = { .address = address, .now = now, .flags = STAGE_FROM_NOW };
	struct control *control = control_page();
	u32 state;

	if (control && p->start_time < control->began_ns)
		discovery.flags |= STAGE_PARTIAL;
	discovery.stage = inherited_stage(p);
	if (!claim(task))
		return 0;
	if (p->tgid == p->pid)
		discover_stdio(p, task, &discovery);
	if (discovery.stage) {
		note(task, p->pid);
		credit_usage(address, task);	/* from now on only what is new */
		take_own_times(address, task);
		state = present_state(p, address);
		adopt(task, discovery.stage, state, now);
		note_again(task, p->pid);
		/* the wrapper of its stage may have started it while nobody watched */
		if (!(p->flags & PF_FORKNOEXEC))
			take_name(address, task, discovery.stage);
	}
	release(task);
	if (discovery.held)
		stage_put(discovery.held, now);
	return 0;
}

/* Brings the clocks of the pipelines of stage `index` and of those around it up to now. */
static __always_inline void tick_pipelines(u32 index, u64 now)
{
	struct stage *stage;

	for_each_enclosing_stage(stage, index)
		if (!(stage->word & WORD_RETIRED))
			pipeline_add(index, 0, now);
}

/* A task of which the daemon before this one knew something, if it has not been met before. */
LOCAL(int, meet)(struct task_struct *p, struct task_state *task, u64 address, u64 now)
{
	struct saved_task *saved = saved_of(p);

	if (saved)
		resume(address, task, saved, present_state(p, address), now);
	return 0;
}

/* The sweep is over. The process that made it may be the one to follow. */
static __always_inline void watch_sweeper(void)
{
	struct control *control = control_page();

	if (control && control->watch_pid == WATCH_SWEEPER)
		control->watch_pid = bpf_get_current_pid_tgid() >> 32;
}

/* A task's record, made if there is none; NULL if its fork is just being recorded, or there is no memory. */
static __always_inline struct task_state *state_for_sweep(struct task_struct *p, u64 now)
{
	struct task_state *task = state_of(p);

	if (task)
		return task;
	if (is_resuming()) {
		if (!saved_of(p))
			return NULL;
	} else if (is_unwatched(0) || now - p->start_time < FORK_NS) {
		return NULL;	/* on_fork may be about to run for it, on another CPU */
	}
	task = make_state(p);
	if (!task)
		count_lost(LOST_TASKS);
	return task;
}

/* One task of the host. */
static __always_inline void sweep_task(struct task_struct *p, u64 address)
{
	u64 now = bpf_ktime_get_ns();
	struct task_state *task;

	if (p->flags & PF_KTHREAD || p->__state & TASK_DEAD)
		return;
	task = state_for_sweep(p, now);
	if (is_gone(task))
		return;
	if (!task->stage && !task->clock) {
		if (is_resuming())
			meet(p, task, address, now);
		else
			pick_up(p, task, address, now);
	}
	if (!task->stage)
		return;
	bring_up_to_date(task, is_on_cpu(p), waiting_since(p, task, now), now);
	credit_usage(address, task);
	end_last_part(address, task->stage, now);
	if (is_retired(task->stage))
		leave_asleep(task, now);
	move_inner_out(task->stage, now);
	name_again(address, task, task->stage);
	tick_pipelines(task->stage, now);
}

#endif
