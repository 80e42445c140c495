/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The maps that several headers use, the look-ups into them, and the walk over the stages around one.
 * Owns `lost`, `control`, `wakeups`, `scratch`, `commands` and `units`. Also defined here, but owned elsewhere: `stages`
 * and `free_stages` (stages.bpf.h), `pipes` (topology.bpf.h), `functions` (functions.bpf.h), `readahead`
 * (page_counts.bpf.h). Owners define the others: `tasks` and `noted` (tasks.bpf.h), `asleep` (sleep.bpf.h), `cpu_reads`
 * (readahead.bpf.h), `windows` (window.bpf.h).
 * Called from every hook. A look-up in an array costs no call.
 * Cannot see what did not fit: that is counted in `lost`.
 * The daemon sets the entries of maps that are SIZED. It maps shared arrays into its memory, so that a sweep reads
 * them without system calls; index 0 is never used.
 */
#ifndef PIPELINED_MAPS_H
#define PIPELINED_MAPS_H

#include "pipelined.h"

/* Keeps clang from indexing with a copy that the verifier has not seen compared with a bound. */
#define OPAQUE(index) asm volatile("" : "+r"(index))

/*
 * Makes the verifier forget what `value` is: it adds and takes off `unknown`, a number that the verifier knows nothing
 * of. It then goes through what follows once, not for each value that the paths to here lead to.
 */
#define FORGET(value, unknown) asm volatile("%0 += %1; %0 -= %1" : "+r"(value) : "r"((u64)(unknown)))

#define MAX_DEPTH 6	/* stages around a task that are credited; those further out are not */
#define MAX_ALIASES 8	/* merges in a chain */
#define MAX_NESTED 16	/* stages one in another: no stage is made further in, so that each walk over counts and holds ends */

/* A global function cannot take a typed task. It gets the address and reads by guarded copies. */
#define TASK(address) ((struct task_struct *)(address))

MAP_SHARED_ARRAY(stages, struct stage, SIZED(stages, 16385));	/* --max-stages + 1 */
MAP_SHARED_ARRAY(functions, struct functions, SIZED(functions, 1));	/* as `stages` if the tier is on */
MAP_SHARED_ARRAY(readahead, struct readahead, SIZED(readahead, 1));	/* the same */
MAP_STACK(free_stages, u32, SIZED(free_stages, 16384));	/* indexes of free records, the lowest on top */
MAP_HASH(pipes, struct pipe_key, struct pipe, SIZED(pipes, 16384));	/* --max-pipes */

struct command {
	char name[COMM_LEN];
};

MAP_HASH(commands, struct command, u32, 256);	/* enum command_flag of the names in the configuration */

#define UNIT_LEN 64

struct unit {
	char name[UNIT_LEN];
};

MAP_HASH(units, struct unit, u32, 256);	/* units of the configuration whose programs are stages alone */
MAP_SHARED_ARRAY(lost, u64, LOST_KINDS);
MAP_SHARED_ARRAY(control, struct control, 1);
MAP_RINGBUF(wakeups, 4096);	/* wakes the daemon, carries no data */

#define MAX_JOB_VARIABLES 8
#define MAX_VARIABLES (MAX_JOB_VARIABLES + MAX_INSTANCE_VARIABLES)
#define STRING_LEN 256
#define ARGUMENTS_LEN 512	/* bytes of a command line that are searched for /dev/fd/N */

/*
 * Room for a look at a process. Where the programs of tracepoints can be preempted (7.3),
 * several may be running on one CPU: each takes a page of its own.
 */
struct scratch {
	u64 taken;
	u64 files[64];
	char arguments[2 * ARGUMENTS_LEN + 8];	/* the second half stays zero */
	struct pipe no_pipe;	/* stays zero */
	char cgroup[UNIT_LEN];
	struct unit unit;
	struct cgroup_name name;	/* of another look than `cgroup` (cgroups.bpf.h) */
	/* a look through an environment (environment.bpf.h) */
	u64 at, end, is_rest;
	u64 string[STRING_LEN / 8];
	u64 jobs_at[MAX_JOB_VARIABLES];	/* where the values begin that it sets, 0 = not set */
	u64 instances_at[MAX_INSTANCE_VARIABLES];
	/* what is kept of these (instances.bpf.h) */
	u64 hash[4];
	struct instance instance;
};

#define SCRATCH_PAGES 4	/* if all are taken, that is counted in `lost` */

MAP_PERCPU(scratch, struct scratch, SCRATCH_PAGES);

/* The entry of an array map that has only one. Never NULL, but the verifier asks for the check. */
static __always_inline void *only_entry(void *map)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(map, &zero);
}

static __always_inline struct control *control_page(void)
{
	return only_entry(MAP(control));
}

static __always_inline void add_lost(u32 kind, u64 count)
{
	u64 *counter = bpf_map_lookup_elem(MAP(lost), &kind);

	if (counter)
		__sync_fetch_and_add(counter, count);
}

static __always_inline void count_lost(u32 kind)
{
	add_lost(kind, 1);
}

static __always_inline struct scratch *scratch_at(u32 at)
{
	return bpf_map_lookup_elem(MAP(scratch), &at);
}

/* The number of a page that nobody else uses until give_scratch; SCRATCH_PAGES if none is free. */
GLOBAL(u32, take_scratch)(void)
{
	u32 at;

	for (at = 0; at < SCRATCH_PAGES; at++) {
		struct scratch *page = scratch_at(at);

		if (page && !__sync_lock_test_and_set(&page->taken, 1))
			return at;
	}
	count_lost(LOST_UPDATES);
	return at;
}

static __always_inline void give_scratch(u32 at)
{
	struct scratch *page = scratch_at(at);

	if (page)
		__sync_lock_test_and_set(&page->taken, 0);
}

/*
 * Enters a record, in the place of the oldest one. `entered` has the keys by the order in which they were entered, modulo
 * `most`, a power of two; `count` is how many those were.
 * No LRU map: each CPU keeps up to 128 free entries of one for itself (before commit d4adf1c9ee77, "bpf: Adjust free
 * target to avoid global starvation of LRU map"), which on a host with many CPUs drops records that are needed.
 */
static __always_inline void enter(void *records, void *entered, u32 most, u64 *count, u64 key, const void *record)
{
	u32 slot = __sync_fetch_and_add(count, 1) & (most - 1);
	u64 *place = bpf_map_lookup_elem(entered, &slot), before;

	if (!place)
		return;
	before = __sync_lock_test_and_set(place, key);
	if (before)
		bpf_map_delete_elem(records, &before);
	bpf_map_update_elem(records, &key, record, 0);
}

static __always_inline struct readahead *readahead_at(u32 index)
{
	return bpf_map_lookup_elem(MAP(readahead), &index);
}

static __always_inline struct stage *stage_at(u32 index)
{
	return bpf_map_lookup_elem(MAP(stages), &index);
}

static __always_inline struct pipeline *pipeline_at(u32 index)
{
	struct stage *stage = stage_at(index);

	return stage ? &stage->pipeline : NULL;
}

/* A stage as long as its record is not given back: what outlives the stage refers to it so, and not by its index. */
static __always_inline u64 reference_of(const struct stage *stage, u32 index)
{
	return stage->generation << GENERATION_SHIFT | index;
}

/* NULL if the record has been given back since. */
static __always_inline struct stage *stage_referred(u64 reference)
{
	struct stage *stage = stage_at(reference & INDEX_MASK);

	return reference && stage && reference_of(stage, reference & INDEX_MASK) == reference ? stage : NULL;
}

static __always_inline u32 word_outer(u64 word)
{
	return word >> WORD_OUTER_SHIFT & INDEX_MASK;
}

/* Each stage from `index` outwards, at most `limit` of them; `index` goes along, `depth` counts them. */
#define for_enclosing_stages(depth, limit, stage, index)                                \
	for (int depth = 0; depth < (limit) && (index) && (stage = stage_at(index)); \
	     depth++, index = word_outer(stage->word))

#define for_each_enclosing_stage(stage, index) for_enclosing_stages(depth_, MAX_DEPTH, stage, index)

#define END_SLOT_BITS 3	/* STAGE_ENDS is 8 */

/* A pipe end as one number: a reference to its stage, and its slot there, plus 1; 0 = none. */
static __always_inline u64 end_number(u64 reference, u32 slot)
{
	return (reference << END_SLOT_BITS | slot) + 1;
}

static __always_inline u64 end_reference(u64 number)
{
	return (number - 1) >> END_SLOT_BITS;
}

/* Index of its stage. */
static __always_inline u32 end_stage(u64 number)
{
	return end_reference(number) & INDEX_MASK;
}

static __always_inline u32 end_slot(u64 number)
{
	return (number - 1) & (STAGE_ENDS - 1);
}

/* The end at a slot of a stage, which the verifier needs to see bounded. */
static __always_inline struct pipe_end *end_of(struct stage *stage, u32 slot)
{
	return &stage->ends[slot & (STAGE_ENDS - 1)];
}

/* The end with this number, which is not 0; NULL if its stage's record has been given back. */
static __always_inline struct pipe_end *end_at(u64 number)
{
	struct stage *stage = stage_referred(end_reference(number));

	return stage ? end_of(stage, end_slot(number)) : NULL;
}

#endif
