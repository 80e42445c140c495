/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Programs that are a stage although no pipe joins them with another (rule 8 of docs/CONCEPTS.md).
 * Owns no map; reads `units`, `commands`, `control` and task_state.starter.
 * Called at exec.
 * Costs one look-up by name in a hash, and a second one by unit if any unit is named.
 * Cannot see the units of cgroup v1: it asks for the cgroup of the unified hierarchy.
 */
#ifndef PIPELINED_ALONE_H
#define PIPELINED_ALONE_H

#include "topology.bpf.h"

/* Is this the stage of a shell whose pipes, if it has any, lead to no other stage? */
GLOBAL(int, is_shell_alone)(u32 index)
{
	struct stage *stage = stage_at(index);

	/* a subshell is part of a pipeline, even if its partner has not been discovered yet */
	return stage && stage->execs && !has_edges(stage) && stage->flags & STAGE_SHELL;
}

/* 1 if both are the same letter, else 0, without a branch */
#define EQUALS(letter, which) ((u32)(((u32)(letter) ^ (which)) - 1) >> 31)

/*
 * Does a process run in one of the units that the configuration names? It has to be in the
 * unit's own cgroup. The instance is left out: backup@sda.service is backup@.service.
 */
GLOBAL(int, is_in_named_unit)(u64 p)
{
	u32 scratch = take_scratch(), in_instance = 0, has_instance = 0;
	struct scratch *page = scratch_at(scratch);
	u64 to = 0, begin = 0;
	int named;

	if (!page)
		return 0;
	__builtin_memset(page->cgroup, 0, UNIT_LEN);
	bpf_probe_read_kernel_str(page->cgroup, UNIT_LEN,
				  BPF_CORE_READ(TASK(p), cgroups, dfl_cgrp, kn, name));
	__builtin_memset(&page->unit, 0, sizeof(page->unit));
	/* no branches: the verifier would try all their combinations */
	for (u32 i = 0; i < UNIT_LEN; i++) {
		u8 letter = page->cgroup[i];
		u32 dot = EQUALS(letter, '.') & has_instance, at = EQUALS(letter, '@') & (has_instance ^ 1);

		/* the last dot ends the instance: what was kept behind an earlier one is written over */
		to ^= (to ^ begin) & -(u64)dot;
		in_instance &= ~dot;
		OPAQUE(to);
		to &= UNIT_LEN - 1;
		page->unit.name[to] = letter;
		to += 1 - in_instance;
		begin ^= (begin ^ to) & -(u64)at;
		has_instance |= at;
		in_instance |= at;
	}
	named = bpf_map_lookup_elem(MAP(units), &page->unit) != NULL;
	give_scratch(scratch);
	return named;
}

/* Is a process whose name has these flags a stage by itself: by its name, its starter, its unit, or because all are? */
static __always_inline int is_alone(u64 p, u32 flags, const struct task_state *task)
{
	struct control *control = control_page();

	if (flags & COMMAND_ALONE)
		return 1;
	if (!control || flags & COMMAND_SHELL)
		return 0;
	return control->alone || task->starter.pid || (control->units && is_in_named_unit(p));
}

/* Is the stage around a process the starter's own, or one that is around that? */
static __always_inline int is_outside(const struct stage *stage, const struct task_state *task)
{
	return task->starter.pid && !same_process(&stage->starter, &task->starter);
}

/*
 * The current process has just exec'd. It may be a stage although no pipe joins it with another,
 * also inside another such stage, like the commands that xargs runs, and inside the pipeline that its starter is in.
 */
GLOBAL(int, discover_alone)(u64 p, struct task_state *task, u64 now)
{
	struct command command = {};
	struct stage *stage;
	u32 index;

	if (is_gone(task))
		return 0;
	program_of(p, task, &command);
	if (!is_alone(p, command_flags(&command), task))
		return 0;
	index = own_stage(task, p);
	if (!index) {
		stage = task->stage ? stage_at(task->stage) : NULL;
		if (stage && !(stage->flags & STAGE_ALONE) && !is_outside(stage, task) &&
		    !is_shell_alone(task->stage))
			return 0;
		index = become_stage(p, task, 0, now);
		stage_exec(index, now);
	}
	stage = stage_at(index);
	if (index && stage)
		__sync_fetch_and_or(&stage->flags, STAGE_ALONE);
	return 0;
}

#endif
