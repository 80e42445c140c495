/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * When a process is looked at for pipes, and what it is a stage of. Called at
 * fork, exec, exit, sleep on a pipe and by the sweep; at a plain switch only for
 * a process that has not exec'd yet and is younger than YOUNG_NS.
 */
#ifndef PIPELINED_MEETING_H
#define PIPELINED_MEETING_H

#include "sleep.h"
#include "topology.h"

static __always_inline int is_root(u32 index, u32 tgid)
{
	struct stage *stage = index ? stage_at(index) : NULL;

	return stage && stage->pid == tgid;
}

static __always_inline void stage_exec(u32 index, u64 now)
{
	struct stage *stage = stage_at(index);

	if (stage) {
		stage->exec_ns = now;
		stage->execs = 1;
	}
}

/* Notes what the parent of a process being forked could write to it; it may close it soon. */
GLOBAL int note_fed_pipes(u64 parent, struct task_state *born)
{
	u32 zero = 0;
	struct scratch *page = bpf_map_lookup_elem(&scratch, &zero);
	struct fifo fifo = {};

	if (!born || !page || !holds_above_stdio(parent, page))
		return 0;
	for (u32 fd = 3; fd < MAX_FDS; fd++) {
		if (!page->files[fd] || !fifo_at(parent, fd, &fifo) || fifo.side != SIDE_WRITE)
			continue;
		born->fed_by_parent[1] = born->fed_by_parent[0];
		born->fed_by_parent[0] = fifo.key.inode;
	}
	return 0;
}

/* What a look at a process starts from and comes to. */
struct meeting {
	u64 address;	/* of the process's task, as a number */
	u64 now;
	u32 stage;	/* in: the innermost stage so far; out: the one found */
	u32 flags;	/* of stages that are made */
	u32 held;	/* the caller must put this stage when done */
	u32 eager;	/* asleep on an empty pipe: a parent that can write to it is going to */
};

/* Could the parent write to this pipe at the fork, and is it the same program still (rule 4)? */
static __always_inline int fed_by(const struct task_state *parent, const struct task_state *task,
				  u64 start, u64 inode)
{
	return parent && task && parent->exec_ns < start &&
	       (task->fed_by_parent[0] == inode || task->fed_by_parent[1] == inode);
}

/*
 * The pipe's other end may be in the hands of the process's own parent: a parent
 * that writes to its child is a stage, one that reads only if it is an
 * interpreter, else an endpoint (rule 4).
 */
static __noinline int meet_parent(struct task_struct *p, struct task_state *task,
				  const struct fifo *fifo, const struct meeting *meeting)
{
	u64 self = meeting->address;
	u64 parent = (u64)BPF_CORE_READ(TASK(self), real_parent, group_leader);
	u32 side = fifo->side == SIDE_READ ? SIDE_WRITE : SIDE_READ;
	struct pipe_key key = fifo->key;
	struct command command = {};
	struct fifo other = *fifo;
	struct pipe *pipe;
	struct task_state *above = state_of(p->real_parent->group_leader);
	u32 found, properties, holds;

	pipe = bpf_map_lookup_elem(&pipes, &key);
	if (!pipe)
		return 0;
	command_of(parent, &command);
	properties = command_flags(&command);
	/*
	 * A shell holds its children's pipes; it uses what is its stdout, or what it sleeps
	 * on. So does a command that the shell became after forking (its arguments tell more).
	 */
	if (side == SIDE_WRITE &&
	    (properties & COMMAND_SHELL || (above && above->exec_ns > p->start_time)))
		holds = holds_as_stdio(parent, &key, side);
	else
		holds = holds_anywhere(parent, &key, side) ||
			(side == SIDE_WRITE && fed_by(above, task, p->start_time, key.inode));
	if (holds) {
		__builtin_memcpy(pipe->endpoint, command.name, COMM_LEN);
		pipe->endpoint_side = side;
		pipe->endpoint_pid = BPF_CORE_READ(TASK(parent), tgid);
	} else if (pipe->endpoint_side != side ||
		   pipe->endpoint_pid != BPF_CORE_READ(TASK(parent), tgid)) {
		return 0;	/* it never held it; one that did may have closed it by now */
	}
	if (side == SIDE_READ && !(properties & COMMAND_INTERPRETER))
		return 0;
	/* to hold a pipe is no proof of using it; a reader asleep on it is one of a writer */
	if (!was_used(fifo, side) && !(meeting->eager && side == SIDE_WRITE) &&
	    !sleeps_on(p->real_parent->group_leader, parent, &key))
		return 0;
	found = stage_of_other(parent, above, STATE_OTHER,
			       meeting->flags, meeting->now);
	if (!found)
		return 0;
	other.side = side;
	register_end(found, &other, meeting->now);
	stage_put(found, meeting->now);
	return 0;
}

/* Has a stage been seen at the other side of this pipe? */
GLOBAL int has_partner(const struct fifo *fifo)
{
	struct pipe_key key;
	struct pipe *pipe;

	if (!fifo)
		return 0;
	key = fifo->key;
	pipe = bpf_map_lookup_elem(&pipes, &key);
	if (!pipe)
		return 0;
	for (int i = 0; i < PIPE_SLOTS; i++)
		if (stage_referred(pipe->stages[fifo->side == SIDE_READ][i]))
			return 1;
	return 0;
}

static __always_inline void found_stage(struct meeting *meeting, u32 index)
{
	if (meeting->held)
		stage_put(meeting->held, meeting->now);
	meeting->held = index;
	meeting->stage = index;
}

struct root {
	u64 address;
	struct task_state *task;	/* NULL: the process itself */
};

/* Rule 5: the root of the stage that holds this pipe end, by climbing from `p`. */
static __always_inline void climb(struct task_struct *p, const struct fifo *fifo,
				  const struct meeting *meeting, struct root *root)
{
	struct task_struct *at = p->group_leader;
	u64 address = meeting->address;

	address = (u64)BPF_CORE_READ(TASK(address), group_leader);
	root->address = address;
	root->task = NULL;
#pragma unroll
	for (int i = 0; i < MAX_CLIMB; i++) {
		u64 above = (u64)BPF_CORE_READ(TASK(address), real_parent, group_leader);
		u64 start = at->start_time;
		struct task_state *task;

		at = at->real_parent->group_leader;
		task = state_of(at);
		if (!task || start < task->exec_ns ||
		    !holds_as_stdio(above, &fifo->key, fifo->side))
			return;
		root->address = address = above;
		root->task = task;
	}
}

/* Stdin or stdout is this FIFO end: registers it with its stage, made when there is none. */
static __noinline int meet_end(struct task_struct *p, struct task_state *task, struct fifo *fifo,
			       struct meeting *meeting)
{
	struct stage *stage, *own;
	struct root root;
	u32 index;

	climb(p, fifo, meeting, &root);
	if (root.task) {
		index = stage_of_other(root.address, root.task, STATE_OTHER, meeting->flags,
				       meeting->now);
		stage = index ? stage_at(index) : NULL;
		if (!stage)
			return 0;
		own = meeting->stage ? stage_at(meeting->stage) : NULL;
		/* a child that its parent feeds stands beside it, and so does its stdout */
		if (own && own->pid == p->tgid && word_outer(own->word) != index) {
			register_end(meeting->stage, fifo, meeting->now);
			stage_put(index, meeting->now);
			return 0;
		}
		register_end(index, fifo, meeting->now);
		/* a descendant belongs to it, unless it is deeper already */
		if (meeting->stage == word_outer(stage->word))
			found_stage(meeting, index);
		else
			stage_put(index, meeting->now);
		return 0;
	}
	if (is_root(meeting->stage, p->tgid)) {
		register_end(meeting->stage, fifo, meeting->now);
		return 0;
	}
	index = create_stage(meeting->address, task, meeting->stage, meeting->flags, meeting->now);
	stage = index ? stage_at(index) : NULL;
	if (!stage)
		return 0;
	found_stage(meeting, index);
	if (task)
		stage->exec_ns = task->exec_ns;
	register_end(index, fifo, meeting->now);
	return 0;
}

/* Looks at a process's stdin and stdout. */
static __noinline int meet(struct task_struct *p, struct task_state *task, struct meeting *meeting)
{
	/* twice: a first end may have freed the process from its parent's stage */
	for (u32 i = 0; i < 4; i++) {
		struct fifo fifo = {};

		if (!fifo_at(meeting->address, i & 1, &fifo) || fifo.both)
			continue;
		if (!known_end(meeting->stage, &fifo.key, fifo.side))
			meet_end(p, task, &fifo, meeting);
		if (i > 1 && !fifo.named && is_root(meeting->stage, p->tgid) && !has_partner(&fifo))
			meet_parent(p, task, &fifo, meeting);
	}
	return 0;
}

/* The current task looks at its own stdin and stdout and enters the stage it finds. */
static __noinline int meet_self(struct task_struct *p, struct task_state *task, u32 eager, u64 now)
{
	struct meeting meeting = {
		.address = bpf_get_current_task(),
		.now = now,
		.stage = task->stage,
		.eager = eager,
	};

	if (task->stage == STAGE_DEAD)
		return 0;
	if (task->clock)
		bring_up_to_date(task, now);
	if (task->born_ns)
		credit_usage(meeting.address, task);
	meet(p, task, &meeting);
	enter_stage(task, meeting.stage, now);
	if (meeting.held)
		stage_put(meeting.held, now);
	return 0;
}

/* The current process exits and has closed its stdin: a pipe there that it used, then. */
static __noinline int meet_feeding_parent(struct task_struct *p, struct task_state *task, u64 now)
{
	struct meeting meeting = {
		.address = bpf_get_current_task(),
		.now = now,
		.stage = task->stage,
		.eager = 1,
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
		meet_parent(p, task, &fifo, &meeting);
	return 0;
}

/* The current task's command line names this descriptor: if it is a FIFO, it will be used. */
GLOBAL int meet_descriptor(u64 p, struct task_state *task, u32 fd, u64 now)
{
	struct fifo fifo = {};
	u32 index;

	if (!task || fd < 3 || !fifo_at(p, fd, &fifo) || fifo.both)
		return 0;
	index = own_stage(task, BPF_CORE_READ(TASK(p), tgid));
	if (!index) {
		index = create_stage(p, task, task->stage, 0, now);
		if (!index)
			return 0;
		enter_stage(task, index, now);
		stage_put(index, now);
		stage_exec(index, now);
	}
	return register_end(index, &fifo, now);
}

/*
 * Process substitution (rule 3): the arguments name descriptors as /dev/fd/N, or as
 * /proc/self/fd/N, that were made before this exec.
 */
GLOBAL int meet_arguments(u64 p, struct task_state *task, u64 now)
{
	u32 zero = 0;
	struct scratch *page = bpf_map_lookup_elem(&scratch, &zero);
	int at = -1;

	if (!task || !page || !holds_above_stdio(p, page) || !read_arguments(p, page))
		return 0;
	for (int i = 0; i < MAX_NAMED; i++) {
		at = next_named(at + 1);
		if (at < 0)
			break;
		meet_descriptor(p, task, named_descriptor(at), now);
	}
	return 0;
}

/*
 * A task falls asleep on a pipe end that none of its stages knows. A process that
 * has not exec'd since its fork, a FIFO with a name and a standard descriptor make
 * a stage. Of anything else the pipe must show a partner that this process is
 * joined with (rule 4); a shell that reads its child's output is an endpoint.
 */
GLOBAL int meet_sleeper(u64 p, struct task_state *task, struct fifo *fifo, u32 fd, u64 now)
{
	u32 tgid = BPF_CORE_READ(TASK(p), tgid);
	struct pipe_key key;
	struct pipe *pipe;
	u32 index;

	if (!task || !fifo || fifo->both || task->stage == STAGE_DEAD)
		return 0;
	index = own_stage(task, tgid);
	if (fd > 1 && !fifo->named && !(BPF_CORE_READ(TASK(p), flags) & PF_FORKNOEXEC)) {
		u32 parent = BPF_CORE_READ(TASK(p), real_parent, tgid), partner = 0;
		u32 child = 0;
		struct command command = {};

		key = fifo->key;
		pipe = bpf_map_lookup_elem(&pipes, &key);
		if (!pipe)
			return 0;
		for (int i = 0; i < PIPE_SLOTS; i++) {
			struct stage *other = stage_referred(
				pipe->stages[fifo->side == SIDE_READ][i]);

			if (other && (other->parent_pid == tgid || other->pid == parent ||
				      other->parent_pid == parent))
				partner = 1;
			if (other && other->parent_pid == tgid)
				child = 1;
		}
		if (!partner)
			return 0;
		command_of(p, &command);
		if (child && !index && fifo->side == SIDE_READ &&
		    !(command_flags(&command) & COMMAND_INTERPRETER)) {
			__builtin_memcpy(pipe->endpoint, command.name, COMM_LEN);
			pipe->endpoint_side = SIDE_READ;
			pipe->endpoint_pid = tgid;
			return 0;
		}
	}
	if (!index) {
		index = create_stage(p, task, task->stage, 0, now);
		if (!index)
			return 0;
		enter_stage(task, index, now);
		stage_put(index, now);
	}
	register_end(index, fifo, now);
	return 0;
}

#endif
