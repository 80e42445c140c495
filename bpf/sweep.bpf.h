/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The sweep: every task of every stage is credited up to now, and tasks older than the daemon are picked up.
 * Owns no map; writes control.watch_pid.
 * Called by the task iterator that the daemon runs, for each task of the host.
 * Costs of a sweep are in docs/BENCHMARKS.md.
 * Cannot see what a task did before it was picked up: its stage begins then.
 */
#ifndef PIPELINED_SWEEP_H
#define PIPELINED_SWEEP_H

#include "lifecycle.bpf.h"

static __always_inline int is_on_cpu(struct task_struct *p)
{
	return p->se.cfs_rq->rq->curr->pid == p->pid;	/* task_struct.on_cpu is gone in 7.3 */
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

/* A task that is in no stage: it was running before the daemon, or not known to use a pipe. */
LOCAL(int, pick_up)(struct task_struct *p, struct task_state *task, u64 address, u64 now)
{
	struct task_struct *leader = p->group_leader;
	struct task_state *above;
	struct meeting meeting = { .address = address, .now = now, .flags = STAGE_FROM_NOW };
	struct control *page;
	u32 zero = 0, state;

	page = bpf_map_lookup_elem(MAP(control), &zero);
	if (page && p->start_time < page->began_ns)
		meeting.flags |= STAGE_PARTIAL;

	if (p->tgid == p->pid)
		leader = p->real_parent->group_leader;
	above = state_of(leader);
	if (above && above->stage != STAGE_DEAD &&
	    (p->tgid != p->pid || p->start_time >= above->exec_ns))
		meeting.stage = above->stage;
	if (!claim(task))
		return 0;
	if (p->tgid == p->pid)
		meet(p, task, &meeting);
	if (meeting.stage) {
		note(task, p->pid);
		credit_usage(address, task);	/* from now on only what is new */
		state = present_state(p, address);
		adopt(task, meeting.stage, state, now);
	}
	release(task);
	if (meeting.held)
		stage_put(meeting.held, now);
	return 0;
}

/* Brings the clocks of every pipeline around a stage up to now. */
static __always_inline void tick_pipelines(u32 index, u64 now)
{
	struct stage *stage;

	for_each_stage(stage, index)
		pipeline_add(index, 0, now);
}

/* The sweep is over: whoever made it may be whom to watch. */
static __always_inline void watch_sweeper(void)
{
	u32 zero = 0;
	struct control *page = bpf_map_lookup_elem(MAP(control), &zero);

	if (page && page->watch_pid == WATCH_SWEEPER)
		page->watch_pid = bpf_get_current_pid_tgid() >> 32;
}

#define BORN_NS (NS_PER_S / 10)	/* a fork takes no longer, from the list of tasks to its event */

#endif
