/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a stage is called, and whose it is: by the latest exec of its root, or of the child that a wrapper started; by the first script
 * that one of them ran, if any: zcat, which execs gzip, stays zcat. `busybox sort` is sort.
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
 * Is the file that a process runs an interpreter, or a shell? Of a script with the first line #!/usr/bin/python3 nothing
 * else says so: the kernel calls the process after the script (begin_new_exec in fs/exec.c). It calls what a link names
 * after the link; a file with many programs in it says nothing of the one that runs. 0 of a process that has ended.
 * `room` is empty, and is left empty: the caller's, because the stack is short here.
 */
static __always_inline u32 file_flags(u64 p, struct command *room)
{
	struct dentry *file = BPF_CORE_READ(TASK(p), mm, exe_file, f_path.dentry);
	u32 flags;

	bpf_probe_read_kernel_str(&room->name, COMM_LEN, BPF_CORE_READ(file, d_name.name));
	flags = command_flags(room);
	__builtin_memset(room, 0, sizeof(*room));
	if (flags & COMMAND_APPLETS)
		return 0;
	return flags & (COMMAND_INTERPRETER | COMMAND_SHELL | COMMAND_READS_ANYWHERE);
}

/* What a process is, by its name and by its file: pipelined and GNU parallel are scripts too. */
static __always_inline u32 flags_of_both(u32 by_name, u32 by_file)
{
	return by_name & COMMAND_BY_NAME ? by_name : by_name | by_file;
}

GLOBAL(u32, process_flags)(u64 p)
{
	struct command command = {};
	u32 by_file = file_flags(p, &command);

	command_of(p, &command);
	return flags_of_both(command_flags(&command), by_file);
}

/* The same, but a program that was started as one of many in a file goes by its own name. `task` may be NULL. */
static __always_inline void program_of(u64 p, const struct task_state *task, struct command *command)
{
	command_of(p, command);
	if (task && task->applet.name[0] && command_flags(command) & COMMAND_APPLETS)
		*command = task->applet;
}

/* "--coreutils-prog=", little endian: GNU coreutils has it before the program's name */
#define DASH_DASH_COREUT 0x747565726f632d2dULL
#define ILS_DASH_PROG 0x676f72702d736c69ULL
#define PREFIX_LEN 17

/* The kernel's name of what was started as /proc/self/exe, until it names itself. */
static __always_inline int is_unnamed(const char *comm)
{
	return comm[0] == 'e' && comm[1] == 'x' && comm[2] == 'e' && !comm[3];
}

/* Is this word, which ends with a zero, the name of a program? */
static __always_inline int is_program_name(const struct command *word)
{
	if (word->name[0] == '-')
		return 0;
	for (int i = 0; i < COMM_LEN && word->name[i]; i++)
		if (word->name[i] <= ' ' || word->name[i] > '~' || word->name[i] == '/')
			return 0;
	return 1;
}

/*
 * The current process has exec'd: which program of several in one file (busybox, coreutils) it runs is its first
 * argument. Such a program may have been started by its own name, through a link: then the kernel knows that.
 * `unnamed`: only if it calls itself by the name of such a file (busybox's own timeout and env start /proc/self/exe).
 */
GLOBAL(int, take_applet)(u64 p, struct task_state *task, u32 scratch, u32 unnamed)
{
	struct scratch *page = scratch_at(scratch);
	u64 begin[3] = {};
	u64 at = BPF_CORE_READ(TASK(p), mm, arg_start), end = BPF_CORE_READ(TASK(p), mm, arg_end);
	struct command word = {}, itself = {};
	long size;

	if (!task || !page)
		return 0;
	bpf_probe_read_user_str(&itself.name, COMM_LEN, (void *)at);
	if (unnamed && !(command_flags(&itself) & COMMAND_APPLETS))
		return 0;
	size = bpf_probe_read_user_str(page->string, STRING_LEN, (void *)at);
	at += size;
	if (size <= 0 || at >= end)
		return 0;
	bpf_probe_read_user_str(begin, sizeof(begin), (void *)at);
	if (begin[0] == DASH_DASH_COREUT && begin[1] == ILS_DASH_PROG && (u8)begin[2] == '=')
		at += PREFIX_LEN;
	if (bpf_probe_read_user_str(&word.name, COMM_LEN, (void *)at) > 1 && is_program_name(&word))
		task->applet = word;
	return 1;
}

/* The current process has exec'd: is it one of many in a file, and which? Verified once, for its many ways out. */
GLOBAL(int, discover_applet)(u64 p, struct task_state *task)
{
	struct command command = {};
	u32 scratch;

	if (!task)
		return 0;
	task->applet.name[0] = 0;
	command_of(p, &command);
	if (!(command_flags(&command) & COMMAND_APPLETS))
		return 0;
	scratch = take_scratch();
	take_applet(p, task, scratch, is_unnamed(command.name));
	give_scratch(scratch);
	return 0;
}

/*
 * The current process has exec'd a script: of the programs that take its place the first script is what was typed. A
 * wrapper that becomes the command gives its name away.
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
	u32 of_command, by_file = file_flags(p, &command);
	u64 flags = 0, others = ~STAGE_WRAPPER;

	program_of(p, task, &command);
	of_command = flags_of_both(command_flags(&command), by_file);
	if (BPF_CORE_READ(TASK(p), mm))
		others &= ~(STAGE_INTERPRETER | STAGE_SHELL);
	if (of_command & COMMAND_INTERPRETER)
		flags |= STAGE_INTERPRETER;
	if (of_command & COMMAND_WRAPPER && !is_script)
		flags |= STAGE_WRAPPER;
	if (of_command & COMMAND_SHELL)
		flags |= STAGE_SHELL;
	__sync_fetch_and_or(&stage->flags, flags);
	__sync_fetch_and_and(&stage->flags, flags | others);
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
GLOBAL(int, name_again)(u64 p, const struct task_state *task, u32 index)
{
	struct stage *stage = stage_at(index);

	if (!index || !stage || !is_process(&stage->namer, p))
		return 0;
	if (is_unnamed(stage->comm) || BPF_CORE_READ(TASK(p), group_leader, flags) & PF_FORKNOEXEC)
		name_stage(stage, p, task);
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
