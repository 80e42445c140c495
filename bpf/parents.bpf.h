/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Rule 4 (docs/CONCEPTS.md): is the parent of a process at the other end of its pipe, and as what?
 * Writes the endpoints of `pipes` and task_state.fed_by_parent; owns no map.
 * Called at fork, and when a process is looked at whose pipe shows nobody at its other end.
 * Costs up to MAX_FDS guarded reads of the parent's descriptors; nothing at a switch.
 * Cannot see a parent that closed its end before its child was looked at, and never slept on it.
 */
#ifndef PIPELINED_PARENTS_H
#define PIPELINED_PARENTS_H

#include "sleep.bpf.h"
#include "topology.bpf.h"

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

#endif
