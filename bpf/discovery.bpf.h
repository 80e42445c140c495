/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a process is a stage of, by the pipes that it holds at 0 and 1 or sleeps on: finds or makes its stage.
 * Owns no map.
 * Called at fork, exec and exit, at a sleep on an end without partner, and by the sweep; at a plain switch only for a
 * process that is younger than YOUNG_NS, has neither exec'd yet nor is about to, and has used ARRANGED_NS of a CPU.
 * About 1 us for a new stage.
 * Cannot see pipes at other descriptors before a sleep on them, unless the command line names them (arguments.bpf.h).
 */
#ifndef PIPELINED_DISCOVERY_H
#define PIPELINED_DISCOVERY_H

#include "parents.bpf.h"

#define MAX_CLIMB 4	/* processes from a pipe's holder up to its stage's root */

/* The process belongs to stage `index`, of which the caller has a hold. */
static __always_inline void found_stage(struct discovery *discovery, u32 index)
{
	if (discovery->held)
		stage_put(discovery->held, discovery->now);
	discovery->held = index;
	discovery->stage = index;
}

/*
 * Has a shell taken this pipe as its stdin after its exec, or after its fork and first look? Then one of its children
 * writes to it: zsh, and bash with lastpipe, run the last part of a pipeline so, and bash forks a program that is the
 * last part while it has the pipe.
 */
GLOBAL(int, took_as_stdin)(u64 p, const struct task_state *task, const struct fifo *fifo, u64 now)
{
	struct pipe_key key;
	u32 index;

	if (is_gone(task) || !fifo)
		return 0;
	key = fifo->key;
	if (fifo->named || !holds_at(p, 0, &key, SIDE_READ) || !(process_flags(p) & COMMAND_SHELL))
		return 0;
	index = unretired(task->stage);
	if (BPF_CORE_READ(TASK(p), group_leader, flags) & PF_FORKNOEXEC ?
		    !is_root(index, p) :
		    !task->exec_ns || task->exec_ns == now)
		return 0;
	return !known_end(index, &key, SIDE_READ);
}

/* Rule 5: the process further up that is the root of the stage that holds this pipe end; NULL: the process itself. */
static __always_inline struct task_state *climb_to_root(struct task_struct *p, const struct fifo *fifo,
						struct discovery *discovery)
{
	struct task_struct *at = p->group_leader;
	struct task_state *root = NULL;
	u64 address = discovery->address;	/* all threads of a process have the same real_parent */

#pragma unroll
	for (int i = 0; i < MAX_CLIMB; i++) {
		struct task_state *above;
		u64 start = at->start_time;

		address = parent_of(address);
		if (!holds_as_stdio(address, &fifo->key, fifo->side))
			break;
		at = at->real_parent->group_leader;
		above = state_of(at);
		if (!above || start < above->exec_ns ||
		    took_as_stdin(address, above, fifo, discovery->now))
			break;
		discovery->root = address;
		root = above;
	}
	return root;
}

/* A FIFO that belongs to the stage of another process further up, `root`, and to this one as its descendant. */
static __always_inline void share_end(struct fifo *fifo, struct discovery *discovery,
				      struct task_state *root)
{
	struct stage *own = discovery->stage ? stage_at(discovery->stage) : NULL, *shared;
	u32 index = stage_of_other(discovery->root, root, STATE_OTHER, discovery->flags,
				   discovery->now);

	if (!index)
		return;
	if (!is_root(discovery->stage, discovery->address))
		own = NULL;
	/* a child that its parent feeds stands beside it, and so does its stdout */
	if (own && word_outer(own->word) != index) {
		register_end(discovery->stage, fifo, discovery->now);
		stage_put(index, discovery->now);
		return;
	}
	if (own)
		borrow_end(discovery->stage, fifo);
	register_end(index, fifo, discovery->now);
	shared = stage_at(index);
	/* a descendant belongs to it, unless it is in a stage further in already */
	if (shared && discovery->stage == word_outer(shared->word))
		found_stage(discovery, index);
	else
		stage_put(index, discovery->now);
}

#define LAST_PART (STAGE_LAST_PART | STAGE_FROM_NOW)
#define NOT_ITS_OWN 0xffffffff

/*
 * The flags of the stage that a pipe makes of a shell which reads it as the last part of a pipeline (rule 4); 0 if the
 * pipe is not of that kind. NOT_ITS_OWN: it does not read the pipe at this moment, maybe a program that it has started
 * does.
 */
static __always_inline u32 last_part(const struct task_state *task, const struct fifo *fifo,
				     const struct discovery *discovery)
{
	if (!took_as_stdin(discovery->address, task, fifo, discovery->now))
		return 0;
	return discovery->reading == READS_STDIN ? LAST_PART : NOT_ITS_OWN;
}

/* Registers a FIFO that is stdin or stdout with its stage, which is made if there is none. */
static __always_inline void discover_end(struct task_state *task, struct fifo *fifo,
					 struct discovery *discovery, struct task_state *root)
{
	u64 self = discovery->address;
	u32 flags, index;
	struct stage *stage;

	if (root) {
		share_end(fifo, discovery, root);
		return;
	}
	fifo->fresh = task->exec_ns == discovery->now;
	flags = last_part(task, fifo, discovery);
	if (flags == NOT_ITS_OWN)
		return;
	if (!flags && is_root(discovery->stage, self)) {
		register_end(discovery->stage, fifo, discovery->now);
		return;
	}
	index = create_stage(self, task, discovery->stage, discovery->flags | flags, discovery->now);
	stage = index ? stage_at(index) : NULL;
	if (!stage)
		return;
	found_stage(discovery, index);
	stage->exec_ns = task->exec_ns;
	converses(self, task, index);	/* before any end joins it */
	register_end(index, fifo, discovery->now);
}

/* Looks at a process's stdin or stdout. */
static __always_inline void discover_standard(struct task_struct *p, struct task_state *task, u32 fd,
					      struct discovery *discovery)
{
	struct fifo fifo = {};
	u64 known;

	if (!fifo_at(discovery->address, fd, &fifo) || fifo.both)
		return;
	fifo.standard = 1;
	known = known_end(discovery->stage, &fifo.key, fifo.side);
	if (!known) {
		discovery->reading = reads_asleep(p);
		FORGET(discovery->reading, discovery->now);
		discover_end(task, &fifo, discovery, climb_to_root(p, &fifo, discovery));
	} else if (end_stage(known) != discovery->stage && is_root(discovery->stage, discovery->address)) {
		borrow_end(discovery->stage, &fifo);
	}
}

/* Looks at both. */
static __always_inline void discover_stdio(struct task_struct *p, struct task_state *task,
					   struct discovery *discovery)
{
	for (u32 fd = 0; fd < 2; fd++) {
		FORGET(discovery->root, discovery->now);
		FORGET(discovery->stage, discovery->now);
		FORGET(discovery->held, discovery->now);
		discover_standard(p, task, fd, discovery);
	}
}

/* The current task looks at its own. */
GLOBAL(int, discover_own)(struct task_state *task, u32 fd, struct discovery *discovery)
{
	if (task && discovery)
		discover_standard(bpf_get_current_task_btf(), task, fd, discovery);
	return 0;
}

static __always_inline void discover_own_stdio(struct task_state *task, struct discovery *discovery)
{
	discover_own(task, 0, discovery);
	discover_own(task, 1, discovery);
}

/* The current task looks at its own stdin and stdout and enters the stage it finds. */
GLOBAL(int, discover_self)(struct task_state *task, u32 ask, u64 now)
{
	struct discovery discovery = {
		.address = bpf_get_current_task(),
		.now = now,
		.ask = ask,
	};

	if (is_gone(task) || !claim(task))
		return 0;
	take_up_pending(task, now);
	discovery.stage = task->stage;
	if (task->clock)
		bring_up_to_date(task, 1, 0, now);
	/* an exec asks which ends its program used until now, and a process that has not exec'd what it holds */
	if (task->born_ns || task->exec_ns == now)
		credit_usage(discovery.address, task);
	discover_own_stdio(task, &discovery);
	/* an edge may have moved the process out of its parent's stage */
	if (discover_parents(task, &discovery))
		discover_own_stdio(task, &discovery);
	enter_stage(task, discovery.stage, now);
	release(task);
	if (discovery.held)
		stage_put(discovery.held, now);
	return 0;
}

enum relation_flag {
	RELATED = 1,	/* siblings, or one is the other's parent */
	CHILD = 2,
};

/* What the stage at a slot of a pipe is to a process and its parent: flags of enum relation_flag. */
GLOBAL(u32, relation)(u64 reference, u64 p)
{
	struct stage *other = stage_referred(reference);
	u64 parent = (u64)BPF_CORE_READ(TASK(p), real_parent);

	if (!other)
		return 0;
	if (is_process(&other->parent, p))
		return other->flags & STAGE_CONVERSES ? 0 : RELATED | CHILD;
	return is_process(&other->root, parent) || is_process(&other->parent, parent) ? RELATED : 0;
}

/* What the stages at the other side of a process's pipe are to it, all together: flags of enum relation_flag. */
static __always_inline u32 relations(u64 p, const struct pipe *pipe, u32 side)
{
	u32 found = 0;

	for (int i = 0; i < PIPE_SLOTS; i++)
		found |= relation(pipe->stages[side == SIDE_READ][i], p);
	return found;
}

/*
 * A task falls asleep on a pipe end that none of its stages knows. A process that has not
 * exec'd since its fork, a named FIFO and a standard descriptor make a stage. Otherwise the
 * pipe must have a stage at its other side that this process is related to (rule 4); a shell
 * that reads its child's output is an endpoint, unless fish reads the last part of a pipeline so.
 * So is a subshell, whose child may not be a stage yet: it made the pipe itself, before it forked.
 */
GLOBAL(int, discover_by_sleep)(u64 p, struct task_state *task, struct fifo *fifo, u32 fd, u64 now)
{
	u32 index, found = CHILD, command, flags = 0;
	struct pipe_key key;
	struct pipe *pipe;
	int no_exec;

	if (is_gone(task) || !fifo || fifo->both)
		return 0;
	if (fd == 2 && !holds_as_stdio(p, &fifo->key, fifo->side))
		return 0;	/* stderr is no edge */
	index = own_stage(task, p);
	no_exec = BPF_CORE_READ(TASK(p), group_leader, flags) & PF_FORKNOEXEC;
	if (fd > 1 && !fifo->named &&
	    (!no_exec || (fifo->side == SIDE_READ && is_made_for_child(task, &fifo->key)))) {
		key = fifo->key;
		pipe = bpf_map_lookup_elem(MAP(pipes), &key);
		if (!no_exec)
			found = pipe ? relations(p, pipe, fifo->side) : 0;
		if (!found)
			return 0;
		if (found & CHILD && fifo->side == SIDE_READ) {
			command = process_flags(p);
			if (command & COMMAND_READS_ANYWHERE) {
				flags = LAST_PART;
			} else if (!index && !(command & COMMAND_INTERPRETER)) {
				if (pipe)
					set_endpoint(pipe, p, SIDE_READ);
				return 0;
			}
		}
	}
	if (!index || flags)
		index = become_stage(p, task, flags, now);
	return register_end(index, fifo, now);
}

#endif
