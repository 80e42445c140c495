/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Programs that are a stage although no pipe joins them with another (rule 8 of docs/CONCEPTS.md).
 * Reads the maps `units`, `commands` and `control`; owns none.
 * Called at exec.
 * Costs one look-up by name in a hash, and a second one by unit if any unit is named.
 * Cannot see the units of cgroup v1: it asks for the cgroup of the unified hierarchy.
 */
#ifndef PIPELINED_ALONE_H
#define PIPELINED_ALONE_H

#include "topology.bpf.h"

/* A shell's stage whose pipes, if it has any, lead to nobody that is seen. */
GLOBAL(int, is_shell_alone)(u32 index)
{
	struct stage *stage = stage_at(index);
	struct command command = {};

	/* a subshell is part of a pipeline, even if its partner has not been met yet */
	if (!stage || !stage->execs)
		return 0;
	for (int i = 0; i < STAGE_ENDS; i++)
		if (stage->ends[i].key.pad & END_JOINED)
			return 0;
	__builtin_memcpy(command.name, stage->comm, COMM_LEN);
	return command_flags(&command) & COMMAND_SHELL;
}

#define IS(letter, which) ((u32)(((u32)(letter) ^ (which)) - 1) >> 31)

/*
 * Does a process run in one of the units that config names? In the unit's own cgroup, of
 * which the instance is left out: backup@sda.service is backup@.service.
 */
GLOBAL(int, is_in_named_unit)(u64 p)
{
	u32 scratch = take_scratch(), instance = 0;
	struct scratch *page = scratch_at(scratch);
	u64 to = 0;
	int named;

	if (!page)
		return 0;
	__builtin_memset(page->cgroup, 0, UNIT_LEN);
	bpf_probe_read_kernel_str(page->cgroup, UNIT_LEN,
				  BPF_CORE_READ(TASK(p), cgroups, dfl_cgrp, kn, name));
	__builtin_memset(&page->unit, 0, sizeof(page->unit));
	/* without branches, of which the verifier would try all combinations */
	for (u32 i = 0; i < UNIT_LEN; i++) {
		u8 letter = page->cgroup[i];

		instance &= ~IS(letter, '.');
		OPAQUE(to);
		to &= UNIT_LEN - 1;
		page->unit.name[to] = letter;
		to += 1 - instance;
		instance |= IS(letter, '@');
	}
	named = bpf_map_lookup_elem(MAP(units), &page->unit) != NULL;
	give_scratch(scratch);
	return named;
}

/*
 * The current process just exec'd. By its name, its unit, or because all was asked for, it is a stage
 * although no pipe joins it with another; also within another such, as what xargs runs.
 */
GLOBAL(int, meet_alone)(u64 p, struct task_state *task, u64 now)
{
	u32 zero = 0, properties, index;
	struct control *page = bpf_map_lookup_elem(MAP(control), &zero);
	struct command command = {};
	struct stage *stage;

	if (!task || !page || task->stage == STAGE_DEAD)
		return 0;
	command_of(p, &command);
	properties = command_flags(&command);
	if (!(properties & COMMAND_ALONE) &&
	    (properties & COMMAND_SHELL ||
	     !(page->alone || (page->units && is_in_named_unit(p)))))
		return 0;
	index = own_stage(task, BPF_CORE_READ(TASK(p), tgid));
	if (!index) {
		stage = task->stage ? stage_at(task->stage) : NULL;
		if (stage && !(stage->flags & STAGE_ALONE) && !is_shell_alone(task->stage))
			return 0;
		index = become_stage(p, task, now);
		stage_exec(index, now);
	}
	stage = stage_at(index);
	if (index && stage)
		stage->flags |= STAGE_ALONE;
	return 0;
}

#endif
