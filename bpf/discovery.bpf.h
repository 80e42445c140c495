/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * When a process is looked at for pipes, and what it is a stage of. Called at
 * fork, exec, exit, sleep on a pipe and by the sweep; at a plain switch only for
 * a process that has not exec'd yet and is younger than YOUNG_NS.
 */
#ifndef PIPELINED_DISCOVERY_H
#define PIPELINED_DISCOVERY_H

#include "parents.bpf.h"

#define MAX_CLIMB 4	/* processes from a pipe's holder up to its stage's root */

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
