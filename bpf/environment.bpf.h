/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which of the variables that the configuration names the environment of a program sets, and where their values are.
 * Owns the maps `variables` and `variable_chains`.
 * Called at exec, once for jobs.bpf.h and instances.bpf.h together.
 * Costs a copy of each string of the environment if any variable is named: docs/BENCHMARKS.md has the figure. Most
 * strings that are none of these end at one look-up by their first four bytes.
 * Cannot see what a program adds to its own environment, nor strings behind the first MAX_STRINGS.
 */
#ifndef PIPELINED_ENVIRONMENT_H
#define PIPELINED_ENVIRONMENT_H

#include "maps.bpf.h"

#define VARIABLE_LEN 32
#define VARIABLE_WORDS (VARIABLE_LEN / 8)

/* `NAME=`, and the bytes of it that count. A free one has none. */
struct variable {
	u64 name[VARIABLE_WORDS];
	u64 mask[VARIABLE_WORDS];
	u32 length;
	u32 next;	/* the next one of its chain, plus 1; 0 = none */
	u32 job;	/* its place among those that name jobs, plus 1; 0 = it is none of them */
	u32 instance;	/* the same, among those that identify instances */
};

MAP_ARRAY(variables, struct variable, MAX_VARIABLES);	/* of the configuration */

/* Variables by a hash of their first four bytes: the first one, plus 1. Those with fewer bytes end each chain. */
#define CHAIN_BITS 8
#define CHAIN_FACTOR 0x9e3779b1U
#define VARIABLE_CHAINS (1 << CHAIN_BITS)

MAP_ARRAY(variable_chains, u32, VARIABLE_CHAINS);

#define MAX_STRINGS 256	/* of an environment; a long one counts for each STRING_LEN bytes */
#define STRINGS_STEP 16	/* of them, that are read by one call */

static __always_inline struct variable *variable_at(u32 at)
{
	return bpf_map_lookup_elem(MAP(variables), &at);
}

/* Is any variable named? */
static __always_inline int reads_variables(void)
{
	struct variable *first = variable_at(0);

	return first && first->length;
}

static __always_inline int is_set(const struct variable *variable, const struct scratch *page)
{
	u64 differs = 0;

	for (int i = 0; i < VARIABLE_WORDS; i++)
		differs |= (page->string[i] ^ variable->name[i]) & variable->mask[i];
	return !differs;
}

/* Keeps where the value is. Of a variable that is set twice the first one counts, as for getenv. */
static __always_inline void keep_place(struct scratch *page, const struct variable *variable)
{
	u64 job = variable->job - 1, instance = variable->instance - 1;
	u64 from = page->at + variable->length;

	OPAQUE(job);
	OPAQUE(instance);
	if (job < MAX_JOB_VARIABLES && !page->jobs_at[job])
		page->jobs_at[job] = from;
	if (instance < MAX_INSTANCE_VARIABLES && !page->instances_at[instance])
		page->instances_at[instance] = from;
}

/* The string on a page may set a variable of the chain that begins with `at`. */
GLOBAL(int, search_chain)(u32 scratch, u32 at)
{
	struct scratch *page = scratch_at(scratch);

	if (!page)
		return 0;
	for (int i = 0; i < MAX_VARIABLES && at; i++) {
		struct variable *variable = variable_at(at - 1);

		if (!variable)
			return 0;
		if (is_set(variable, page)) {
			keep_place(page, variable);
			return 0;
		}
		at = variable->next;
	}
	return 0;
}

/*
 * The next string of the environment. Where the look is stands on the page: of what the verifier finds in memory it
 * knows nothing, so it goes through each step once. Returns 0 if that was the last one.
 */
GLOBAL(int, read_string)(u32 scratch)
{
	struct scratch *page = scratch_at(scratch);
	u32 chain, *first;
	long size;

	if (!page || page->at >= page->end)
		return 0;
	size = bpf_probe_read_user_str(page->string, STRING_LEN, (void *)page->at);
	if (size < 0)
		return 0;
	size += !size;	/* of an empty string some kernels return 0 (seen on 6.1), not 1 */
	chain = (u32)page->string[0] * CHAIN_FACTOR >> (32 - CHAIN_BITS);
	first = bpf_map_lookup_elem(MAP(variable_chains), &chain);
	if (first && *first && !page->is_rest)
		search_chain(scratch, *first);
	page->is_rest = size == STRING_LEN;
	page->at += size - page->is_rest;	/* the last byte of a part of a string is made a zero */
	return 1;
}

/* The next STRINGS_STEP of them. In steps: the verifier goes through each turn of a loop. */
GLOBAL(int, read_strings)(u32 scratch)
{
	for (int i = 0; i < STRINGS_STEP; i++)
		if (!read_string(scratch))
			return 0;
	return 1;
}

/* Where the values of the variables are that the current process's environment sets. */
GLOBAL(int, read_variables)(u64 p, u32 scratch)
{
	struct scratch *page = scratch_at(scratch);

	if (!page)
		return 0;
	__builtin_memset(page->jobs_at, 0, sizeof(page->jobs_at));
	__builtin_memset(page->instances_at, 0, sizeof(page->instances_at));
	if (!reads_variables())
		return 0;
	page->at = BPF_CORE_READ(TASK(p), mm, env_start);
	page->end = BPF_CORE_READ(TASK(p), mm, env_end);
	page->is_rest = 0;
	for (int i = 0; i < MAX_STRINGS / STRINGS_STEP; i++)
		if (!read_strings(scratch))
			break;
	return 0;
}

#endif
