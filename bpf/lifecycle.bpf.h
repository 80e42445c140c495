/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A process is forked, execs, exits, ends: which stage it belongs to from then on.
 * Owns no map; writes task_state.born_ns, .exec_ns, .exec_id, .parent, .starter, .script, .applet, .job, .looks and
 * .exit_counted, the counts of forks, execs, failed execs and exited children of stages, and how their roots end.
 * Called at sched_process_fork, _exec, _exit and failed execs; at sched_switch when a thread ends, has no record yet,
 * or has missed its exec.
 * Costs are in docs/BENCHMARKS.md, measured by `make bench ARGS='--only storm'`.
 * Cannot see forks of processes that are not to be followed (control.watch_pid): they get no record.
 */
#ifndef PIPELINED_LIFECYCLE_H
#define PIPELINED_LIFECYCLE_H

#include "alone.bpf.h"
#include "arguments.bpf.h"
#include "children.bpf.h"
#include "discovery.bpf.h"
#include "jobs.bpf.h"
#include "readahead.bpf.h"
#include "resuming.bpf.h"
#include "retirement.bpf.h"

/* An exec of the current task has returned. A failed one leaves no trace in the scheduler. */
static __always_inline int exec_returned(long result)
{
	struct task_state *task;
	struct stage *stage;
	u32 index;

	if (result >= 0)
		return 0;
	task = state_of(bpf_get_current_task_btf());
	index = stage_of(task);
	for_each_enclosing_stage(stage, index)
		__sync_fetch_and_add(&stage->exec_failures, 1);
	return 0;
}

/*
 * How a process ends whose last thread exits: as wait_task_zombie of kernel/exit.c has it for the parent.
 * Since mark_oom_victim (mm/oom_kill.c) oom_mm is that of a process which was chosen when memory had run out.
 */
static __always_inline u64 exit_status(u64 p)
{
	struct signal_struct *ended = BPF_CORE_READ(TASK(p), signal);
	u32 status = BPF_CORE_READ(ended, flags) & SIGNAL_GROUP_EXIT ? BPF_CORE_READ(ended, group_exit_code) :
								       BPF_CORE_READ(TASK(p), group_leader, exit_code);

	status = (status & 0xffff) | EXIT_SEEN;
	return BPF_CORE_READ(ended, oom_mm) && (status & 0x7f) == SIGKILL ? status | EXIT_OOM : status;
}

/*
 * The last switch of a thread, which every kernel traces: was it the last one of its process, and has the event of that
 * process's exit been passed over, as that of an exec may be (missed_exec)?
 */
GLOBAL(int, exit_seen_late)(u64 p, u32 index)
{
	struct stage *stage;
	u64 status, unseen;

	if (BPF_CORE_READ(TASK(p), signal, live.counter))
		return 0;
	status = exit_status(p);
	for_each_enclosing_stage(stage, index) {
		unseen = is_process(&stage->root, p) && !(stage->exit_status & EXIT_SEEN);
		__sync_fetch_and_or(&stage->exit_status, unseen ? status : 0);
	}
	return 0;
}

/* The last switch of a thread, after exit_mm: its time ends here. */
static __always_inline void end_task(struct task_struct *p, struct task_state *task, u64 now)
{
	u64 clock;
	u32 index;

	clock = __sync_lock_test_and_set(&task->clock, 0);
	if (clock)
		task_credit(task, task->stage, clock, now);
	if (stage_of(task)) {
		exit_seen_late(bpf_get_current_task(), task->stage);
		credit_usage(bpf_get_current_task(), task);
		credit_child(bpf_get_current_task(), task, task->cpu_ns, task->life_from ? now - task->life_from : 0);
	}
	forget(task, p->pid);
	index = __sync_lock_test_and_set(&task->stage, STAGE_DEAD);
	give_up_pending(task, now);
	if (!index || index == STAGE_DEAD)
		return;
	if (!clock)	/* another task may have adopted it meanwhile */
		clock = __sync_lock_test_and_set(&task->clock, 0);
	if (clock)
		stage_add(index, -state_counts(clock >> CLOCK_STATE_SHIFT), now);
	stage_put(index, now);
}

/* Has the process not exec'd yet, and was it forked less than YOUNG_NS ago? If not, its time so far is dropped. */
static __always_inline int still_young(struct task_struct *p, struct task_state *task, u64 now)
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

/* The process may get new pipes: look at its switches again. */
static __always_inline void follow_again(struct task_struct *p, struct task_state *task)
{
	task->looks = 0;
	note(task, p->pid);
}

/* The current process has become another program. */
static __always_inline void after_exec(struct task_struct *p, struct task_state *task, u64 now)
{
	task->exec_id = p->self_exec_id;
	settle_stage(task, now);
	task->exec_ns = now;
	task->cached_end = 0;
	begin_job(bpf_get_current_task(), task);
	discover_self(task, ASK_USED, now);
	count_exec(bpf_get_current_task(), task->stage, now);
	take_name(bpf_get_current_task(), task, task->stage);
	take_job(task, bpf_get_current_task());
	leave_ends(bpf_get_current_task(), task->stage);
	discover_arguments(bpf_get_current_task(), task, now);
	discover_alone(bpf_get_current_task(), task, now);
	task->born_ns = 0;
	if (!task->stage)
		task->clock = 0;
	follow_again(p, task);
}

/*
 * Some execs have no event (seen on 7.3). The likely reason: where a tracepoint's program can be
 * preempted, it does not run for another task meanwhile (bpf_prog.active). in_execve: the event
 * is still to come.
 */
static __always_inline int missed_exec(struct task_struct *self, const struct task_state *task)
{
	return self->self_exec_id != task->exec_id && !BPF_CORE_READ_BITFIELD(self, in_execve);
}

/* Is the process outside the tree that `pipelined run` watches? Its tasks get no record. */
static __always_inline int is_unwatched(u32 tgid)
{
	struct control *control = control_page();

	return control && control->watch_pid && control->watch_pid != tgid;
}

/* A new record for a task that has none; NULL if there is no memory. */
static __always_inline struct task_state *make_state(struct task_struct *p)
{
	struct task_state *made;

	made = bpf_task_storage_get(MAP(tasks), p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (made) {
		note(made, p->pid);
		made->exec_id = p->self_exec_id;
	}
	return made;
}

/*
 * The record of the current task. If it has none because it is older than the daemon, and no sweep has come to it yet,
 * what was saved of it counts; NULL if that is nothing either.
 */
static __always_inline struct task_state *state_of_current(struct task_struct *p)
{
	struct task_state *task = state_of(p);
	struct saved_task *saved;

	if (task || !is_resuming())
		return task;
	saved = saved_of(p);
	task = saved ? make_state(p) : NULL;
	if (task && saved)
		resume(bpf_get_current_task(), task, saved, STATE_CPU, bpf_ktime_get_ns());
	return task;
}

/* sched_process_exec. Of a script (#!), and by binfmt_misc, the kernel runs another file than the one asked for. */
static __always_inline void process_execs(struct task_struct *p, const struct linux_binprm *program)
{
	struct task_state *task = state_of_current(p);

	if (!task)
		return;
	if (program->interp != program->filename)
		keep_script_name(task);
	after_exec(p, task, bpf_ktime_get_ns());
	if (task->stage)
		reader_gets_cpu(p);
}

static __always_inline void count_fork(u32 index)
{
	struct stage *stage;

	for_each_enclosing_stage(stage, index)
		__sync_fetch_and_add(&stage->forks, 1);
}

/* A new task is in the stage of the task that made it, if any, unless the sweep has picked it up meanwhile. */
static __always_inline void inherit_stage(struct task_state *born, const struct task_state *from, u64 now)
{
	u32 stage = unretired(stage_of(from));

	if (!stage)
		return;
	stage_hold(stage);
	if (__sync_val_compare_and_swap(&born->stage, 0, stage) != 0)
		stage_put(stage, now);
}

/*
 * A process that is a starter marks what it forks; every other one passes its own mark on. `parent` is its main thread,
 * `from` its state. A fork of a starter has the name too, until it execs.
 */
static __always_inline void inherit_starter(struct task_state *born, struct task_struct *parent,
					    const struct task_state *from)
{
	struct command command = {};

	BPF_CORE_READ_STR_INTO(&command.name, parent, comm);
	if (!(parent->flags & PF_FORKNOEXEC) && command_flags(&command) & COMMAND_STARTER) {
		born->starter.pid = parent->tgid;
		born->starter.start_ns = parent->start_boottime;
		born->starter.uid = BPF_CORE_READ(parent, real_cred, uid.val);
	} else if (from) {
		born->starter = from->starter;
	}
}

/* A new thread is of the same process. */
static __always_inline void inherit_process(struct task_state *born, const struct task_state *from)
{
	born->starter = from->starter;
	born->script = from->script;
}

/*
 * A new task without a record: another task was stopped on this CPU inside the kernel's own
 * storage code (bpf_task_storage_busy), so none could be made at the fork. Or the task is older
 * than the daemon, and the first sweep has not come to it yet.
 */
LOCAL(struct task_state *, make_state_late)(struct task_struct *p)
{
	struct task_struct *leader = p->group_leader;
	struct task_state *born, *above;

	if (p->flags & PF_KTHREAD || is_unwatched(0))
		return NULL;
	born = make_state(p);
	if (!born) {
		count_lost(LOST_TASKS);
		return NULL;
	}
	if (bpf_ktime_get_ns() - p->start_time > YOUNG_NS)
		return born;
	if (p->tgid == p->pid)
		leader = p->real_parent->group_leader;
	above = state_of(leader);
	if (p->tgid == p->pid) {
		born->born_ns = p->start_time;
		born->parent.pid = leader->tgid;
		born->parent.start_ns = leader->start_time;
		inherit_starter(born, leader, above);
	} else if (above) {
		inherit_process(born, above);
	}
	inherit_until_exec(born, above);
	inherit_stage(born, above, bpf_ktime_get_ns());
	if (born->born_ns || born->stage)
		born->clock = clock_pack(STATE_RUNQUEUE, p->start_time);
	return born;
}

/* There is no memory for a child's record now: make_state_late makes it at the child's first switch. */
static __always_inline void expect_late_state(struct task_struct *child)
{
	u32 *bucket = bucket_of(child->pid);

	if (is_unwatched(0))
		count_lost(LOST_TASKS);
	else if (bucket)
		__sync_fetch_and_add(bucket, 1);
}

/* sched_process_fork: a process or a thread. */
static __always_inline void task_forks(struct task_struct *parent, struct task_struct *child)
{
	struct task_state *task = state_of_current(parent), *born;
	struct task_struct *leader = parent->group_leader;
	int is_process = child->tgid != parent->tgid;
	u64 now;

	if (child->flags & PF_KTHREAD || (!task && is_unwatched(parent->tgid)))
		return;
	now = bpf_ktime_get_ns();
	if (task) {
		settle_stage(task, now);
		/* a subshell about to have children: they inherit the stage that it belongs to */
		if (leader->flags & PF_FORKNOEXEC)
			discover_self(task, ASK_READER, now);
	}
	if (is_process && stage_of(task))
		count_fork(task->stage);
	born = make_state(child);
	if (!born) {
		expect_late_state(child);
		return;
	}
	if (is_process) {
		born->born_ns = now;
		note_fed_pipes(bpf_get_current_task(), task, born);
		born->parent.pid = parent->tgid;
		born->parent.start_ns = leader->start_time;
		inherit_starter(born, leader, task);
		if (task)
			follow_again(parent, task);
	} else if (task) {
		inherit_process(born, task);
	}
	inherit_until_exec(born, task);
	inherit_stage(born, task, now);
	if (is_process || born->stage)
		born->clock = clock_pack(STATE_RUNQUEUE, now);
}

/* A process has exited: it was a child in some stages, and the root of others. */
GLOBAL(int, count_exit)(u64 p, u32 index, u64 status)
{
	struct stage *stage;

	for_each_enclosing_stage(stage, index) {
		if (is_process(&stage->root, p))
			__sync_fetch_and_or(&stage->exit_status, status);
		else
			__sync_fetch_and_add(&stage->exited_children, 1);
	}
	return 0;
}

/* Has another thread of the process, which exits at the same time, seen as well that it is the last one? */
static __always_inline int is_counted(struct task_struct *p)
{
	struct task_state *leader = state_of(p->group_leader);

	return leader && __sync_lock_test_and_set(&leader->exit_counted, 1);
}

/* sched_process_exit: of the last thread of a process. */
static __always_inline void process_exits(struct task_struct *p)
{
	struct task_state *task;
	u64 now;

	if (p->flags & PF_KTHREAD || p->signal->live.counter)
		return;
	task = state_of(p);
	if (!task)
		return;
	now = bpf_ktime_get_ns();
	if (missed_exec(p, task))
		after_exec(p, task, now);
	settle_stage(task, now);
	/* the last look while its files are open: it may never have exec'd nor slept */
	discover_self(task, ASK_USED, now);
	if (is_gone(task))
		return;
	if (task->stage)
		discover_feeding_parent(task, now);
	if (is_root(task->stage, bpf_get_current_task()))
		for (u32 slot = 0; slot < STAGE_ENDS; slot++)
			try_end_again(task->stage, slot, now);
	note(task, p->pid);
	name_again(bpf_get_current_task(), task, task->stage);
	if (is_counted(p))
		return;
	/* the life ends with this thread, not with the first one, which may end earlier, or be replaced by one that execs */
	task->life_from = p->group_leader->start_time;
	count_exit(bpf_get_current_task(), task->stage, exit_status(bpf_get_current_task()));
}

#endif
