/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is remembered of each thread, and which threads a switch has anything to do for.
 * Owns `tasks` (task storage, freed by the kernel with the thread) and `noted`.
 * Called from every hook, first of all: for a thread that is not noted a switch ends here.
 * Costs an array look-up for those, and a call into task storage for the others.
 * Cannot see kernel threads: no record is made for them.
 */
#ifndef PIPELINED_TASKS_H
#define PIPELINED_TASKS_H

#include "maps.bpf.h"

/* A process that has not exec'd yet is looked at for pipes at its switches while it is younger. */
#define YOUNG_NS (2 * NS_PER_S)

/* CPU time in which a shell has arranged the descriptors of its child (bash: 0.3 ms, emulated ten times as much). */
#define ARRANGED_NS (NS_PER_S / 250)

#define STALL_DEPTH 4	/* stages around a reader for which its stalls are counted */

/* Which pages of a reading were slept for. */
enum slept {
	SLEPT_NOT,
	SLEPT_FIRST,	/* the page at `index` alone: the previous read slept for it, and ended in it */
	SLEPT_ALL,
};

/* What a read of a file through the page cache has yet to consume. Pages of 4 KiB. */
struct reading {
	u64 mapping;	/* address of the address_space, 0 = none */
	u64 base;	/* pages from here to `index` have been consumed, but not counted yet */
	u64 index;
	u64 last;	/* the last page that the read asks for */
	u64 end;	/* the same, or the last page of the file if that is less */
	u64 inode;
	u32 missed;	/* of these pages: brought in by this very read */
	u16 slept;	/* enum slept */
	u8 before_lookup;	/* its event came before its pages were looked up, not after */
	u8 of_program;	/* it is the begin of a program or a library */
};

enum run_kind { NO_RUN, READ_RUN, ADVISED_RUN };

/* Consecutive pages that a task brings in, between two events of its reads. */
struct run {
	u64 mapping;
	u64 first, last;
	u64 inode;
	u32 kind;	/* enum run_kind: for a read, or for readahead(2), fadvise or madvise */
	u32 mode;	/* of the inode */
};

/* A fault on a file that is mapped into memory. */
struct fault {
	u64 mapping;
	u64 index;
	u64 first, last;	/* what faults on this file have brought in */
	u8 missed;	/* the page was brought in by this fault */
	u8 ahead;	/* it was brought in by an earlier fault */
	u8 slept;
	u8 unused[5];
};

enum stall_kind {
	NO_STALL,
	READ_STALLS,	/* the class is known when the read goes on */
	FAULT_STALLS,
	OTHER_STALLS,	/* metadata, direct I/O */
};

/* A sleep of a reader for disk; all times in ns. */
struct stall {
	u64 kind;
	u64 mapping;
	u64 ns;
	u64 idle[STALL_DEPTH];	/* idle time of the enclosing stages' pipelines at the last look */
	u64 covered[STALL_DEPTH];	/* part of `ns` with a stage of that pipeline on CPU */
};

/* Stalls whose class is not known yet. */
struct unclassed {
	u64 mapping;
	u64 count;
	u64 ns;
	u64 covered_count[STALL_DEPTH];
	u64 covered_ns[STALL_DEPTH];
};

struct task_state {
	u64 clock;	/* state << 60 | ns of the last transition; 0: not followed */
	u64 woken_ns;	/* end of its last sleep; it has been on the run queue since then */
	u64 delay_ns;	/* the kernel's run queue time of the task at its last switch-out */
	u64 ran_ns;	/* the kernel's CPU time of the task at its last switch-out */
	u64 born_ns;	/* fork seen at; 0 = older than the daemon, or no longer young */
	u64 exec_ns;	/* last exec of this process */
	u64 claimed;	/* a stage of this process is being made at this moment */
	u64 noted;	/* the thread id under which it is counted in the map `noted`, 0 = not */
	u64 exit_counted;	/* of the first thread: its process has exited, and is counted */
	u64 life_from;	/* of the last thread that exits: when its process began; 0 = another one is the last */
	u64 stage;	/* innermost stage, 0 = none */
	u64 cpu_ns;	/* its time on CPU that was credited to its stages */
	struct process parent;	/* that forked it, which may be gone */
	struct process starter;	/* as in struct stage */
	struct command script;	/* the first script that this process ran, empty = none: it keeps the name */
	struct command applet;	/* which program of COMMAND_APPLETS its last exec was to run, empty = none */
	u64 pending;	/* stage assigned by another task, entered at the next event; 0 = none */
	u32 exec_id;	/* the kernel's count of its execs, when one was last seen */
	u64 slept_on;	/* end_number of the pipe end slept on, 0 = none */
	u32 looks;	/* counts the looks at what it holds and why it sleeps, to space them out */
	/* end_number of the pipe end slept on last; valid while the descriptor has the same file */
	u64 cached_file;
	u64 cached_end;
	u32 cached_fd;
	u64 user_ns, system_ns;			/* the kernel's counters as far as */
	u64 read_bytes, written_bytes;		/* they have been credited already */
	u64 read_calls, write_calls;
	struct pipe_key fed_by_parent[FED_PIPES];	/* that the parent could write to at the fork (rule 4) */
	struct pipe_key made_for_child[FED_PIPES];	/* that this process could write to when it forked last */
	u64 young_ns[STATES];	/* time by state since the fork, while young */
	u64 read_ns;	/* when the read of a file that it is in began */
	struct reading reading;	/* this and `run` are kept here while it is off CPU */
	struct run run;
	struct fault fault;
	struct stall stall;
	struct unclassed unclassed;
	struct job job;
	u64 instance;	/* as in struct stage */
};

#define BUCKETS 32768

/*
 * How many tasks a switch has anything to do for, by the low bits of their thread ids.
 * For all others the program ends here: an array is read in place, task storage costs a call.
 */
MAP_ARRAY(noted, u32, BUCKETS);

#define STAGE_DEAD 0xffffffffU	/* task_state.stage after the last switch-out */

MAP_TASK_STORAGE(tasks, struct task_state);

static __always_inline u32 *bucket_of(u32 pid)
{
	u32 at = pid & (BUCKETS - 1);

	return bpf_map_lookup_elem(MAP(noted), &at);
}

static __always_inline int is_noted(u32 pid)
{
	u32 *bucket = bucket_of(pid);

	return bucket && *bucket;
}

static __always_inline void count_noted(u32 pid, int change)
{
	u32 *bucket = bucket_of(pid);

	if (bucket && pid)
		__sync_fetch_and_add(bucket, change);
}

/*
 * From now on the programs look at the switches and wake-ups of this task. A thread that execs and is not the first one
 * of its process takes that one's id (de_thread of fs/exec.c): it is counted anew.
 */
static __always_inline void note(struct task_state *task, u32 thread)
{
	u32 before;

	if (task->noted == thread)
		return;
	before = __sync_lock_test_and_set(&task->noted, thread);
	if (before == thread)
		return;
	count_noted(thread, 1);
	count_noted(before, -1);
}

/*
 * They no longer do, unless another task assigns it a stage at this moment. A function of its own, as Linux 6.1 refuses
 * how the compiler lays it out in on_switch.
 */
GLOBAL(int, forget)(struct task_state *task, u32 pid)
{
	if (!task)
		return 0;
	count_noted(__sync_lock_test_and_set(&task->noted, 0), -1);
	if (task->clock || task->pending)
		note(task, pid);
	return 0;
}

static __always_inline int same_process(const struct process *a, const struct process *b)
{
	return a->pid == b->pid && a->start_ns == b->start_ns;
}

/* Does the task at this address belong to this process? */
static __always_inline int is_process(const struct process *process, u64 p)
{
	return process->pid == BPF_CORE_READ(TASK(p), tgid) &&
	       process->start_ns == BPF_CORE_READ(TASK(p), group_leader, start_time);
}

/* The parent process of a task, as the address of its first thread. A function, as callers have little stack left. */
GLOBAL(u64, parent_of)(u64 p)
{
	return (u64)BPF_CORE_READ(TASK(p), real_parent, group_leader);
}

static __always_inline void set_process(struct process *process, u64 p)
{
	process->pid = BPF_CORE_READ(TASK(p), tgid);
	process->start_ns = BPF_CORE_READ(TASK(p), group_leader, start_time);
}

static __always_inline struct task_state *state_of(struct task_struct *p)
{
	return bpf_task_storage_get(MAP(tasks), p, 0, 0);
}

/* No state, or past its last switch-out: nothing may be recorded for this task any more. */
static __always_inline int is_gone(const struct task_state *task)
{
	return !task || task->stage == STAGE_DEAD;
}

/* The innermost stage of a task; 0 if it is in none, or gone. */
static __always_inline u32 stage_of(const struct task_state *task)
{
	return is_gone(task) ? 0 : task->stage;
}

#endif
