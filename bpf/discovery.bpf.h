/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * When a process is looked at for pipes, and what it is a stage of. Called at
 * fork, exec, exit, sleep on a pipe and by the sweep; at a plain switch only for
 * a process that has not exec'd yet and is younger than YOUNG_NS.
 */
#ifndef PIPELINED_MEETING_H
#define PIPELINED_MEETING_H

#include "sleep.bpf.h"
#include "topology.bpf.h"

static __always_inline int is_root(u32 index, u32 tgid)
{
	struct stage *stage = index ? stage_at(index) : NULL;

	return stage && stage->pid == tgid;
}

static __always_inline void stage_exec(u32 index, u64 now)
{
	struct stage *stage = stage_at(index);

	if (index && stage) {
		stage->exec_ns = now;
		stage->execs = 1;
	}
}

/* Notes what the parent of a process being forked could write to it; it may close it soon. */
GLOBAL(int, note_fed_pipes)(u64 parent, struct task_state *born)
{
	u32 scratch = take_scratch();
	struct scratch *page = scratch_at(scratch);
	struct fifo fifo = {};
	u32 fd = 3;

	if (!born || !page || !holds_above_stdio(parent, page))
		fd = MAX_FDS;
	for (; fd < MAX_FDS; fd++) {
		if (!page->files[fd] || !fifo_at(parent, fd, &fifo) || fifo.side != SIDE_WRITE)
			continue;
		born->fed_by_parent[1] = born->fed_by_parent[0];
		born->fed_by_parent[0] = fifo.key.inode;
	}
	give_scratch(scratch);
	return 0;
}

/* Whether the parent may be taken for the other end of a pipe. */
enum ask {
	ASK_NOT,	/* if it is asleep in a read of the pipe; whoever forks a pipeline holds all pipes at first */
	ASK_USED,	/* if the pipe has been used */
	ASK_EAGERLY,	/* asleep on it again: a parent that can write to it is who wrote */
};

/* What a look at a process starts from and comes to. */
struct meeting {
	u64 address;	/* of the process's task, as a number */
	u64 root;	/* the same of the stage's root, when that is another process */
	u64 now;
	u32 stage;	/* in: the innermost stage so far; out: the one found */
	u32 flags;	/* of stages that are made */
	u32 held;	/* the caller must put this stage when done */
	u32 ask;	/* enum ask */
};

/* Could the parent write to this pipe at the fork, and is it the same program still (rule 4)? */
static __always_inline int fed_by(const struct task_state *parent, const struct task_state *task,
				  u64 start, u64 inode)
{
	return parent && task && parent->exec_ns < start &&
	       (task->fed_by_parent[0] == inode || task->fed_by_parent[1] == inode);
}

/* Has a stage been seen at the other side of this pipe? */
GLOBAL(int, has_partner)(const struct fifo *fifo)
{
	struct pipe_key key;
	struct pipe *pipe;

	if (!fifo)
		return 0;
	key = fifo->key;
	pipe = bpf_map_lookup_elem(MAP(pipes), &key);
	if (!pipe)
		return 0;
	for (int i = 0; i < PIPE_SLOTS; i++)
		if (stage_referred(pipe->stages[fifo->side == SIDE_READ][i]))
			return 1;
	return 0;
}

/*
 * The pipe's other end may be in the hands of the process's own parent: a parent
 * that writes to its child is a stage, one that reads only if it is an
 * interpreter, else an endpoint (rule 4). Notes an endpoint, and returns whether the
 * parent is a stage. `above` is the parent's state, `reading` what it is asleep in.
 */
GLOBAL(int, parent_is_stage)(struct task_state *task, struct fifo *fifo,
			   const struct meeting *meeting, struct task_state *above,
			   u32 reading)
{
	u32 side, properties, pid;
	struct command command = {};
	struct pipe_key key;
	struct pipe *pipe;
	u64 self, parent, start;
	int holds, alone, asleep;

	if (!task || !fifo || !meeting || !above)
		return 0;
	side = fifo->side == SIDE_READ ? SIDE_WRITE : SIDE_READ;
	key = fifo->key;
	pipe = bpf_map_lookup_elem(MAP(pipes), &key);
	if (!pipe)
		return 0;
	self = meeting->address;
	start = BPF_CORE_READ(TASK(self), start_time);
	parent = (u64)BPF_CORE_READ(TASK(self), real_parent, group_leader);
	asleep = reads_pipe(parent, reading, &key);
	if (meeting->ask == ASK_NOT && !asleep)
		return 0;
	pid = BPF_CORE_READ(TASK(parent), tgid);
	command_of(parent, &command);
	properties = command_flags(&command);
	/*
	 * A shell holds its children's pipes; it uses what is its stdout, or what it sleeps
	 * on. So does a command that the shell became after forking (its arguments tell more).
	 */
	alone = holds = holds_as_stdio(parent, &key, side);
	if (!holds && !(side == SIDE_WRITE &&
			(properties & COMMAND_SHELL || above->exec_ns > start))) {
		holds = holds_anywhere(parent, &key, side);
		alone = holds == 1;
		if (!holds) {
			holds = side == SIDE_WRITE && fed_by(above, task, start, key.inode);
			alone = !has_users(fifo, side);
		}
	}
	if (holds) {
		__builtin_memcpy(pipe->endpoint, command.name, COMM_LEN);
		pipe->endpoint_side = side;
		pipe->endpoint_pid = pid;
	} else if (pipe->endpoint_side != side || pipe->endpoint_pid != pid) {
		return 0;	/* it never held it; one that did may have closed it by now */
	}
	if (side == SIDE_READ && !(properties & COMMAND_INTERPRETER))
		return 0;
	/*
	 * To hold a pipe is no proof of using it: that may have been another child, which has
	 * not been met yet. A reader asleep on it proves a writer.
	 */
	if (!(alone && was_used(fifo, side)) && !(meeting->ask == ASK_EAGERLY && side == SIDE_WRITE) &&
	    !asleep)
		return 0;
	return 1;
}

static __always_inline void ask_parent(struct task_struct *p, struct task_state *task,
				       struct fifo *fifo, const struct meeting *meeting)
{
	struct task_struct *parent = p->real_parent->group_leader;
	u64 address = meeting->address;
	struct task_state *above;
	u32 found;

	/* it has its new name, but not the rest: on_exec comes later */
	if (BPF_CORE_READ_BITFIELD(parent, in_execve))
		return;
	above = state_of(parent);
	if (!parent_is_stage(task, fifo, meeting, above, reads_asleep(parent)))
		return;
	address = (u64)BPF_CORE_READ(TASK(address), real_parent, group_leader);
	found = stage_of_other(address, above, STATE_OTHER, meeting->flags, meeting->now);
	if (!found)
		return;
	fifo->side = fifo->side == SIDE_READ ? SIDE_WRITE : SIDE_READ;
	register_end(found, fifo, meeting->now);
	stage_put(found, meeting->now);
}

static __always_inline void found_stage(struct meeting *meeting, u32 index)
{
	if (meeting->held)
		stage_put(meeting->held, meeting->now);
	meeting->held = index;
	meeting->stage = index;
}

/* Rule 5: the root of the stage that holds this pipe end, by climbing; NULL: the process itself. */
static __always_inline struct task_state *climb(struct task_struct *p, const struct fifo *fifo,
						struct meeting *meeting)
{
	struct task_struct *at = p->group_leader;
	struct task_state *root = NULL;
	u64 address = meeting->address;

	address = (u64)BPF_CORE_READ(TASK(address), group_leader);
#pragma unroll
	for (int i = 0; i < MAX_CLIMB; i++) {
		struct task_state *above;
		u64 start = at->start_time;

		address = (u64)BPF_CORE_READ(TASK(address), real_parent, group_leader);
		if (!holds_as_stdio(address, &fifo->key, fifo->side))
			break;
		at = at->real_parent->group_leader;
		above = state_of(at);
		if (!above || start < above->exec_ns)
			break;
		meeting->root = address;
		root = above;
	}
	return root;
}

/* Registers a FIFO that is stdin or stdout with its stage, made when there is none. */
static __always_inline int meet_end(struct task_state *task, struct fifo *fifo,
				    struct meeting *meeting, struct task_state *root)
{
	struct stage *stage;
	u32 index, tgid;
	u64 self;

	if (!task || !fifo || !meeting)
		return 0;
	self = meeting->address;
	tgid = BPF_CORE_READ(TASK(self), tgid);
	stage = meeting->stage ? stage_at(meeting->stage) : NULL;
	if (root) {
		index = stage_of_other(meeting->root, root, STATE_OTHER, meeting->flags,
				       meeting->now);
		if (!index)
			return 0;
		/* a child that its parent feeds stands beside it, and so does its stdout */
		if (stage && stage->pid == tgid && word_outer(stage->word) != index) {
			register_end(meeting->stage, fifo, meeting->now);
			stage_put(index, meeting->now);
			return 0;
		}
		if (stage && stage->pid == tgid)
			borrow_end(meeting->stage, fifo);
		register_end(index, fifo, meeting->now);
		stage = stage_at(index);
		/* a descendant belongs to it, unless it is deeper already */
		if (stage && meeting->stage == word_outer(stage->word))
			found_stage(meeting, index);
		else
			stage_put(index, meeting->now);
		return 0;
	}
	if (stage && stage->pid == tgid) {
		register_end(meeting->stage, fifo, meeting->now);
		return 0;
	}
	index = create_stage(self, task, meeting->stage, meeting->flags, meeting->now);
	stage = index ? stage_at(index) : NULL;
	if (!stage)
		return 0;
	found_stage(meeting, index);
	stage->exec_ns = task->exec_ns;
	register_end(index, fifo, meeting->now);
	return 0;
}

/* Looks at a process's stdin and stdout. */
static __always_inline int meet(struct task_struct *p, struct task_state *task, struct meeting *meeting)
{
	for (u32 fd = 0; fd < 2; fd++) {
		struct fifo fifo = {};
		u32 known;

		if (!fifo_at(meeting->address, fd, &fifo) || fifo.both)
			continue;
		known = known_end(meeting->stage, &fifo.key, fifo.side);
		if (!known)
			meet_end(task, &fifo, meeting, climb(p, &fifo, meeting));
		else if ((known - 1) >> 3 != meeting->stage && is_root(meeting->stage, p->tgid))
			borrow_end(meeting->stage, &fifo);
	}
	return 0;
}

/* The same of the current task: verified once, where it is called twice. */
GLOBAL(int, meet_current)(struct task_state *task, struct meeting *meeting)
{
	if (!task || !meeting)
		return 0;
	return meet(bpf_get_current_task_btf(), task, meeting);
}

/* Asks for ends of its own at which nobody else was seen whether the parent is there. */
LOCAL(int, meet_parents)(struct task_struct *p, struct task_state *task,
				   struct meeting *meeting)
{
	int asked = 0;

	for (u32 fd = 0; fd < 2; fd++) {
		struct fifo fifo = {};

		if (is_root(meeting->stage, p->tgid) && fifo_at(meeting->address, fd, &fifo) &&
		    !fifo.both && !fifo.named && !has_partner(&fifo)) {
			ask_parent(p, task, &fifo, meeting);
			asked = 1;
		}
	}
	return asked;
}

/* The current task looks at its own stdin and stdout and enters the stage it finds. */
GLOBAL(int, meet_self)(struct task_state *task, u32 ask, u64 now)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct meeting meeting = {
		.address = bpf_get_current_task(),
		.now = now,
		.ask = ask,
	};

	if (!task || task->stage == STAGE_DEAD || !claim(task))
		return 0;
	take_up_pending(task, now);
	meeting.stage = task->stage;
	if (task->clock)
		bring_up_to_date(task, 1, now);
	if (task->born_ns)
		credit_usage(meeting.address, task);
	meet_current(task, &meeting);
	/* an end may have freed the process from its parent's stage */
	if (meet_parents(p, task, &meeting))
		meet_current(task, &meeting);
	enter_stage(task, meeting.stage, now);
	release(task);
	if (meeting.held)
		stage_put(meeting.held, now);
	return 0;
}

/* The current process exits and has closed its stdin: a pipe there that it used, then. */
LOCAL(int, meet_feeding_parent)(struct task_struct *p, struct task_state *task, u64 now)
{
	struct meeting meeting = {
		.address = bpf_get_current_task(),
		.now = now,
		.stage = task->stage,
		.ask = ASK_EAGERLY,
	};
	struct stage *stage = stage_at(task->stage);
	struct fifo fifo = {};
	struct pipe_end *end;

	if (!stage || !is_root(task->stage, p->tgid))
		return 0;
	end = &stage->ends[0];	/* stdin is looked at first */
	if (end->key.pad != SIDE_READ + 1 || fifo_at(meeting.address, 0, &fifo))
		return 0;
	fifo.key = end->key;
	fifo.key.pad = 0;
	fifo.side = SIDE_READ;
	fifo.pipe = NULL;
	if (!has_partner(&fifo))
		ask_parent(p, task, &fifo, &meeting);
	return 0;
}

/* The current process becomes the root of a new stage; 0 when there is no room. */
static __always_inline u32 become_stage(u64 p, struct task_state *task, u64 now)
{
	u32 index;

	if (!claim(task))
		return 0;
	take_up_pending(task, now);
	index = own_stage(task, BPF_CORE_READ(TASK(p), tgid));
	if (!index) {
		index = create_stage(p, task, task->stage, 0, now);
		if (index) {
			enter_stage(task, index, now);
			stage_put(index, now);
		}
	}
	release(task);
	return index;
}

/* The current task's command line names this descriptor: if it is a FIFO, it will be used. */
GLOBAL(int, meet_descriptor)(u64 p, struct task_state *task, u32 fd, u64 now)
{
	struct fifo fifo = {};
	u32 index;

	if (!task || fd < 3 || !fifo_at(p, fd, &fifo) || fifo.both)
		return 0;
	index = own_stage(task, BPF_CORE_READ(TASK(p), tgid));
	if (!index) {
		index = become_stage(p, task, now);
		stage_exec(index, now);
	}
	return register_end(index, &fifo, now);
}

/*
 * Process substitution (rule 3): the arguments name descriptors as /dev/fd/N, or as
 * /proc/self/fd/N, that were made before this exec.
 */
GLOBAL(int, meet_arguments)(u64 p, struct task_state *task, u64 now)
{
	u32 scratch = take_scratch();
	struct scratch *page = scratch_at(scratch);
	int at = -1, named = 0;

	if (task && page && holds_above_stdio(p, page) && read_arguments(p, page))
		named = MAX_NAMED;
	for (int i = 0; i < named; i++) {
		at = next_named(scratch, at + 1);
		if (at < 0)
			break;
		meet_descriptor(p, task, named_descriptor(scratch, at), now);
	}
	give_scratch(scratch);
	return 0;
}

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

#define KIN 1	/* siblings, or one is the other's parent */
#define CHILD 2

/* What a stage at the other end of a pipe is to a process and its parent. */
GLOBAL(u32, relation)(u32 reference, u32 tgid, u32 parent)
{
	struct stage *other = stage_referred(reference);

	if (!other)
		return 0;
	if (other->parent_pid == tgid)
		return KIN | CHILD;
	return other->pid == parent || other->parent_pid == parent ? KIN : 0;
}

/*
 * A task falls asleep on a pipe end that none of its stages knows. A process that
 * has not exec'd since its fork, a FIFO with a name and a standard descriptor make
 * a stage. Of anything else the pipe must show a partner that this process is
 * joined with (rule 4); a shell that reads its child's output is an endpoint.
 */
GLOBAL(int, meet_sleeper)(u64 p, struct task_state *task, struct fifo *fifo, u32 fd, u64 now)
{
	u32 tgid = BPF_CORE_READ(TASK(p), tgid);
	struct pipe_key key;
	struct pipe *pipe;
	u32 index;

	if (!task || !fifo || fifo->both || task->stage == STAGE_DEAD)
		return 0;
	index = own_stage(task, tgid);
	if (fd > 1 && !fifo->named &&
	    !(BPF_CORE_READ(TASK(p), group_leader, flags) & PF_FORKNOEXEC)) {
		u32 parent = BPF_CORE_READ(TASK(p), real_parent, tgid), partner = 0;
		struct command command = {};

		key = fifo->key;
		pipe = bpf_map_lookup_elem(MAP(pipes), &key);
		if (!pipe)
			return 0;
		for (int i = 0; i < PIPE_SLOTS; i++)
			partner |= relation(pipe->stages[fifo->side == SIDE_READ][i], tgid, parent);
		if (!partner)
			return 0;
		command_of(p, &command);
		if (partner & CHILD && !index && fifo->side == SIDE_READ &&
		    !(command_flags(&command) & COMMAND_INTERPRETER)) {
			__builtin_memcpy(pipe->endpoint, command.name, COMM_LEN);
			pipe->endpoint_side = SIDE_READ;
			pipe->endpoint_pid = tgid;
			return 0;
		}
	}
	if (!index)
		index = become_stage(p, task, now);
	return register_end(index, fifo, now);
}

#endif
