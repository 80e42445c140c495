/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The job that a process belongs to: by a variable of its environment, or because a scheduler such as cron started it.
 * Owns the map `variables`; writes task_state.job and stage.job.
 * Called at exec; what a process forks inherits its job.
 * Costs one look-up by the parent's name, and a copy of each string of the environment if any variable is named:
 * docs/BENCHMARKS.md has the figure.
 * Cannot see what a program adds to its own environment, nor strings behind the first MAX_STRINGS.
 */
#ifndef PIPELINED_JOBS_H
#define PIPELINED_JOBS_H

#include "parents.bpf.h"

#define MAX_VARIABLES 8
#define VARIABLE_LEN 32
#define VARIABLE_WORDS (VARIABLE_LEN / 8)

/* `NAME=`, and the bytes of it that count. A free one has none. */
struct variable {
	u64 name[VARIABLE_WORDS];
	u64 mask[VARIABLE_WORDS];
	u64 length;
};

MAP_ARRAY(variables, struct variable, MAX_VARIABLES);	/* of the configuration, the one that wins first */

#define MAX_STRINGS 256	/* of an environment; a long one counts for each STRING_LEN bytes */
#define STRINGS_STEP 16	/* of them, that are read by one call */

static __always_inline struct variable *variable_at(u32 at)
{
	return bpf_map_lookup_elem(MAP(variables), &at);
}

/* Which variable the string on a page sets; MAX_VARIABLES: none that the configuration names. */
static __always_inline u32 variable_set(const struct scratch *page)
{
	u32 at;

	for (at = 0; at < MAX_VARIABLES; at++) {
		struct variable *variable = variable_at(at);
		u64 differs = 0;

		if (!variable || !variable->length)
			return MAX_VARIABLES;
		for (int i = 0; i < VARIABLE_WORDS; i++)
			differs |= (page->string[i] ^ variable->name[i]) & variable->mask[i];
		if (!differs)
			break;
	}
	return at;
}

/* The job of a process whose environment sets variable `which` with the string at `from`. Returns 0 if it is empty. */
GLOBAL(int, take_value)(struct job *job, u64 from, u32 which)
{
	struct variable *variable = variable_at(which);
	char first = 0;

	if (!job || !variable)
		return 0;
	from += variable->length;
	if (bpf_probe_read_user(&first, sizeof(first), (void *)from) || !first)
		return 0;
	if (bpf_probe_read_user_str(job->text, JOB_TEXT, (void *)from) <= 0)
		return 0;
	job->source = JOB_VARIABLE;
	return 1;
}

/*
 * The next string of the environment. Where the look is stands on the page: of what the verifier finds in memory it
 * knows nothing, so it goes through each step once. Returns 0 if that was the last one.
 */
GLOBAL(int, read_string)(struct job *job, u32 scratch)
{
	struct scratch *page = scratch_at(scratch);
	long size;
	u32 which;

	if (!page || page->at >= page->end)
		return 0;
	size = bpf_probe_read_user_str(page->string, STRING_LEN, (void *)page->at);
	if (size < 0)
		return 0;
	size += !size;	/* of an empty string some kernels return 0 (seen on 6.1), not 1 */
	which = page->is_rest ? MAX_VARIABLES : variable_set(page);
	if (which < page->best && take_value(job, page->at, which))
		page->best = which;
	page->is_rest = size == STRING_LEN;
	page->at += size - page->is_rest;	/* the last byte of a part of a string is made a zero */
	return page->best != 0;
}

/* The next STRINGS_STEP of them. In steps: the verifier goes through each turn of a loop. */
GLOBAL(int, read_strings)(struct job *job, u32 scratch)
{
	for (int i = 0; i < STRINGS_STEP; i++)
		if (!read_string(job, scratch))
			return 0;
	return 1;
}

/* The current process's job by its environment, if that sets a named variable; of several the first one named. */
GLOBAL(int, read_variables)(u64 p, struct job *job, u32 scratch)
{
	struct scratch *page = scratch_at(scratch);

	if (!page || !job)
		return 0;
	page->at = BPF_CORE_READ(TASK(p), mm, env_start);
	page->end = BPF_CORE_READ(TASK(p), mm, env_end);
	page->best = MAX_VARIABLES;
	page->is_rest = 0;
	for (int i = 0; i < MAX_STRINGS / STRINGS_STEP; i++)
		if (!read_strings(job, scratch))
			break;
	return page->best < MAX_VARIABLES;
}

/* The job of a process that a scheduler has started: what the shell is to run, or the program's name. */
GLOBAL(int, read_command)(u64 p, struct job *job, u32 scratch)
{
	struct scratch *page = scratch_at(scratch);
	u64 at = BPF_CORE_READ(TASK(p), mm, arg_start), end = BPF_CORE_READ(TASK(p), mm, arg_end);
	struct command command = {};
	u32 option = 0;
	long size;

	if (!page || !job)
		return 0;
	size = bpf_probe_read_user_str(page->string, STRING_LEN, (void *)at);
	at += size;
	if (size > 0 && at < end && !bpf_probe_read_user(&option, 3, (void *)at) &&
	    option == ('-' | 'c' << 8) &&
	    bpf_probe_read_user_str(job->text, JOB_TEXT, (void *)(at + 3)) > 0) {
		job->source = JOB_COMMAND;
		return 1;
	}
	command_of(p, &command);
	__builtin_memcpy(job->text, command.name, COMM_LEN);
	job->source = JOB_PROGRAM;
	return 1;
}

/* The current process has exec'd: it may be another job than what it was forked by. */
GLOBAL(int, begin_job)(u64 p, struct task_state *task)
{
	struct variable *variable = variable_at(0);
	int scheduled;
	u32 scratch;

	if (is_gone(task))
		return 0;
	scheduled = command_flags_of((u64)BPF_CORE_READ(TASK(p), real_parent)) & COMMAND_SCHEDULER;
	if (!scheduled && !(variable && variable->length))
		return 0;
	scratch = take_scratch();
	if (!read_variables(p, &task->job, scratch) && scheduled && task->job.source != JOB_VARIABLE)
		read_command(p, &task->job, scratch);
	give_scratch(scratch);
	return 0;
}

/* The stage of which this process is the root is of its job, if that has one. */
static __always_inline void take_job(const struct task_state *task, u64 p)
{
	u32 index = own_stage(task, p);
	struct stage *stage = index ? stage_at(index) : NULL;

	if (stage && task->job.source)
		stage->job = task->job;
}

static __always_inline void inherit_job(struct task_state *born, const struct task_state *from)
{
	if (from && from->job.source)
		born->job = from->job;
}

#endif
