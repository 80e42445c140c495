/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a stage is called, and whose it is: by the latest exec of its root, or of the child that a wrapper started; by the first script
 * that one of them ran, if any: zcat, which execs gzip, stays zcat.
 * Owns no map; reads `commands`, writes the names, flags and users of `stages`.
 * Called when a stage is made, at exec and at exit, and by the sweep for roots that have not exec'd.
 * Costs one look-up in a hash for each name; nothing at a switch.
 * Cannot see a name that a thread gives itself later: the process's own at its last exec counts.
 */
#ifndef PIPELINED_NAMING_H
#define PIPELINED_NAMING_H

#include "accounting.bpf.h"

/* enum command_flag of a command name, without the version at its end (python3.11). */
GLOBAL(u32, command_flags)(const struct command *name)
{
	struct command command = {};
	u32 *flags;
	u8 keep = 0;

	if (!name)
		return 0;
	for (int i = COMM_LEN - 1; i >= 0; i--) {
		u8 letter = name->name[i];

		if (letter && letter != '.' && (u8)(letter - '0') > 9)
			keep = 0xff;
		command.name[i] = letter & keep;
	}
	flags = bpf_map_lookup_elem(MAP(commands), &command);
	return flags ? *flags : 0;
}

/* The name of a task's process; its threads may have others. */
static __always_inline void command_of(u64 p, struct command *command)
{
	u64 leader = (u64)BPF_CORE_READ(TASK(p), group_leader);

	BPF_CORE_READ_STR_INTO(&command->name, TASK(leader), comm);
}

/*
 * The current process has exec'd a script: of the programs that take its place the first script is what was typed. A
 * wrapper (xvfb-run, fakeroot) gives its name away.
 */
static __always_inline void keep_script_name(struct task_state *task)
{
	struct command command = {};

	if (task->script.name[0])
		return;
	command_of(bpf_get_current_task(), &command);
	if (!(command_flags(&command) & COMMAND_WRAPPER))
		task->script = command;
}

/*
 * The stage takes the name of this process, or of the script that the process ran; `task` is its state, may be NULL.
 * What the program is (the flags) goes by the image that it has now.
 */
static __always_inline void name_stage(struct stage *stage, u64 p, const struct task_state *task)
{
	int is_script = task && task->script.name[0];
	struct command command = {};
	u32 flags, of_command;

	command_of(p, &command);
	of_command = command_flags(&command);
	flags = stage->flags & ~(STAGE_INTERPRETER | STAGE_WRAPPER | STAGE_SHELL);
	if (of_command & COMMAND_INTERPRETER)
		flags |= STAGE_INTERPRETER;
	if (of_command & COMMAND_WRAPPER && !is_script)
		flags |= STAGE_WRAPPER;
	if (of_command & COMMAND_SHELL)
		flags |= STAGE_SHELL;
	stage->flags = flags;
	stage->user = BPF_CORE_READ(TASK(p), real_cred, euid.val) + 1ULL;
	__builtin_memcpy(stage->comm, command.name, COMM_LEN);
	if (is_script)
		__builtin_memcpy(stage->comm, task->script.name, COMM_LEN);
}

/* Renames one stage, verified once: its callers walk over stages. */
GLOBAL(int, rename_one)(u32 index, u64 p, const struct task_state *task)
{
	struct stage *stage = stage_at(index);

	if (stage)
		name_stage(stage, p, task);
	return 0;
}

/*
 * Some programs start themselves again under another name (busybox, by /proc/self/exe or after
 * a mere fork) and set that name when their stage exists already.
 */
GLOBAL(int, name_again)(u64 p, u32 index)
{
	struct stage *stage = stage_at(index);
	int unnamed;

	if (!index || !stage || !is_process(&stage->namer, p))
		return 0;
	unnamed = stage->comm[0] == 'e' && stage->comm[1] == 'x' && stage->comm[2] == 'e' &&
		  !stage->comm[3];
	if (unnamed || BPF_CORE_READ(TASK(p), group_leader, flags) & PF_FORKNOEXEC)
		name_stage(stage, p, NULL);
	return 0;
}

/* A process has become a program: it names the stages that it named before, and those whose wrapper started it. */
GLOBAL(int, take_name)(u64 p, struct task_state *task, u32 index)
{
	u64 parent = (u64)BPF_CORE_READ(TASK(p), real_parent);
	u64 above = (u64)BPF_CORE_READ(TASK(parent), real_parent);
	struct stage *stage;

	if (!task)
		return 0;
	for_each_enclosing_stage(stage, index) {
		if (is_process(&stage->namer, p)) {
			rename_one(index, p, task);
		} else if (stage->flags & STAGE_WRAPPER &&
			   (is_process(&stage->namer, parent) || is_process(&stage->namer, above))) {
			set_process(&stage->namer, p);
			rename_one(index, p, task);
		}
	}
	return 0;
}

/* The process has exec'd: counts that. */
GLOBAL(int, count_exec)(u64 p, u32 index, u64 now)
{
	struct stage *stage;

	for_each_enclosing_stage(stage, index) {
		__sync_fetch_and_add(&stage->execs, 1);
		if (is_process(&stage->root, p))
			stage->exec_ns = now;
	}
	return 0;
}

#endif
