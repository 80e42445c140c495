/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Rule 4 (docs/CONCEPTS.md): is the parent of a process at the other end of its pipe, and as what?
 * Owns no map; writes task_state.fed_by_parent and the endpoints of `pipes`.
 * Called at fork, and when the pipe of a process that is looked at shows no stage at its other end.
 * Costs up to MAX_FDS guarded reads of the parent's descriptors; nothing at a switch that repeats a known sleep.
 * Cannot see a parent that closed its end before the child was looked at, unless it could write to it at the fork.
 */
#ifndef PIPELINED_PARENTS_H
#define PIPELINED_PARENTS_H

#include "sleep.bpf.h"
#include "topology.bpf.h"

/*
 * Remembers which pipes the parent of a process being forked can write to; it may close them soon. `task`, the parent's
 * state, may be NULL.
 */
GLOBAL(int, note_fed_pipes)(u64 parent, struct task_state *task, struct task_state *born)
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
		for (int i = FED_PIPES - 1; i > 0; i--)
			born->fed_by_parent[i] = born->fed_by_parent[i - 1];
		born->fed_by_parent[0] = fifo.key;
	}
	give_scratch(scratch);
	if (task && born)
		__builtin_memcpy(task->made_for_child, born->fed_by_parent, sizeof(task->made_for_child));
	return 0;
}

static __always_inline int is_among(const struct pipe_key *pipes, const struct pipe_key *key)
{
	for (int i = 0; i < FED_PIPES; i++)
		if (same_pipe(&pipes[i], key))
			return 1;
	return 0;
}

/* Has the process made this pipe for a child that it has forked since, as a shell does for `$(…)`? */
static __always_inline int is_made_for_child(const struct task_state *task, const struct pipe_key *key)
{
	return is_among(task->made_for_child, key);
}

/* What proves that a parent uses the other end of a pipe. Each value includes those before it. */
enum ask {
	ASK_NOBODY,	/* the other end is known, or has been looked for often enough */
	ASK_READER,	/* it is asleep in a read of the pipe: a shell that forks a pipeline holds all pipes at first */
	ASK_USED,	/* or the pipe has been used */
	ASK_EAGERLY,	/* or it can write to the pipe: the child has slept on it before, and somebody wrote */
};

/* What a look at a process starts from and comes to. */
struct discovery {
	u64 address;	/* of the process's task, as a number */
	u64 root;	/* of the task that is the stage's root, if that is another process */
	u64 now;
	u32 stage;	/* in: the innermost stage so far; out: the one found */
	u32 flags;	/* of stages that are made */
	u32 held;	/* the caller must put this stage when done */
	u32 ask;	/* enum ask */
	u32 reading;	/* as reads_asleep, of the process itself */
};

/* Could the parent write to this pipe at the fork? */
static __always_inline int was_fed_by_parent(const struct task_state *task, const struct pipe_key *key)
{
	return is_among(task->fed_by_parent, key);
}

/* Could the parent of `child`, and has it not exec'd since then (rule 4)? */
GLOBAL(int, fed_by)(const struct task_state *parent, const struct task_state *task, u64 child,
		    const struct pipe_key *key)
{
	return parent && task && key && parent->exec_ns < BPF_CORE_READ(TASK(child), start_time) &&
	       was_fed_by_parent(task, key);
}

/* Has a stage been seen at the other side of this pipe, whose root is not process `but`, if one is given? */
GLOBAL(int, has_partner)(const struct fifo *fifo, u64 but)
{
	struct pipe_key key;
	struct pipe *pipe;
	struct stage *stage;

	if (!fifo)
		return 0;
	key = fifo->key;
	pipe = bpf_map_lookup_elem(MAP(pipes), &key);
	if (!pipe)
		return 0;
	for (int i = 0; i < PIPE_SLOTS; i++) {
		stage = stage_referred(pipe->stages[fifo->side == SIDE_READ][i]);
		if (stage && !(but && is_process(&stage->root, but)))
			return 1;
	}
	return 0;
}

static __always_inline u32 other_side(u32 side)
{
	return side == SIDE_READ ? SIDE_WRITE : SIDE_READ;
}

enum hold {
	PARENT_HOLDS = 1,	/* the other end of the pipe; or it wrote to it and has closed it since */
	PARENT_ALONE = 2,	/* no other process has that end open */
	PARENT_STDIO = 4,	/* it has it as its own stdin or stdout */
};

/*
 * Does the parent of a process hold the other end of its pipe? `above` is the parent's state, `flags` are those of its
 * name.
 * A shell holds its children's pipes; it uses those that are its stdout, or that it sleeps on. The same
 * goes for a command that the shell became after forking (the arguments may show more).
 */
static __always_inline u32 parent_hold(u64 parent, const struct discovery *discovery, const struct fifo *fifo,
				       const struct task_state *task, const struct task_state *above,
				       u32 flags)
{
	u64 self = discovery->address;
	u32 sharing;

	if (holds_as_stdio(parent, &fifo->key, other_side(fifo->side)))
		return PARENT_HOLDS | PARENT_ALONE | PARENT_STDIO;
	if (fifo->side == SIDE_READ &&
	    (flags & COMMAND_SHELL || above->exec_ns > BPF_CORE_READ(TASK(self), start_time)))
		return 0;
	sharing = holds_anywhere(parent, &fifo->key, other_side(fifo->side));
	if (sharing)
		return sharing == 1 ? PARENT_HOLDS | PARENT_ALONE : PARENT_HOLDS;
	return (fifo->side == SIDE_READ && fed_by(above, task, self, &fifo->key) ? PARENT_HOLDS : 0) |
	       (has_users(fifo, other_side(fifo->side)) ? 0 : PARENT_ALONE);
}

GLOBAL(int, set_endpoint)(struct pipe *pipe, u64 process, u32 side)
{
	struct command command = {};

	if (!pipe)
		return 0;
	command_of(process, &command);
	__builtin_memcpy(pipe->endpoint_comm, command.name, COMM_LEN);
	pipe->endpoint_side = side;
	set_process(&pipe->endpoint, process);
	return 0;
}

/* Was the process the endpoint at an earlier look? */
GLOBAL(int, is_endpoint)(const struct pipe *pipe, u64 process, u32 side)
{
	return pipe && pipe->endpoint_side == side && is_process(&pipe->endpoint, process);
}

/*
 * Is a parent that is the endpoint a stage? A parent that writes to its child is one; a parent that
 * reads only if it is an interpreter, or a shell asleep on its stdin. To hold a pipe does not prove that it
 * is used: another child may have used it, which has not been discovered yet. A reader asleep on it proves a writer.
 */
GLOBAL(int, is_parent_stage)(const struct fifo *fifo, u32 ask, u32 hold, u32 flags, int asleep)
{
	u32 side;

	if (!fifo)
		return 0;
	side = other_side(fifo->side);
	if (side == SIDE_READ && !(flags & COMMAND_INTERPRETER))
		return asleep && flags & COMMAND_SHELL &&
		       (hold & PARENT_STDIO || flags & COMMAND_READS_ANYWHERE);
	return asleep || (hold & PARENT_ALONE && was_used(fifo, side)) ||
	       (ask == ASK_EAGERLY && side == SIDE_WRITE);
}

#define NO_STAGE -1

/*
 * Is the other end of a pipe in the hands of the process's parent? If so, the parent becomes the pipe's
 * endpoint. Returns NO_STAGE, or else the flags of the stage that it is: 0, or STAGE_LAST_PART. `above` is the parent's
 * state, `reading` what it is asleep in.
 */
GLOBAL(int, ask_parent)(struct task_state *task, const struct fifo *fifo,
			const struct discovery *discovery, const struct task_state *above,
			u32 reading)
{
	struct pipe_key key;
	struct pipe *pipe;
	u32 hold, flags;
	u64 parent;
	int asleep;

	if (!task || !fifo || !discovery || !above)
		return NO_STAGE;
	key = fifo->key;
	pipe = bpf_map_lookup_elem(MAP(pipes), &key);
	if (!pipe)
		return NO_STAGE;
	parent = parent_of(discovery->address);
	asleep = reads_pipe(parent, reading, &fifo->key);
	if (discovery->ask <= ASK_READER && !asleep)
		return NO_STAGE;
	flags = process_flags(parent);
	hold = parent_hold(parent, discovery, fifo, task, above, flags);
	if (hold & PARENT_HOLDS)
		set_endpoint(pipe, parent, other_side(fifo->side));
	else if (!is_endpoint(pipe, parent, other_side(fifo->side)))
		return NO_STAGE;	/* nor did it at an earlier look: it may have closed it since */
	if (!is_parent_stage(fifo, discovery->ask, hold, flags, asleep))
		return NO_STAGE;
	return fifo->side == SIDE_WRITE && !(flags & COMMAND_INTERPRETER) ? STAGE_LAST_PART : 0;
}

/* Looks for the other end of a pipe of the current process at its parent, and registers it there. */
GLOBAL(int, discover_parent)(struct task_state *task, struct fifo *fifo, const struct discovery *discovery)
{
	struct task_struct *thread = bpf_get_current_task_btf()->real_parent;
	struct task_struct *parent = thread->group_leader;
	struct task_state *above;
	u32 reading, found;
	u64 address;
	int flags, asleep;

	if (!task || !fifo || !discovery)
		return 0;
	address = discovery->address;
	/* it has its new name, but not the rest: on_exec comes later */
	if (BPF_CORE_READ_BITFIELD(parent, in_execve))
		return 0;
	above = state_of(parent);
	address = (u64)BPF_CORE_READ(TASK(address), real_parent);
	/* the thread that forked the process may have been faster than the event of its exec */
	reading = reads_asleep(thread);
	asleep = reads_pipe(address, reading, &fifo->key);
	if (!asleep) {
		address = (u64)BPF_CORE_READ(TASK(address), group_leader);
		reading = reads_asleep(parent);
		asleep = reads_pipe(address, reading, &fifo->key);
	}
	flags = ask_parent(task, fifo, discovery, above, reading);
	if (flags == NO_STAGE)
		return 0;
	if (address != (u64)BPF_CORE_READ(TASK(address), group_leader))
		above = state_of(thread);
	if (!above)
		return 0;
	/* what else it does is known when it leaves the CPU, or gets one */
	found = stage_of_other(address, above, asleep ? STATE_PIPE_EMPTY : STATE_OTHER,
			       discovery->flags | flags, discovery->now);
	if (!found)
		return 0;
	fifo->side = other_side(fifo->side);
	fifo->standard = 0;
	register_end(found, fifo, discovery->now);
	stage_put(found, discovery->now);
	return 0;
}

/* The parent is the endpoint of a pipe that has none yet. */
GLOBAL(int, set_first_endpoint)(const struct fifo *fifo, u64 parent)
{
	struct pipe_key key;
	struct pipe *pipe;

	if (!fifo)
		return 0;
	key = fifo->key;
	pipe = bpf_map_lookup_elem(MAP(pipes), &key);
	if (pipe && !pipe->endpoint.pid)
		set_endpoint(pipe, parent, other_side(fifo->side));
	return 0;
}

/*
 * Rule 6: does the root of a stage converse with its parent, which is at the other end of both its stdin and its
 * stdout? Then these pipes join nothing, unless another stage uses them as well.
 */
GLOBAL(int, converses)(u64 p, const struct task_state *task, u32 index)
{
	u64 parent = parent_of(p);
	struct stage *stage = stage_at(index);
	struct fifo in = {}, out = {};

	if (!stage || !task)
		return 0;
	fifo_at(p, 0, &in);
	fifo_at(p, 1, &out);
	/* once it does, it may close its stdin before it exits */
	if (!(stage->flags & STAGE_CONVERSES)) {
		if (!in.pipe || !out.pipe || in.both || out.both)
			return 0;
		if (has_partner(&in, parent) || has_partner(&out, parent) ||
		    !holds_anywhere(parent, &out.key, SIDE_READ))
			return 0;
		/* a thread of the parent may have written all and closed that end before it is looked at */
		if (!holds_anywhere(parent, &in.key, SIDE_WRITE) && !was_fed_by_parent(task, &in.key))
			return 0;
		__sync_fetch_and_or(&stage->flags, STAGE_CONVERSES);
	}
	set_first_endpoint(&in, parent);
	set_first_endpoint(&out, parent);
	return 1;
}

/* For each end of its own at which no other stage was seen: is it the parent's? Returns whether any was. */
static __always_inline int discover_parents(struct task_state *task, const struct discovery *discovery)
{
	u64 self = discovery->address;
	int asked = 0;

	if (is_root(discovery->stage, self) && converses(self, task, discovery->stage))
		return 0;
	for (u32 fd = 0; fd < 2; fd++) {
		struct fifo fifo = {};

		if (is_root(discovery->stage, self) && fifo_at(self, fd, &fifo) &&
		    !fifo.both && !fifo.named && !has_partner(&fifo, 0)) {
			discover_parent(task, &fifo, discovery);
			asked = 1;
		}
	}
	return asked;
}

/* The current process exits and has closed its stdin. If that was a pipe, it has used it. */
GLOBAL(int, discover_feeding_parent)(struct task_state *task, u64 now)
{
	struct discovery discovery = {
		.address = bpf_get_current_task(),
		.now = now,
		.ask = ASK_EAGERLY,
	};
	struct fifo fifo = {};
	struct pipe_end *end;
	struct stage *stage;

	if (!task)
		return 0;
	discovery.stage = task->stage;
	stage = stage_at(task->stage);
	if (!stage || !is_root(task->stage, discovery.address) ||
	    stage->flags & STAGE_CONVERSES)
		return 0;
	end = &stage->ends[0];	/* stdin is looked at first */
	if (end->side_and_flags != (END_STANDARD | (SIDE_READ + 1)) || fifo_at(discovery.address, 0, &fifo))
		return 0;
	fifo.key = end->pipe;
	fifo.side = SIDE_READ;
	fifo.pipe = NULL;
	if (!has_partner(&fifo, 0))
		discover_parent(task, &fifo, &discovery);
	return 0;
}

#endif
