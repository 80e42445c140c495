/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A thread leaves its CPU, gets one, or is woken: the states of its time, and what it sleeps on.
 * Owns task_state.woken_ns, .delay_ns, .ran_ns, .slept_on and .cached_*.
 * Called at sched_switch and sched_wakeup.
 * Costs of a switch, for a stage's thread and for any other, are in docs/BENCHMARKS.md.
 * Cannot see switches that the kernel does not trace: a missed one is repaired at the thread's next event.
 */
#ifndef PIPELINED_SWITCHING_H
#define PIPELINED_SWITCHING_H

#include "lifecycle.bpf.h"

/* Counts a sleep on a pipe that is none of their own for stage `index` and those around it. */
GLOBAL(int, add_sleep)(u32 index, u32 side)
{
	struct stage *stage;

	for_each_stage(stage, index) {
		if (side == SIDE_READ)
			__sync_fetch_and_add(&stage->sleeps_empty, 1);
		else
			__sync_fetch_and_add(&stage->sleeps_full, 1);
	}
	return 0;
}

/* Counts a sleep: for the end slept on, and for every other stage around the task. */
GLOBAL(u32, count_sleep)(struct task_state *task, struct fifo *fifo)
{
	struct stage *stage;
	u32 end, index;

	if (!task || !fifo)
		return 0;
	end = known_end(task->stage, &fifo->key, fifo->side);
	task->slept_on = end;
	index = task->stage;
	for_each_stage(stage, index) {
		if (end && index == (end - 1) >> 3)
			__sync_fetch_and_add(&stage->ends[(end - 1) & (STAGE_ENDS - 1)].sleeps, 1);
		else if (fifo->side == SIDE_READ)
			__sync_fetch_and_add(&stage->sleeps_empty, 1);
		else
			__sync_fetch_and_add(&stage->sleeps_full, 1);
	}
	return end;
}

#define UNJOINED_LOOKS 4	/* sleeps on a pipe without partner that are worth a look */

static __always_inline int is_joined(u32 end)
{
	struct stage *stage = stage_at(end >> 3);

	return stage && stage->ends[end & (STAGE_ENDS - 1)].key.pad & END_JOINED;
}

/* Whether to look for who is at the other end of the pipe slept on: -1, or enum ask. */
GLOBAL(int, is_unjoined)(u32 index, const struct fifo *fifo, u32 no_exec)
{
	struct stage *stage;
	struct pipe_end *end;
	u32 known;

	if (!fifo)
		return -1;
	known = known_end(index, &fifo->key, fifo->side);
	if (!known)
		return no_exec ? ASK_NOT : ASK_USED;
	stage = stage_at((known - 1) >> 3);
	if (!stage)
		return -1;
	end = &stage->ends[(known - 1) & (STAGE_ENDS - 1)];
	if (end->key.pad & END_JOINED || end->sleeps >= UNJOINED_LOOKS)
		return -1;
	return end->sleeps ? ASK_EAGERLY : no_exec ? ASK_NOT : ASK_USED;
}

#define FIRST_LOOKS 32		/* looks at a task that is in no stage, or young, one by one, */
#define LOOK_INTERVAL 256	/* and from then on, while it is young */

static __always_inline int worth_a_look(struct task_state *task)
{
	u32 looks = task->looks++;

	return looks < FIRST_LOOKS || looks % LOOK_INTERVAL == 0;
}

static __always_inline u64 file_at(struct task_struct *p, u32 fd)
{
	struct files_struct *files = p->files;
	struct fdtable *fdt = files->fdt;
	u64 file = 0;

	/* no call at all for the first two of a table that never grew */
	if (fdt->max_fds == NR_OPEN_DEFAULT && fd < 2)
		return fd ? (u64)files->fd_array[1] : (u64)files->fd_array[0];
	if (fd < fdt->max_fds)
		bpf_probe_read_kernel(&file, sizeof(file), fdt->fd + fd);
	return file;
}

/* The common case: a member sleeps on the same end of the same pipe as the time before. */
static __always_inline int sleep_again(struct task_struct *p, struct task_state *task,
				       const struct call *call, struct held *held, u64 now)
{
	u32 end = task->cached_end - 1;
	struct stage *stage;

	if (!task->cached_end || call->args[0] != task->cached_fd ||
	    (call->kind != CALL_READ && call->kind != CALL_WRITE) ||
	    p->__state & (TASK_STOPPED_OR_TRACED | TASK_FROZEN) ||
	    file_at(p, task->cached_fd) != task->cached_file)
		return 0;
	stage = stage_at(end >> 3);
	if (!stage)
		return 0;
	transition(task, call->kind == CALL_READ ? STATE_PIPE_EMPTY : STATE_PIPE_FULL, held, now);
	task->slept_on = end + 1;
	__sync_fetch_and_add(&stage->ends[end & (STAGE_ENDS - 1)].sleeps, 1);
	if (word_outer(stage->word))
		add_sleep(word_outer(stage->word), call->kind == CALL_READ ? SIDE_READ : SIDE_WRITE);
	return 1;
}

/* Everything else: finds out why, meets new pipes, and remembers a joined end. */
static __always_inline void sleep_anew(struct task_struct *p, struct task_state *task, int look,
				       u64 now)
{
	u64 address = bpf_get_current_task();
	u32 zero = 0, known;
	struct asleep *page = bpf_map_lookup_elem(MAP(asleep), &zero);
	struct sleep *sleep;
	int ask;

	if (!page)
		return;
	sleep = &page->sleep;
	__builtin_memset(page, 0, sizeof(*page));
	saved_call(p, &page->call);
	look_asleep(p, address, &page->call, sleep);
	task->cached_end = 0;
	ask = sleep->on_fifo ? is_unjoined(task->stage, &sleep->fifo,
					   p->group_leader->flags & PF_FORKNOEXEC) :
			       -1;
	if (ask >= 0) {
		if (sleep->fd < 2)
			look = 1;
		else
			meet_sleeper(address, task, &sleep->fifo, sleep->fd, now);
	}
	if (look)
		meet_self(task, ask > 0 ? ask : ASK_NOT, now);
	if (!task->clock)
		return;
	change_state(task, sleep->state, now);
	if (sleep->state == STATE_DISK)
		reader_sleeps(task, &page->call, now);
	if (!sleep->on_fifo)
		return;
	known = count_sleep(task, &sleep->fifo);
	/* in one stage, at its own end of a joined pipe: next time is quick */
	if (known && (known - 1) >> 3 == task->stage && is_joined(known - 1) &&
	    (page->call.kind == CALL_READ || page->call.kind == CALL_WRITE)) {
		task->cached_fd = sleep->fd;
		task->cached_file = file_at(p, sleep->fd);
		task->cached_end = known;
	}
}

/*
 * Notes the kernel's own times of a task that leaves its CPU. It was on it, but some
 * kernels do not trace every switch (seen on a 6.18 guest: none away from one host
 * thread), so its coming may have been missed. These times then say how long ago it was.
 */
static __always_inline void mend_missed_switch(struct task_struct *p, struct task_state *task,
					       u64 now)
{
	u64 total = p->se.sum_exec_runtime, ran = total - task->ran_ns, clock = task->clock;
	u64 delay = p->sched_info.run_delay - task->delay_ns;
	struct control *page;
	u32 zero = 0;

	task->ran_ns = total;
	task->delay_ns += delay;
	if (!clock || clock >> CLOCK_STATE_SHIFT == STATE_CPU)
		return;
	page = bpf_map_lookup_elem(MAP(control), &zero);
	if (page && task->stage)
		__sync_fetch_and_add(&page->missed_switches, 1);
	if (ran > now - (clock & CLOCK_NS_MASK))
		ran = now - (clock & CLOCK_NS_MASK);
	task->woken_ns = now - ran - delay;
	change_state(task, STATE_CPU, now - ran);
}

static __always_inline void switch_out(struct task_struct *p, struct task_state *task,
				       bool preempt, struct held *held, u64 *clock)
{
	int runnable = preempt || !p->__state, look;
	struct call call = {};
	u64 now;

	if (!task->clock && !task->pending && !(p->__state & TASK_DEAD)) {
		if (runnable)
			return;
		/* in no stage, and no pipe was found: the sweep looks at it from now on */
		if (task->looks++ >= FIRST_LOOKS) {
			forget(task, p->pid);
			return;
		}
	}
	now = *clock = bpf_ktime_get_ns();
	mend_missed_switch(p, task, now);
	take_up_pending(task, now);
	if (p->__state & TASK_DEAD) {
		end_task(p, task, now);
		return;
	}
	if (missed_exec(p, task))
		has_execd(p, task, now);
	look = p->flags & p->group_leader->flags & PF_FORKNOEXEC && is_young(p, task, now) &&
	       worth_a_look(task);
	if (runnable) {
		if (look)
			meet_self(task, ASK_NOT, now);
		if (task->clock)
			transition(task, STATE_RUNQUEUE, held, now);
		return;
	}
	saved_call(p, &call);
	if (!look && sleep_again(p, task, &call, held, now))
		return;
	sleep_anew(p, task, look, now);
}

/*
 * How long the task that gets the CPU has waited for it, by the kernel's own account
 * (kernel/sched/stats.h): what it waited on run queues that it was moved away from since
 * its last switch-out is in run_delay already, the rest runs since last_queued. Every
 * task has a cfs_rq, whatever its class. Spares a program at each wake-up of the host.
 */
static __always_inline u64 queued_ns(struct task_struct *p, const struct task_state *task)
{
	u64 delay = p->sched_info.run_delay - task->delay_ns;
	u64 since = p->sched_info.last_queued;

	if (since)
		delay += p->se.cfs_rq->rq->clock - since;
	return delay;
}

/*
 * Most sleeps are split from the run queue when the task runs again (queued_ns). Not so
 * a wait for disk: levels must not show one while the sleeper waits for its CPU. Nor a
 * wake-up on an idle CPU or on another one: the run queue's clock is not set again
 * before the switch that it asks for (RQCF_REQ_SKIP), and a virtual CPU takes its time
 * to come to life or to take the interrupt.
 */
static __always_inline int clock_stands_still(struct task_struct *p)
{
	struct rq *rq = p->se.cfs_rq->rq;

	return rq->nr_running == 1 || rq->cpu != bpf_get_smp_processor_id();
}

#endif
