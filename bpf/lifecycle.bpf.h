/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A process is forked, execs, exits: what it belongs to from then on.
 * Owns task_state.born_ns, .exec_ns, .exec_id, .parent_* and .looks.
 * Called at sched_process_fork, _exec and _exit, at a switch for tasks whose event was missed, and at failed execs.
 * Costs of these events are in docs/BENCHMARKS.md.
 * Cannot see a process that lives shorter than its fork event takes to come, nor forks of unwatched processes.
 */
#ifndef PIPELINED_LIFECYCLE_H
#define PIPELINED_LIFECYCLE_H

#include "alone.bpf.h"
#include "arguments.bpf.h"
#include "discovery.bpf.h"
#include "readahead.bpf.h"

/* Optional: tells failed execs, which leave no trace in the scheduler. */
static __always_inline int exec_failed(long result)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_state *task;
	struct stage *stage;
	u32 index;

	if (result >= 0)
		return 0;
	task = state_of(p);
	if (!task || task->stage == STAGE_DEAD)
		return 0;
	index = task->stage;
	for_each_stage(stage, index)
		__sync_fetch_and_add(&stage->exec_failures, 1);
	return 0;
}

/* A thread ended: its CPU time and, of a main thread, its life, for stages it is not the root of. */
GLOBAL(int, credit_child)(u32 index, u32 tgid, u64 cpu, u64 life)
{
	struct stage *stage;

	for_each_stage(stage, index) {
		if (stage->pid == tgid)
			continue;
		__sync_fetch_and_add(&stage->children_cpu_ns, cpu);
		__sync_fetch_and_add(&stage->children_life_ns, life);
	}
	return 0;
}

/* The thread is gone: its time ends with its last switch-out, when exit_mm is behind it. */
static __always_inline void end_task(struct task_struct *p, struct task_state *task, u64 now)
{
	u64 clock;
	u32 index;

	if (task->stage && task->stage != STAGE_DEAD) {
		credit_usage(bpf_get_current_task(), task);
		credit_child(task->stage, p->tgid, p->se.sum_exec_runtime,
			     p->pid == p->tgid ? now - p->start_time : 0);
	}
	clock = __sync_lock_test_and_set(&task->clock, 0);
	if (clock)
		task_credit(task, clock, now);
	forget(task, p->pid);
	index = __sync_lock_test_and_set(&task->stage, STAGE_DEAD);
	if (!index || index == STAGE_DEAD)
		return;
	if (clock)
		stage_add(index, -state_counts(clock >> CLOCK_STATE_SHIFT), now);
	stage_put(index, now);
}

static __always_inline int is_young(struct task_struct *p, struct task_state *task, u64 now)
{
	if (!task->born_ns)
		return 0;
	if (now - task->born_ns < YOUNG_NS)
		return 1;
	task->born_ns = 0;
	if (!task->stage)
		task->clock = 0;
	return 0;
}

/* What makes new pipes likely makes it worth to look again. */
static __always_inline void follow_again(struct task_struct *p, struct task_state *task)
{
	task->looks = 0;
	note(task, p->pid);
}

/* The current process has become another program. */
static __always_inline void has_execd(struct task_struct *p, struct task_state *task, u64 now)
{
	task->exec_id = p->self_exec_id;
	take_up_pending(task, now);
	task->exec_ns = now;
	task->cached_end = 0;
	meet_self(task, ASK_USED, now);
	rename_stage(bpf_get_current_task(), task->stage, now);
	leave_ends(bpf_get_current_task(), task->stage);
	meet_arguments(bpf_get_current_task(), task, now);
	meet_alone(bpf_get_current_task(), task, now);
	task->born_ns = 0;
	if (!task->stage)
		task->clock = 0;
	follow_again(p, task);
}

/*
 * Some execs are not told (seen on 7.3): likely, where a tracepoint's program can be preempted,
 * it does not run for another task meanwhile (bpf_prog.active). in_execve: it will be told yet.
 */
static __always_inline int missed_exec(struct task_struct *self, const struct task_state *task)
{
	return self->self_exec_id != task->exec_id && !BPF_CORE_READ_BITFIELD(self, in_execve);
}

static __always_inline void count_fork(u32 index)
{
	struct stage *stage;

	for_each_stage(stage, index)
		__sync_fetch_and_add(&stage->forks, 1);
}

/* Outside the process tree that `pipelined run` watches? Its tasks get no storage. */
static __always_inline int is_unwatched(u32 tgid)
{
	u32 zero = 0;
	struct control *page = bpf_map_lookup_elem(MAP(control), &zero);

	return page && page->watch_pid && page->watch_pid != tgid;
}

/*
 * A new task without storage: another task was stopped on this CPU within the kernel's
 * own storage code (bpf_task_storage_busy), so none could be had at the fork. Or the
 * task is older than the daemon, and the first sweep has not come to it yet.
 */
LOCAL(struct task_state *, born_late)(struct task_struct *p)
{
	struct task_struct *leader = p->group_leader;
	struct task_state *born, *above;
	u64 now;

	if (p->flags & PF_KTHREAD || is_unwatched(0))
		return NULL;
	born = bpf_task_storage_get(MAP(tasks), p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!born) {
		count_lost(LOST_TASKS);
		return NULL;
	}
	note(born, p->pid);
	born->exec_id = p->self_exec_id;
	now = bpf_ktime_get_ns();
	if (now - p->start_time > YOUNG_NS)
		return born;
	if (p->tgid == p->pid)
		leader = p->real_parent->group_leader;
	above = state_of(leader);
	if (p->tgid == p->pid) {
		born->born_ns = p->start_time;
		born->parent_pid = leader->tgid;
		born->parent_start_ns = leader->start_time;
	}
	if (above && above->stage && above->stage != STAGE_DEAD) {
		born->stage = above->stage;
		stage_hold(born->stage);
	}
	if (born->born_ns || born->stage)
		born->clock = clock_pack(STATE_RUNQUEUE, p->start_time);
	return born;
}

static __always_inline void count_exit(u32 tgid, u32 index)
{
	struct stage *stage;

	for_each_stage(stage, index)
		if (stage->pid != tgid)
			__sync_fetch_and_add(&stage->exited_children, 1);
}

#endif
