/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A thread leaves its CPU, gets one, or is woken: the states of its time, and what it sleeps on.
 * Owns no map; writes task_state.woken_ns, .delay_ns, .ran_ns, .slept_on and .cached_*, and the sleeps of pipe ends.
 * Called at sched_switch and sched_wakeup.
 * Costs are in docs/BENCHMARKS.md, measured by `make bench ARGS='--only switch'`; budgets 200 ns for a thread of a
 * stage and 60 ns for any other, per switch with its wake-up.
 * Cannot see a switch that the kernel does not trace: repair_missed_switch makes up for it at the next one.
 */
#ifndef PIPELINED_SWITCHING_H
#define PIPELINED_SWITCHING_H

#include "lifecycle.bpf.h"
#include "peers.bpf.h"

#define UNJOINED_LOOKS 4	/* sleeps at an end without partner that are worth a look for one */
#define FIRST_LOOKS 32		/* a task that is in no stage, or young, is looked at this many times */
#define LOOK_INTERVAL 256	/* and then at every 256th occasion, while it is young */

static __always_inline void add_sleep_once(struct stage *stage, u32 side)
{
	if (side == SIDE_READ)
		__sync_fetch_and_add(&stage->sleeps_empty, 1);
	else
		__sync_fetch_and_add(&stage->sleeps_full, 1);
}

/* Counts a sleep on a pipe that is not their own for stage `index` and those around it. */
GLOBAL(int, add_sleep)(u32 index, u32 side)
{
	struct stage *stage;

	for_each_enclosing_stage(stage, index)
		add_sleep_once(stage, side);
	return 0;
}

/* Counts a sleep for the end slept on, and for every other stage around the task. Returns the end's number, or 0. */
GLOBAL(u64, count_sleep)(struct task_state *task, struct fifo *fifo)
{
	struct stage *stage;
	u32 index;
	u64 end;

	if (!task || !fifo)
		return 0;
	end = known_end(task->stage, &fifo->key, fifo->side);
	task->slept_on = end;
	index = task->stage;
	for_each_enclosing_stage(stage, index) {
		if (end && index == end_stage(end))
			__sync_fetch_and_add(&end_of(stage, end_slot(end))->sleeps, 1);
		else
			add_sleep_once(stage, fifo->side);
	}
	return end;
}

GLOBAL(int, is_joined)(u64 number)
{
	struct pipe_end *end = end_at(number);

	return end && end->side_and_flags & END_JOINED;
}

/* Who may be at the other end of the pipe slept on? `no_exec`: the process has not exec'd since its fork. */
GLOBAL(u32, whom_to_ask)(u32 index, const struct fifo *fifo, u32 no_exec)
{
	struct pipe_end *end;
	u64 known;

	if (!fifo)
		return ASK_NOBODY;
	known = known_end(index, &fifo->key, fifo->side);
	if (!known)
		return no_exec ? ASK_READER : ASK_USED;
	end = end_at(known);
	if (!end || end->side_and_flags & END_JOINED || end->sleeps >= UNJOINED_LOOKS)
		return ASK_NOBODY;
	return end->sleeps ? ASK_EAGERLY : no_exec ? ASK_READER : ASK_USED;
}

/*
 * Is this a new process whose stdin or stdout a shell may be about to replace, as that of `a 2>&1 > file | b`? What is
 * there makes no stage yet. One that waits for something else than memory, a lock or a disk has come further.
 */
static __always_inline int is_arranged(struct task_struct *p)
{
	return p->se.sum_exec_runtime >= ARRANGED_NS || p->__state & TASK_INTERRUPTIBLE;
}

static __always_inline int worth_a_look(struct task_struct *self, struct task_state *task)
{
	u32 looks;

	/* its exec looks at it itself, and does not take what the kernel reads of the program for its input */
	if (!is_arranged(self) || BPF_CORE_READ_BITFIELD(self, in_execve))
		return 0;
	looks = task->looks++;
	return looks < FIRST_LOOKS || looks % LOOK_INTERVAL == 0;
}

/* The address of the file at a descriptor of the task, or 0. */
static __always_inline u64 file_at(struct task_struct *p, u32 fd)
{
	struct files_struct *files = p->files;
	struct fdtable *fdt = files->fdt;
	u64 file = 0;

	/* no helper is called for the first two descriptors of a table that never grew */
	if (fdt->max_fds == NR_OPEN_DEFAULT && fd < 2)
		return fd ? (u64)files->fd_array[1] : (u64)files->fd_array[0];
	if (fd < fdt->max_fds)
		bpf_probe_read_kernel(&file, sizeof(file), fdt->fd + fd);
	return file;
}

/* The common case: a thread of a stage sleeps on the same end of the same pipe as the time before. */
static __always_inline int sleep_again(struct task_struct *p, struct task_state *task,
				       const struct call *call, struct deferred *deferred, u64 now)
{
	u64 number = task->cached_end;
	struct stage *stage;

	if (!number || call->args[0] != task->cached_fd ||
	    (call->kind != CALL_READ && call->kind != CALL_WRITE) ||
	    /* no sleep on a pipe is freezable: of what is, why_asleep() asks whether it is frozen */
	    p->__state & (TASK_STOPPED_OR_TRACED | TASK_FREEZABLE | TASK_FROZEN) ||
	    waits_for_io(p) ||	/* in a fault on a mapped file that it writes to the pipe */
	    file_at(p, task->cached_fd) != task->cached_file)
		return 0;
	stage = stage_at(end_stage(number));
	if (!stage)
		return 0;
	transition(task, call->kind == CALL_READ ? STATE_PIPE_EMPTY : STATE_PIPE_FULL, deferred, now);
	task->slept_on = number;
	__sync_fetch_and_add(&end_of(stage, end_slot(number))->sleeps, 1);
	if (word_outer(stage->word))
		add_sleep(word_outer(stage->word), call->kind == CALL_READ ? SIDE_READ : SIDE_WRITE);
	return 1;
}

/* If the sleep is on a pipe end without partner, or there is reason to `look`: discovers what it belongs to. */
static __always_inline void discover_asleep(struct task_struct *p, struct task_state *task,
					    struct sleep *sleep, int look, u64 now)
{
	u32 ask = ASK_NOBODY;

	if (sleep->on_fifo)
		ask = whom_to_ask(task->stage, &sleep->fifo,
				  p->group_leader->flags & PF_FORKNOEXEC);
	if (ask != ASK_NOBODY) {
		if (sleep->fd < 2)
			look = 1;
		else
			discover_by_sleep(bpf_get_current_task(), task, &sleep->fifo, sleep->fd, now);
	}
	if (look)
		discover_self(task, ask > ASK_READER ? ask : ASK_READER, now);
}

/* What the stage moves is not all in its threads' accounting. */
GLOBAL(int, note_splice)(u32 index)
{
	struct stage *stage;

	for_each_enclosing_stage(stage, index)
		if (!(stage->flags & STAGE_SPLICES))
			__sync_fetch_and_or(&stage->flags, STAGE_SPLICES);
	return 0;
}

/* Every other sleep: finds out why, discovers new pipes, and remembers a joined end for sleep_again. */
static __always_inline void sleep_anew(struct task_struct *p, struct task_state *task, int look,
				       u64 now)
{
	struct asleep *page = only_entry(MAP(asleep));
	struct sleep *sleep;
	u64 known;

	if (!page)
		return;
	sleep = &page->sleep;
	__builtin_memset(page, 0, sizeof(*page));
	saved_call(p, &page->call);
	look_asleep(p, bpf_get_current_task(), &page->call, sleep);
	task->cached_end = 0;
	discover_asleep(p, task, sleep, look, now);
	if (!task->clock)
		return;
	if (page->call.kind == CALL_SPLICE || page->call.kind == CALL_TEE)
		note_splice(task->stage);
	goes_to_sleep(task, sleep, now);
	if (sleep->state == STATE_DISK)
		reader_sleeps(task, &page->call, now);
	if (!sleep->on_fifo)
		return;
	known = count_sleep(task, &sleep->fifo);
	if (known && end_stage(known) == task->stage && is_joined(known) &&
	    (page->call.kind == CALL_READ || page->call.kind == CALL_WRITE)) {
		task->cached_fd = sleep->fd;
		task->cached_file = file_at(p, sleep->fd);
		task->cached_end = known;
	}
}

/*
 * Takes the kernel's own times of a task that leaves its CPU. Some kernels do not trace every
 * switch (seen on a 6.18 guest: none away from one host thread). If the switch to this task was
 * missed, these times show how long ago it was.
 */
static __always_inline void repair_missed_switch(struct task_struct *p, struct task_state *task,
						 u64 now)
{
	u64 total = p->se.sum_exec_runtime, ran = total - task->ran_ns, clock = task->clock;
	u64 delay = p->sched_info.run_delay - task->delay_ns;
	struct control *control;

	task->ran_ns = total;
	task->delay_ns += delay;
	if (!clock || clock >> CLOCK_STATE_SHIFT == STATE_CPU)
		return;
	control = control_page();
	if (control && task->stage)
		__sync_fetch_and_add(&control->missed_switches, 1);
	if (ran > now - (clock & CLOCK_NS_MASK))
		ran = now - (clock & CLOCK_NS_MASK);
	task->woken_ns = now - ran - delay;
	change_state(task, STATE_CPU, now - ran);
}

/* A task that is not followed goes to sleep, once more; after FIRST_LOOKS times it is left to the sweep: 1. */
static __always_inline int leave_to_sweep(struct task_struct *p, struct task_state *task)
{
	if (task->looks++ < FIRST_LOOKS)
		return 0;
	forget(task, p->pid);
	return 1;
}

/* A task that is noted leaves its CPU. *clock: the time, if it was read. */
static __always_inline void leave_cpu(struct task_struct *p, struct task_state *task,
				      bool preempt, struct deferred *deferred, u64 *clock)
{
	int runnable = preempt || !p->__state, look;
	struct call call = {};
	u64 now;

	if (!task->clock && !task->pending && !(p->__state & TASK_DEAD) &&
	    (runnable || leave_to_sweep(p, task)))
		return;
	now = *clock = bpf_ktime_get_ns();
	repair_missed_switch(p, task, now);
	settle_stage(task, now);
	if (p->__state & TASK_DEAD) {
		end_task(p, task, now);
		return;
	}
	if (missed_exec(p, task))
		after_exec(p, task, now);
	look = p->flags & p->group_leader->flags & PF_FORKNOEXEC && still_young(p, task, now) &&
	       worth_a_look(p, task);
	if (runnable) {
		if (look)
			discover_self(task, ASK_READER, now);
		if (task->clock)
			transition(task, STATE_RUNQUEUE, deferred, now);
		return;
	}
	saved_call(p, &call);
	if (!look && sleep_again(p, task, &call, deferred, now))
		return;
	sleep_anew(p, task, look, now);
}

/* A task that is noted gets a CPU. *clock: the time, if it was read. */
static __always_inline void get_cpu(struct task_struct *p, struct task_state *task,
				    struct deferred *deferred, u64 *clock)
{
	u64 now = *clock;

	if (!task->clock && !task->pending)
		return;
	if (!now)
		now = *clock = bpf_ktime_get_ns();
	if (task->clock >> CLOCK_STATE_SHIFT > STATE_RUNQUEUE && !was_woken(task, task->clock))
		task->woken_ns = now - queued_ns(p, task);
	take_up_pending(task, now);
	if (task->stage)
		reader_gets_cpu(p);
	transition(task, STATE_CPU, deferred, now);
}

/* One task leaves the CPU to another. */
static __always_inline void switched(bool preempt, struct task_struct *prev,
				     struct task_struct *next)
{
	struct task_state *task;
	struct deferred deferred = {};
	u64 now = 0;

	if (is_noted(prev->pid)) {
		task = state_of(prev);
		if (task) {
			reader_leaves_cpu(task, prev);
			leave_cpu(prev, task, preempt, &deferred, &now);
		}
	}
	FORGET(deferred.counts, next->pid);
	FORGET(deferred.pipeline, next->pid);
	FORGET(now, next->pid);
	if (is_noted(next->pid)) {
		task = state_of(next);
		if (!task)
			task = make_state_late(next);
		if (task)
			get_cpu(next, task, &deferred, &now);
	}
	apply_deferred(&deferred, now);
}

/*
 * Is the run queue's clock not set before the switch that this wake-up asks for
 * (RQCF_REQ_SKIP)? So it is on an idle CPU and on another one, and a virtual CPU takes its
 * time to come to life or to take the interrupt.
 */
static __always_inline int clock_stands_still(struct task_struct *p)
{
	struct rq *rq = p->se.cfs_rq->rq;

	return rq->nr_running == 1 || rq->cpu != bpf_get_smp_processor_id();
}

/*
 * A task is woken. Most sleeps are split from the wait for a CPU when the task runs again
 * (queued_ns). The exceptions are waits for disk, because levels must not show one while the
 * sleeper waits for its CPU, and wake-ups at which the run queue's clock stands still.
 */
static __always_inline void woken(struct task_struct *p)
{
	struct task_state *task;
	u32 state;

	if (!is_noted(p->pid) || !(waits_for_io(p) || clock_stands_still(p)))
		return;
	task = state_of(p);
	if (!task)
		return;
	/* otherwise it is not followed, or was woken before it had left its CPU: it never slept */
	state = task->clock >> CLOCK_STATE_SHIFT;
	if (state == STATE_DISK)
		change_state(task, STATE_RUNQUEUE, bpf_ktime_get_ns());
	else if (state > STATE_RUNQUEUE)
		task->woken_ns = bpf_ktime_get_ns();
}

#endif
