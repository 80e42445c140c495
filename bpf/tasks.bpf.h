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

/* A task that has not exec'd yet is watched this long before it costs nothing again. */
#define YOUNG_NS (2 * NS_PER_S)

#define STALL_DEPTH 4	/* stages around a reader that its stalls are counted for */

/* Which pages of a reading were slept for. */
enum slept {
	SLEPT_NOT,
	SLEPT_FIRST,	/* the page at its `index`: the read before slept for it, and ended in it */
	SLEPT_ALL,
};

/* What a read of a file through the page cache has yet to consume. Pages of 4 KiB. */
struct reading {
	u64 mapping;	/* address of the address_space, 0 = none */
	u64 base;	/* from here to `index` pages have been consumed, but not settled */
	u64 index;
	u64 last;	/* as the read asked for it */
	u64 end;	/* the same, or the last page of the file if that is less */
	u64 inode;
	u32 missed;	/* of these pages: brought in by this very read */
	u16 slept;	/* enum slept */
	u16 asks;	/* told before its pages were looked for, not after */
};

enum run_kind { NO_RUN, READ_RUN, ADVISED_RUN };

/* Consecutive pages that a task brings in, between two events of its reads. */
struct run {
	u64 mapping;
	u64 first, last;
	u64 inode;
	u32 kind;	/* enum run_kind: by a read, or as readahead(2) and its like asked for */
	u32 mode;	/* of the inode */
};

/* A fault on a file that is mapped into memory. */
struct fault {
	u64 mapping;
	u64 index;
	u64 first, last;	/* what faults on this file have brought in */
	u8 missed;	/* the page was brought in by this fault */
	u8 ahead;	/* by one before it */
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
	u64 idle[STALL_DEPTH];	/* of the pipelines around it, when this was last looked at */
	u64 covered[STALL_DEPTH];	/* of `ns`, with a stage of theirs on CPU */
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
	u64 woken_ns;	/* end of its last sleep: on the run queue from then on */
	u64 delay_ns;	/* the kernel's run queue time of the task at its last switch-out */
	u64 ran_ns;	/* the kernel's CPU time of the task at its last switch-out */
	u64 born_ns;	/* fork seen at; 0 = older than the daemon, or no longer young */
	u64 exec_ns;	/* last exec of this process */
	u64 parent_start_ns;	/* of the process that forked it: it may be gone by now */
	u64 claimed;	/* somebody makes a stage of this process right now */
	u64 noted;	/* counted in the map of that name */
	u64 stage;	/* innermost stage, 0 = none */
	u32 parent_pid;
	u32 exec_id;	/* the kernel's count of its execs, when one was last seen */
	u32 pending;	/* stage given by another task, taken up at the next event */
	u32 slept_on;	/* stage << 3 | slot + 1 of the pipe end slept on, 0 = none */
	u32 looks;	/* spaces out the looks at what it holds and why it sleeps */
	/* the pipe end slept on last; holds while the descriptor's file is the same */
	u64 cached_file;
	u32 cached_fd;
	u32 cached_end;
	u64 user_ns, system_ns;			/* of the kernel's counters, what */
	u64 read_bytes, written_bytes;		/* has been credited already */
	u64 read_calls, write_calls;
	/* pipes that the parent could write to when it forked this process: rule 4 */
	u64 fed_by_parent[2];
	u64 young_ns[STATES];	/* states since the fork, while young */
	u64 read_ns;	/* begin of the read of a file that it is in */
	struct reading reading;	/* these two while it is off CPU */
	struct run run;
	struct fault fault;
	struct stall stall;
	struct unclassed unclassed;
};

#define BUCKETS 32768

/*
 * How many tasks a switch has anything to do for, by the low bits of their thread ids.
 * For all others it ends here: an array is read in place, task storage costs a call.
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

/* From now on the switches and wake-ups of this task are looked at. */
static __always_inline void note(struct task_state *task, u32 pid)
{
	u32 *bucket = bucket_of(pid);

	if (bucket && !__sync_lock_test_and_set(&task->noted, 1))
		__sync_fetch_and_add(bucket, 1);
}

/* And no longer; unless another task gives it something to do at this moment. */
static __always_inline void forget(struct task_state *task, u32 pid)
{
	u32 *bucket = bucket_of(pid);

	if (bucket && __sync_lock_test_and_set(&task->noted, 0))
		__sync_fetch_and_add(bucket, -1);
	if (task->clock || task->pending)
		note(task, pid);
}

static __always_inline struct task_state *state_of(struct task_struct *p)
{
	return bpf_task_storage_get(MAP(tasks), p, 0, 0);
}

#endif
