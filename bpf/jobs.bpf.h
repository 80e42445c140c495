/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The job that a process belongs to: by a variable of its environment, or because a scheduler such as cron started it.
 * And the instance of that job, by instances.bpf.h.
 * Owns no map; writes .job and .instance of tasks and stages.
 * Called at exec; what a process forks inherits both.
 * Costs one look-up by the parent's name, and the look through the environment (environment.bpf.h).
 * Cannot see what a program adds to its own environment.
 */
#ifndef PIPELINED_JOBS_H
#define PIPELINED_JOBS_H

#include "instances.bpf.h"
#include "parents.bpf.h"

/* The job of a process whose environment has this value of a variable. Returns 0 if it has none, or it is empty. */
GLOBAL(int, take_value)(struct job *job, u64 from)
{
	char first = 0;

	if (!job || !from)
		return 0;
	if (bpf_probe_read_user(&first, sizeof(first), (void *)from) || !first)
		return 0;
	if (bpf_probe_read_user_str(job->text, JOB_TEXT, (void *)from) <= 0)
		return 0;
	job->source = JOB_VARIABLE;
	return 1;
}

/* The job by the environment that has been read, if that sets a variable; of several the first one named. */
GLOBAL(int, job_of_variables)(struct job *job, u32 scratch)
{
	struct scratch *page = scratch_at(scratch);

	if (!page || !job)
		return 0;
	for (int i = 0; i < MAX_JOB_VARIABLES; i++)
		if (take_value(job, page->jobs_at[i]))
			return 1;
	return 0;
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

/*
 * The current process has exec'd: it may be another job than what it was forked by. It is of the instance that its
 * environment says, or of none.
 */
GLOBAL(int, begin_job)(u64 p, struct task_state *task)
{
	struct command above = {};
	int scheduled, by_variable;
	u32 scratch;

	if (is_gone(task))
		return 0;
	discover_applet(p, task);	/* here, to keep on_switch small */
	command_of((u64)BPF_CORE_READ(TASK(p), real_parent), &above);
	scheduled = command_flags(&above) & COMMAND_SCHEDULER;
	task->instance = 0;
	if (!scheduled && !reads_variables())
		return 0;
	scratch = take_scratch();
	read_variables(p, scratch);
	by_variable = job_of_variables(&task->job, scratch);
	if (!by_variable && scheduled && task->job.source != JOB_VARIABLE)
		read_command(p, &task->job, scratch);
	task->instance = instance_of_variables(scratch);
	give_scratch(scratch);
	return 0;
}

/* The stage of which this process is the root is of its job, if that has one, and of its instance. */
static __always_inline void take_job(const struct task_state *task, u64 p)
{
	u32 index = own_stage(task, p);
	struct stage *stage = index ? stage_at(index) : NULL;

	if (!stage)
		return;
	if (task->job.source)
		stage->job = task->job;
	stage->instance = task->instance;
}

/* What only an exec changes: the job, its instance, and which of many programs in one file it is. */
static __always_inline void inherit_until_exec(struct task_state *born, const struct task_state *from)
{
	if (!from)
		return;
	if (from->job.source)
		born->job = from->job;
	born->applet = from->applet;
	born->instance = from->instance;
}

#endif
