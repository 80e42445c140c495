/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds stages, the pipes between them and the pipelines that these make. Owns
 * `pipes`, `commands` and the cold fields of `stages`. Called at fork, exec and
 * exit, when a task sleeps on a pipe that its stage does not know yet, and by the
 * sweep. About 1 us for a new stage, nothing per switch of a known one.
 * Cannot see: a process that uses a pipe only through descriptors other than 0
 * and 1 and never sleeps on it.
 *
 * A stage and a pipeline of its own begin as soon as a process holds a FIFO as
 * stdin or stdout; pipelines become one when an edge joins their stages.
 */
#ifndef PIPELINED_TOPOLOGY_H
#define PIPELINED_TOPOLOGY_H

#include "accounting.bpf.h"
#include "fifo.bpf.h"

#define MAX_CLIMB 4	/* processes from a pipe's holder up to its stage's root */
#define RETRIES 8

static __always_inline struct stage *stage_referred(u32 reference)
{
	struct stage *stage = stage_at(reference & INDEX_MASK);

	if (!reference || !stage ||
	    (stage->generation << GENERATION_SHIFT | (reference & INDEX_MASK)) != reference)
		return NULL;
	return stage;
}

static __always_inline void stage_hold(u32 index)
{
	struct stage *stage = stage_at(index);

	if (index && stage)
		__sync_fetch_and_add(&stage->live, 1);
}

static __always_inline void count_ended(void)
{
	u32 zero = 0;
	struct control *page = bpf_map_lookup_elem(MAP(control), &zero);
	u64 ended;

	if (!page)
		return;
	ended = __sync_fetch_and_add(&page->ended, 1) + 1;
	if (ended == page->wake_at)
		bpf_ringbuf_output(MAP(wakeups), &ended, sizeof(ended), 0);
}

/* Gives up one hold on a stage; the last one ends it, and with it maybe those around it. */
GLOBAL(int, stage_put)(u32 index, u64 now)
{
	for (int i = 0; i < MAX_DEPTH && index; i++) {
		struct stage *stage = stage_at(index);

		if (!stage || __sync_fetch_and_add(&stage->live, -1) != 1)
			return 0;
		pipeline_add(index, 0, now);
		stage->end_ns = now;	/* last: a sweep that sees it sees all its time */
		count_ended();
		/* set_outer may be moving it: whoever comes first gives up the hold */
		index = word_outer(__sync_fetch_and_or(&stage->word, WORD_ENDED));
	}
	return 0;
}

/* Moves a stage, with what it now counts for, into another enclosing stage. */
static __always_inline void set_outer(u32 index, u32 outer, u64 now)
{
	struct stage *stage = stage_at(index);

	if (!stage || outer == index)
		return;
	stage_hold(outer);
	for (int i = 0; i < RETRIES; i++) {
		u64 word = stage->word, counts = stage_counts(word);
		u32 old = word_outer(word);
		u64 moved = (word & ~((u64)INDEX_MASK << WORD_OUTER_SHIFT)) |
			    (u64)outer << WORD_OUTER_SHIFT;

		if (__sync_val_compare_and_swap(&stage->word, word, moved) != word)
			continue;
		if (word & WORD_ENDED) {
			stage_put(outer, now);
			return;
		}
		if (outer && counts)
			stage_add(outer, counts, now);
		if (old && counts)
			stage_add(old, -counts, now);
		stage_put(old, now);
		return;
	}
	stage_put(outer, now);
	count_lost(LOST_UPDATES);
}

static __always_inline u32 pipeline_root(u32 index)
{
	for (int i = 0; i < MAX_ALIASES; i++) {
		struct pipeline *pipeline = pipeline_at(index);

		if (!pipeline || !pipeline->alias)
			break;
		index = pipeline->alias;
	}
	return index;
}

static __always_inline int older(const struct pipeline *a, u32 ai, const struct pipeline *b, u32 bi)
{
	return a->start_ns != b->start_ns ? a->start_ns < b->start_ns : ai < bi;
}

/* Makes two pipelines one: the younger becomes an alias of the older. 0: try again. */
GLOBAL(int, merge)(u32 a, u32 b, u64 now)
{
	u32 ra = pipeline_root(a), rb = pipeline_root(b), winner, loser;
	struct pipeline *pa = pipeline_at(ra), *pb = pipeline_at(rb);

	if (ra == rb || !pa || !pb)
		return 1;
	winner = older(pa, ra, pb, rb) ? ra : rb;
	loser = winner == ra ? rb : ra;
	pb = pipeline_at(loser);
	if (!pb || __sync_val_compare_and_swap(&pb->alias, 0, winner) != 0)
		return 0;
	pipeline_add(winner, __sync_lock_test_and_set(&pb->moment, 0) & ~PIPELINE_CLOCK_MASK, now);
	return 1;
}

/* A stage that has left the one around it takes along what it had credited there. */
GLOBAL(int, take_back)(u32 outer_index, u32 left_index)
{
	struct stage *outer = stage_at(outer_index), *left = stage_at(left_index);

	if (!outer || !left)
		return 0;
	for (int i = 0; i < STATES; i++)
		__sync_fetch_and_add(&outer->time_ns[i], -left->time_ns[i]);
	__sync_fetch_and_add(&outer->user_ns, -left->user_ns);
	__sync_fetch_and_add(&outer->system_ns, -left->system_ns);
	__sync_fetch_and_add(&outer->read_bytes, -left->read_bytes);
	__sync_fetch_and_add(&outer->written_bytes, -left->written_bytes);
	__sync_fetch_and_add(&outer->read_calls, -left->read_calls);
	__sync_fetch_and_add(&outer->write_calls, -left->write_calls);
	__sync_fetch_and_add(&outer->sleeps_empty, -left->sleeps_empty);
	__sync_fetch_and_add(&outer->sleeps_full, -left->sleeps_full);
	__sync_fetch_and_add(&outer->execs, -left->execs);
	/* sleeps at an inner stage's ends are in its own slots, and in the sums of those around it */
	for (int i = 0; i < STAGE_ENDS; i++) {
		struct pipe_end *end = &left->ends[i];

		if ((end->key.pad & END_SIDE_MASK) == SIDE_READ + 1)
			__sync_fetch_and_add(&outer->sleeps_empty, -end->sleeps);
		else
			__sync_fetch_and_add(&outer->sleeps_full, -end->sleeps);
	}
	return 0;
}

/* An edge: both stages now belong to one pipeline, side by side. */
static __always_inline int join(u32 a, u32 b, u64 now)
{
	struct stage *sa = stage_at(a), *sb = stage_at(b);
	u32 inner = 0;

	if (!sa || !sb)
		return 0;
	if (!merge(a, b, now) && !merge(a, b, now) && !merge(a, b, now))
		count_lost(LOST_UPDATES);
	if (word_outer(sa->word) == b)
		inner = a;
	else if (word_outer(sb->word) == a)
		inner = b;
	if (inner) {
		u32 around = inner == a ? b : a;

		set_outer(inner, word_outer((inner == a ? sb : sa)->word), now);
		take_back(around, inner);
	}
	return 0;
}

/* Which side of its pipe an end is, plus 1; also of one that is borrowed. */
static __always_inline u32 end_side(const struct pipe_end *end)
{
	u32 properties = end->key.pad;

	return properties & END_BORROWED ? properties >> END_BORROWED_SHIFT & END_SIDE_MASK :
					   properties & END_SIDE_MASK;
}

/* Slot of this end in a stage, or -1. */
GLOBAL(int, find_end)(u32 index, const struct pipe_key *key, u32 side)
{
	struct stage *stage = stage_at(index);

	if (!stage || !key)
		return -1;
	for (int i = 0; i < STAGE_ENDS; i++) {
		struct pipe_end *end = &stage->ends[i];

		if (end->key.inode == key->inode && end->key.device == key->device &&
		    (end->key.pad & END_SIDE_MASK) == side + 1)
			return i;
	}
	return -1;
}

/* Has the stage ever called read, or write? */
static __always_inline int was_called(const struct stage *stage, u32 side)
{
	return side == SIDE_READ ? stage->read_calls != 0 : stage->write_calls != 0;
}

/* What the stage's key.pad says of this end; 0 when it has none such. */
static __always_inline u32 properties_of(u32 index, const struct pipe_key *key, u32 side)
{
	struct stage *stage = stage_at(index);
	int slot = find_end(index, key, side);

	return stage && slot >= 0 ? stage->ends[slot & (STAGE_ENDS - 1)].key.pad : 0;
}

/* Rules 2 to 4 and 7 (docs/CONCEPTS.md): does this pipe join its writer and reader? */
static __always_inline int is_edge(u32 writer_index, u32 reader_index, const struct fifo *fifo)
{
	struct stage *writer = stage_at(writer_index), *reader = stage_at(reader_index);

	if (!writer || !reader)
		return 0;
	if (writer->pid == reader->pid && writer->root_start_ns == reader->root_start_ns)
		return 0;
	if ((properties_of(writer_index, &fifo->key, SIDE_WRITE) |
	     properties_of(reader_index, &fifo->key, SIDE_READ)) & END_UNUSED)
		return 0;
	if (fifo->named)	/* the next job may use the same FIFO: their stages must have met */
		return (writer->live || writer->end_ns > reader->root_start_ns) &&
		       (reader->live || reader->end_ns > writer->root_start_ns);
	if (writer->parent_pid == reader->parent_pid &&
	    writer->parent_start_ns == reader->parent_start_ns)
		return 1;
	if (reader->parent_pid == writer->pid)
		return 1;
	if (writer->parent_pid == reader->pid)
		return (writer->root_start_ns < reader->exec_ns ||
			reader->flags & STAGE_INTERPRETER) &&
		       !(properties_of(reader_index, &fifo->key, SIDE_READ) & END_LEFT);
	/* tee's child by rule 3 writes to tee's reader: both are stages here already */
	return pipeline_root(writer_index) == pipeline_root(reader_index);
}

static __always_inline void mark_joined(u32 index, const struct pipe_key *key, u32 side)
{
	struct stage *stage = stage_at(index);
	int slot = find_end(index, key, side);

	if (stage && slot >= 0)
		stage->ends[slot & (STAGE_ENDS - 1)].key.pad = (side + 1) | END_JOINED;
}

/* Joins a stage with one that was seen at the other side of its pipe, if that is an edge. */
GLOBAL(int, meet_partner)(u32 index, u32 reference, const struct fifo *fifo, u64 now)
{
	struct stage *stage = stage_at(index), *other = stage_referred(reference);
	u32 found = reference & INDEX_MASK;

	if (!stage || !other || !fifo)
		return 0;
	if (!(fifo->side == SIDE_WRITE ? is_edge(index, found, fifo) : is_edge(found, index, fifo)))
		return 0;
	mark_joined(index, &fifo->key, fifo->side);
	mark_joined(found, &fifo->key, fifo->side == SIDE_READ ? SIDE_WRITE : SIDE_READ);
	return join(index, found, now);
}

/* `properties`: what end->key.pad says. */
static __always_inline void add_end(struct stage *stage, const struct fifo *fifo, u32 properties)
{
	for (int i = 0; i < STAGE_ENDS; i++) {
		struct pipe_end *end = &stage->ends[i];

		if (end->key.inode ||
		    __sync_val_compare_and_swap(&end->key.inode, 0, fifo->key.inode))
			continue;
		end->key.device = fifo->key.device;
		end->key.pad = properties;
		return;
	}
	/* the pipe's own slots still tell the edge; only sleeps on this end are not told apart */
}

/* Puts a stage into the first slot of its side that `is_free` holds for. */
#define take_slot(pipe, side, reference, is_free)                                         \
	for (int i = 0; i < PIPE_SLOTS; i++) {                                            \
		u64 *slot = &(pipe)->stages[(side) & 1][i];                               \
		u64 old = *slot;                                                          \
                                                                                          \
		if (old == (reference) ||                                                 \
		    (is_free && __sync_val_compare_and_swap(slot, old, reference) == old)) \
			return;                                                           \
	}

static __always_inline int has_ended(u32 reference)
{
	struct stage *stage = stage_referred(reference);

	return stage && stage->end_ns;
}

static __always_inline void add_slot(struct pipe *pipe, u32 side, u32 reference)
{
	take_slot(pipe, side, reference, (!old || !stage_referred(old)));
	/* a FIFO with a name serves job after job, faster than their records are given back */
	if (pipe->named)
		take_slot(pipe, side, reference, has_ended(old));
	count_lost(LOST_ENDS);
}

static __always_inline int stage_uses_both(const struct stage *stage, u32 index,
					   const struct pipe *pipe, u32 side)
{
	u32 self = stage->generation << GENERATION_SHIFT | index;

	for (int i = 0; i < PIPE_SLOTS; i++)
		if (pipe->stages[side == SIDE_READ][i] == self)
			return 1;
	return 0;
}

/* Records that a stage holds one end of a pipe, and joins it with the other end's stages. */
GLOBAL(int, register_end)(u32 index, struct fifo *fifo, u64 now)
{
	struct scratch *page = scratch_at(0);
	struct stage *stage = stage_at(index);
	struct pipe *pipe;
	struct pipe_key key;
	int slot;

	if (!index || !stage || !page || !fifo || fifo->both)
		return 0;
	key = fifo->key;
	slot = find_end(index, &key, fifo->side);
	if (slot < 0)
		add_end(stage, fifo, fifo->side + 1);
	else
		stage->ends[slot & (STAGE_ENDS - 1)].key.pad &= ~(END_LEFT | END_UNUSED);
	pipe = bpf_map_lookup_elem(MAP(pipes), &key);
	if (!pipe) {
		bpf_map_update_elem(MAP(pipes), &key, &page->no_pipe, BPF_NOEXIST);
		pipe = bpf_map_lookup_elem(MAP(pipes), &key);
		if (!pipe) {
			count_lost(LOST_PIPES);
			return 0;
		}
	}
	pipe->named |= fifo->named;
	fifo->named = pipe->named;
	add_slot(pipe, fifo->side, stage->generation << GENERATION_SHIFT | index);
	if (stage_uses_both(stage, index, pipe, fifo->side))
		pipe->self = 1;
	if (pipe->self)
		return 0;
	for (int i = 0; i < PIPE_SLOTS; i++) {
		u32 reference = pipe->stages[fifo->side == SIDE_READ][i];

		if (reference)
			meet_partner(index, reference, fifo, now);
	}
	return 0;
}

/* Stage << 3 | slot, plus 1, of this end among the stages around `index`; 0 = unknown. */
GLOBAL(u32, known_end)(u32 index, const struct pipe_key *key, u32 side)
{
	if (!key)
		return 0;
	for (int i = 0; i < MAX_DEPTH && index; i++) {
		struct stage *stage = stage_at(index);
		int slot;

		if (!stage)
			return 0;
		slot = find_end(index, key, side);
		if (slot >= 0)
			return (index << 3 | slot) + 1;
		index = word_outer(stage->word);
	}
	return 0;
}

/*
 * A stage inside another one uses a pipe that is the outer one's. An edge may free it
 * from there (tee's child by rule 3): then the pipe is its own as well.
 */
GLOBAL(int, borrow_end)(u32 index, const struct fifo *fifo)
{
	struct stage *stage = stage_at(index);
	u32 borrowed;

	if (!stage || !fifo)
		return 0;
	borrowed = END_BORROWED | (fifo->side + 1) << END_BORROWED_SHIFT;
	for (int i = 0; i < STAGE_ENDS; i++) {
		struct pipe_end *end = &stage->ends[i];

		if (end->key.inode == fifo->key.inode && (end->key.pad & ~(END_LEFT | END_UNUSED)) == borrowed) {
			end->key.pad = borrowed;
			return 0;
		}
	}
	add_end(stage, fifo, borrowed);
	return 0;
}

/* One end, where `joined` of them make edges; whether it no longer makes one. */
GLOBAL(int, leave_end)(u64 p, u32 index, u32 slot, int joined)
{
	struct stage *stage = stage_at(index);
	struct pipe_key key;
	u32 side, properties;

	if (!stage)
		return 0;
	slot &= STAGE_ENDS - 1;
	key = stage->ends[slot].key;
	side = end_side(&stage->ends[slot]);
	if (!key.inode || !side)
		return 0;
	properties = key.pad | END_LEFT;
	if (!was_called(stage, side - 1))
		properties |= END_UNUSED;
	if (properties & END_JOINED && (joined < 2 || !(properties & END_UNUSED)))
		return 0;
	if (holds_as_stdio(p, &key, side - 1))
		return 0;
	stage->ends[slot].key.pad = properties & ~END_JOINED;
	return !!(properties & END_JOINED);
}

/*
 * The root of a stage has become another program, by the shell's exec, say: what it read from
 * its children before, `$(…)`, is none of that program's, nor is the stdout that `>(gzip > f)`
 * had until its redirection, be it an edge already: if that was never used and another edge
 * holds the stage. A pipe that the program uses after all is registered again.
 */
GLOBAL(int, leave_ends)(u64 p, u32 index)
{
	struct stage *stage = stage_at(index);
	int joined = 0;

	if (!stage || stage->pid != BPF_CORE_READ(TASK(p), tgid))
		return 0;
	for (int i = 0; i < STAGE_ENDS; i++)
		joined += stage->ends[i].key.pad >> END_JOINED_SHIFT & 1;
	for (u32 i = 0; i < STAGE_ENDS; i++)
		joined -= leave_end(p, index, i, joined);
	return 0;
}

/*
 * One end of a stage that ends: what kept it from being an edge may be known by now (tee's
 * children by rule 3 are known to be in the pipeline of tee's reader once tee itself is).
 */
GLOBAL(int, try_end_again)(u32 index, u32 slot, u64 now)
{
	struct stage *stage = stage_at(index);
	struct fifo fifo = {};
	struct pipe_end *end;
	u32 side;

	if (!stage)
		return 0;
	end = &stage->ends[slot & (STAGE_ENDS - 1)];
	if (!end->key.inode || end->key.pad & END_LEFT)
		return 0;
	side = end_side(end);
	fifo.key = end->key;
	fifo.key.pad = 0;
	fifo.side = side - 1;
	if (end->key.pad & END_BORROWED) {
		if (known_end(word_outer(stage->word), &fifo.key, fifo.side))
			return 0;
		end->key.pad = side;
	}
	return register_end(index, &fifo, now);
}

/* Flags of a command name; a version at its end does not count (python3.11). */
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

/* The process's name: threads may have others. */
static __always_inline void command_of(u64 p, struct command *command)
{
	u64 leader = (u64)BPF_CORE_READ(TASK(p), group_leader);

	BPF_CORE_READ_STR_INTO(&command->name, TASK(leader), comm);
}

/* The stage takes the name of the process that just exec'd. */
static __always_inline void name_stage(struct stage *stage, u64 p)
{
	struct command command = {};
	u32 flags, properties;

	command_of(p, &command);
	properties = command_flags(&command);
	flags = stage->flags & (STAGE_PARTIAL | STAGE_ALONE);
	if (properties & COMMAND_INTERPRETER)
		flags |= STAGE_INTERPRETER;
	if (properties & COMMAND_WRAPPER)
		flags |= STAGE_WRAPPER;
	stage->flags = flags & ~STAGE_FROM_NOW;
	__builtin_memcpy(stage->comm, command.name, COMM_LEN);
}

/*
 * A new stage whose root is `p`, inside stage `outer`, with a pipeline of its own.
 * `task` is the root's state when its life so far counts, else NULL. The caller
 * holds it. 0 when there is no room.
 */
GLOBAL(u32, fill_stage)(u64 p, struct task_state *task, u32 outer, u32 flags, u64 now)
{
	u64 start = now, cpu = 0;
	struct pipeline *pipeline;
	struct stage *stage;
	u32 index;

	if (bpf_map_pop_elem(MAP(free_stages), &index)) {
		count_lost(LOST_STAGES);
		return 0;
	}
	stage = stage_at(index);
	if (!stage)
		return 0;
	pipeline = &stage->pipeline;
	if (task && task->born_ns && !(flags & STAGE_FROM_NOW)) {
		start = task->born_ns;
		cpu = task->young_ns[STATE_CPU];
		for (int i = 0; i < STATES; i++)
			stage->time_ns[i] = task->young_ns[i];
		stage->user_ns = task->user_ns;
		stage->system_ns = task->system_ns;
		stage->read_bytes = task->read_bytes;
		stage->written_bytes = task->written_bytes;
		stage->read_calls = task->read_calls;
		stage->write_calls = task->write_calls;
	}
	stage->pid = stage->name_pid = BPF_CORE_READ(TASK(p), tgid);
	stage->root_start_ns = BPF_CORE_READ(TASK(p), group_leader, start_time);
	if (task && task->parent_pid) {
		stage->parent_pid = task->parent_pid;
		stage->parent_start_ns = task->parent_start_ns;
	} else {
		stage->parent_pid = BPF_CORE_READ(TASK(p), real_parent, tgid);
		stage->parent_start_ns =
			BPF_CORE_READ(TASK(p), real_parent, group_leader, start_time);
	}
	stage->cgroup = BPF_CORE_READ(TASK(p), cgroups, dfl_cgrp, kn, id);
	stage->flags = flags & ~STAGE_FROM_NOW;
	stage->live = 1;
	name_stage(stage, p);
	pipeline->moment = now & PIPELINE_CLOCK_MASK;
	pipeline->start_ns = start;
	pipeline->time_ns[0][0] = now - start - cpu;
	pipeline->time_ns[1][0] = cpu;
	stage_hold(outer);
	stage->word = (u64)outer << WORD_OUTER_SHIFT;
	stage->start_ns = start;	/* from now on the sweep sees it */
	return index;
}

static __always_inline u32 create_stage(u64 p, struct task_state *task, u32 outer, u32 flags,
					u64 now)
{
	if (!task->born_ns || flags & STAGE_FROM_NOW)
		credit_usage(p, task);	/* what it did before is not this stage's */
	return fill_stage(p, task, outer, flags, now);
}

/* The task's own context: it goes over to stage `index`, whatever state it is in. */
GLOBAL(int, enter_stage)(struct task_state *task, u32 index, u64 now)
{
	u64 counts;
	u32 old;

	if (!task)
		return 0;
	old = task->stage;
	if (!index || index == old || old == STAGE_DEAD)
		return 0;
	if (task->clock)
		bring_up_to_date(task, 1, now);
	else
		task->clock = clock_pack(STATE_CPU, now);
	counts = state_counts(task->clock >> CLOCK_STATE_SHIFT);
	stage_hold(index);
	/* another CPU may just have adopted this task into a stage of its process */
	if (__sync_val_compare_and_swap(&task->stage, old, index) != old) {
		stage_put(index, now);
		return 0;
	}
	stage_add(index, counts, now);
	if (old) {
		stage_add(old, -counts, now);
		stage_put(old, now);
	}
	return 0;
}

/* Not the task's own context: takes a task that is in no stage into one. */
static __always_inline int adopt(struct task_state *task, u32 index, u32 state, u64 now)
{
	u64 counts = state_counts(state);

	stage_hold(index);
	if (__sync_val_compare_and_swap(&task->stage, 0, index) != 0) {
		stage_put(index, now);
		return 0;
	}
	stage_add(index, counts, now);
	/* a task that is followed, or had an event meanwhile, has counted itself or will */
	if (__sync_val_compare_and_swap(&task->clock, 0, clock_pack(state, now)) != 0)
		stage_add(index, -counts, now);
	return 1;
}

static __always_inline void take_up_pending(struct task_state *task, u64 now)
{
	u32 index = task->pending;

	if (!index)
		return;
	/* in this order: whoever asks for its stage finds it in one place or the other */
	enter_stage(task, index, now);
	task->pending = 0;
	stage_put(index, now);	/* the hold that was pending */
}

/*
 * A program that starts itself again under another name (busybox, by /proc/self/exe or
 * after a mere fork) sets that name itself, when its stage is there already.
 */
GLOBAL(int, name_again)(u64 p, u32 index)
{
	struct stage *stage = stage_at(index);
	int unnamed;

	if (!index || !stage || stage->name_pid != BPF_CORE_READ(TASK(p), tgid))
		return 0;
	unnamed = stage->comm[0] == 'e' && stage->comm[1] == 'x' && stage->comm[2] == 'e' &&
		  !stage->comm[3];
	if (unnamed || BPF_CORE_READ(TASK(p), group_leader, flags) & PF_FORKNOEXEC)
		name_stage(stage, p);
	return 0;
}

static __always_inline struct task_state *state_of(struct task_struct *p)
{
	return bpf_task_storage_get(MAP(tasks), p, 0, 0);
}

#define CLAIM_TRIES 64	/* a stage is made in a few us, these take as long */

/*
 * A process may be found to be a stage by itself and by a child on another CPU at once:
 * only one of them makes it. 0: the other one does. Whoever claims releases.
 */
GLOBAL(int, claim)(struct task_state *task)
{
	if (!task)
		return 0;
	for (int i = 0; i < CLAIM_TRIES; i++) {
		if (__sync_val_compare_and_swap(&task->claimed, 0, 1) == 0)
			return 1;
		/* passes time: the verifier goes through every try */
		for (int pause = 0; pause < 4; pause++)
			bpf_ktime_get_ns();
	}
	return 0;
}

static __always_inline void release(struct task_state *task)
{
	__sync_lock_test_and_set(&task->claimed, 0);
}

/* The innermost stage of a process, if it is the root of that; else 0. */
static __always_inline u32 own_stage(const struct task_state *task, u32 tgid)
{
	struct stage *stage = task->stage ? stage_at(task->stage) : NULL;

	return stage && stage->pid == tgid ? task->stage : 0;
}

/* The stage of which another process is the root, made when there is none. The caller holds it. */
GLOBAL(u32, stage_of_other)(u64 p, struct task_state *task, u32 state, u32 flags, u64 now)
{
	u32 index, pending;

	if (!task || task->stage == STAGE_DEAD)
		return 0;
	index = own_stage(task, BPF_CORE_READ(TASK(p), tgid));
	if (index) {
		stage_hold(index);
		return index;
	}
	if (!claim(task))
		return 0;
	pending = task->pending;
	index = own_stage(task, BPF_CORE_READ(TASK(p), tgid));
	if (pending || index) {
		index = pending ? pending : index;
		stage_hold(index);
	} else {
		note(task, BPF_CORE_READ(TASK(p), pid));
		index = create_stage(p, task, task->stage, flags | STAGE_FROM_NOW, now);
		if (index && !(task->stage == 0 && task->clock == 0 &&
			       adopt(task, index, state, now))) {
			stage_hold(index);
			task->pending = index;
		}
	}
	release(task);
	return index;
}

#endif
