/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The pipes between stages and the pipelines that they make: stages that an edge joins share one pipeline.
 * Owns the map `pipes`; writes the ends of `stages`, and which pipeline was merged into which.
 * Called when a process is looked at for pipes: at fork, exec and exit, at a sleep on a pipe that its stage does not
 * know yet, and by the sweep.
 * Costs nothing at a switch of a known stage.
 * Cannot see the use of a pipe at descriptors other than 0 and 1 by a process that never sleeps on it.
 */
#ifndef PIPELINED_TOPOLOGY_H
#define PIPELINED_TOPOLOGY_H

#include "fifo.bpf.h"
#include "taking_back.bpf.h"

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

/* Merges two pipelines: the younger becomes an alias of the older. Returns 0 if that has to be tried again. */
GLOBAL(int, merge)(u32 a, u32 b, u64 now)
{
	u32 ra = pipeline_root(a), rb = pipeline_root(b), winner, loser;
	struct pipeline *pa = pipeline_at(ra), *pb = pipeline_at(rb);
	u64 members;
	int merged;

	if (ra == rb || !pa || !pb)
		return 1;
	winner = older(pa, ra, pb, rb) ? ra : rb;
	loser = winner == ra ? rb : ra;
	pb = pipeline_at(loser);
	if (!pb)
		return 0;
	/* before the alias, so that the winner never seems to be without members */
	members = pb->members;
	members_add(winner, members, now);
	merged = __sync_val_compare_and_swap(&pb->alias, 0, winner) == 0;
	if (merged) {
		pipeline_add(winner, __sync_lock_test_and_set(&pb->moment, 0) & ~PIPELINE_CLOCK_MASK,
			     now);
		for (int at = 0; at < PIPELINE_DRIVERS; at++)
			if (pb->drivers[at])
				add_driver(winner, pb->drivers[at]);
		members = __sync_lock_test_and_set(&pb->members, 0) - members;
	} else {
		members = -members;
	}
	if (members)
		members_add(winner, members, now);
	return merged;
}

/* An edge was found: both stages now belong to one pipeline, side by side. */
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

		/* the other one may join them at the same time: only one of the two takes back */
		if (set_outer(inner, word_outer((inner == a ? sb : sa)->word), now) == around)
			take_back(around, inner);
	}
	return 0;
}

/* enum pipe_side + 1 of an end, borrowed or not. */
static __always_inline u32 end_side(const struct pipe_end *end)
{
	u32 bits = end->side_and_flags;

	return (bits & END_BORROWED ? bits >> END_BORROWED_SHIFT : bits) & END_SIDE_MASK;
}

/* Slot of this end in a stage, or -1. Borrowed ends are not found. */
GLOBAL(int, find_end)(u32 index, const struct pipe_key *key, u32 side)
{
	struct stage *stage = stage_at(index);

	if (!stage || !key)
		return -1;
	for (int i = 0; i < STAGE_ENDS; i++) {
		struct pipe_end *end = &stage->ends[i];

		if (same_pipe(&end->pipe, key) &&
		    (end->side_and_flags & END_SIDE_MASK) == side + 1)
			return i;
	}
	return -1;
}

/* Has the stage ever called read, or write? */
static __always_inline int was_called(const struct stage *stage, u32 side)
{
	return side == SIDE_READ ? stage->read_calls != 0 : stage->write_calls != 0;
}

/* pipe_end.side_and_flags of this end of a stage, 0 if it has no such end. */
static __always_inline u32 side_and_flags_of(u32 index, const struct pipe_key *key, u32 side)
{
	struct stage *stage = stage_at(index);
	int slot = find_end(index, key, side);

	return stage && slot >= 0 ? end_of(stage, slot)->side_and_flags : 0;
}

/* How a pipe joins its writer and its reader. */
enum edge {
	NO_EDGE,
	EDGE,
	EDGE_FROM_CHILD,	/* only because the reader, an interpreter, reads from its own child */
	EDGE_TO_CHILD,		/* only because the writer, an interpreter, feeds its own child */
};

/*
 * May this end join a child with its parent? Between processes that fork without exec'ing other descriptors carry
 * messages (a browser, a pool of workers).
 */
static __always_inline int is_standard(const struct stage *child, u32 side_and_flags)
{
	return side_and_flags & END_STANDARD && !(child->flags & STAGE_CONVERSES);
}

/* dash writes a large here-document in a child, which has the pipe at another descriptor than stdout. */
static __always_inline int writes_document(const struct stage *writer, u32 side_and_flags)
{
	return !(side_and_flags & END_STANDARD) && !writer->execs && !writer->forks &&
	       writer->flags & STAGE_SHELL;
}

/* Is this the pipe that a shell reads which runs the last part of a pipeline? Others are those of $(...) in it. */
static __always_inline int is_last_part(u32 index, const struct pipe_key *key)
{
	return find_end(index, key, SIDE_READ) == 0;
}

/* Children of an interpreter that are in its pipeline only because they are its own; further ones are just its descendants. */
#define MAX_OWN_CHILDREN 64

/* May an interpreter be in the pipeline of this child of its own? */
static __always_inline int may_join_child(const struct stage *parent, const struct stage *child)
{
	return parent->flags & STAGE_INTERPRETER && !child->end_ns &&
	       parent->flags < MAX_OWN_CHILDREN * OWN_CHILD;
}

/* As edge_between if the reader is the writer's child (rules 3 and 4), and has the pipe as its stdin. */
static __always_inline enum edge edge_to_child(const struct stage *writer, const struct stage *reader)
{
	if (reader->root.start_ns < writer->exec_ns || !(writer->flags & STAGE_INTERPRETER))
		return EDGE;
	return may_join_child(writer, reader) ? EDGE_TO_CHILD : NO_EDGE;
}

/* As edge_between if the writer is the reader's child, and has the pipe as its stdout. */
static __always_inline enum edge edge_to_parent(const struct stage *writer, const struct stage *reader,
						u32 reader_index, const struct fifo *fifo)
{
	if (side_and_flags_of(reader_index, &fifo->key, SIDE_READ) & END_LEFT)
		return NO_EDGE;
	if (writer->root.start_ns < reader->exec_ns)
		return EDGE;
	if (reader->flags & STAGE_LAST_PART && is_last_part(reader_index, &fifo->key))
		return EDGE;
	return may_join_child(reader, writer) ? EDGE_FROM_CHILD : NO_EDGE;
}

/* Rules 2 to 4, 6 and 7 (docs/CONCEPTS.md): does this pipe join its writer and reader? */
GLOBAL(int, edge_between)(u32 writer_index, u32 reader_index, const struct fifo *fifo)
{
	struct stage *writer = stage_at(writer_index), *reader = stage_at(reader_index);

	if (!writer || !reader || !fifo || (writer->word | reader->word) & WORD_RETIRED)
		return NO_EDGE;
	if (same_process(&writer->root, &reader->root))
		return NO_EDGE;
	if ((side_and_flags_of(writer_index, &fifo->key, SIDE_WRITE) |
	     side_and_flags_of(reader_index, &fifo->key, SIDE_READ)) & END_UNUSED)
		return NO_EDGE;
	if (fifo->named)	/* the next job may use the same FIFO: both must have lived at the same time */
		return (writer->live || writer->end_ns > reader->root.start_ns) &&
		       (reader->live || reader->end_ns > writer->root.start_ns) ? EDGE : NO_EDGE;
	if (same_process(&writer->parent, &reader->parent))
		return writes_document(writer, side_and_flags_of(writer_index, &fifo->key, SIDE_WRITE)) ?
			       NO_EDGE : EDGE;
	if (same_process(&reader->parent, &writer->root))
		return is_standard(reader, side_and_flags_of(reader_index, &fifo->key, SIDE_READ)) ?
			       edge_to_child(writer, reader) : NO_EDGE;
	if (same_process(&writer->parent, &reader->root))
		return is_standard(writer, side_and_flags_of(writer_index, &fifo->key, SIDE_WRITE)) ?
			       edge_to_parent(writer, reader, reader_index, fifo) : NO_EDGE;
	/* the child of tee in rule 3 writes to tee's reader: both are in the pipeline already */
	return pipeline_root(writer_index) == pipeline_root(reader_index) ? EDGE : NO_EDGE;
}

#define JOIN_TRIES 3	/* while other processes change the same end */

/* Returns 0 if the stage has left this end, unused, since edge_between looked at it. */
static __always_inline int mark_joined(u32 index, const struct pipe_key *key, u32 side)
{
	struct stage *stage = stage_at(index);
	int slot = find_end(index, key, side);
	struct pipe_end *end;

	if (!stage || slot < 0)
		return 1;
	end = end_of(stage, slot);
	for (int i = 0; i < JOIN_TRIES; i++) {
		u64 bits = end->side_and_flags;
		u64 joined = (bits & (END_STANDARD | END_LATE)) | (side + 1) | END_JOINED;

		if (bits & END_UNUSED)
			return 0;
		if (__sync_val_compare_and_swap(&end->side_and_flags, bits, joined) == bits)
			return 1;
	}
	count_lost(LOST_UPDATES);
	return 0;
}

static __always_inline int has_edges(const struct stage *stage)
{
	for (int i = 0; i < STAGE_ENDS; i++)
		if (stage->ends[i].side_and_flags & END_JOINED)
			return 1;
	return 0;
}

static __always_inline void no_longer_converses(struct stage *stage)
{
	if (stage->flags & STAGE_CONVERSES)
		__sync_fetch_and_and(&stage->flags, ~STAGE_CONVERSES);
}

#define BOTH_MEMBERS -1
#define WAS_LEFT -2

/*
 * Marks the ends of a pipe that is an edge of this kind between stage `index`, whose end `fifo` is, and stage `found`.
 * Returns the stage that it makes a driver, BOTH_MEMBERS, or 0: neither. WAS_LEFT: it is an edge no longer.
 */
GLOBAL(int, mark_edge)(u32 edge, u32 index, u32 found, const struct fifo *fifo)
{
	u32 writer, reader, parent, child, child_side, only;
	struct stage *stage, *other;
	int is_new;

	if (!fifo)
		return 0;
	writer = fifo->side == SIDE_WRITE ? index : found;
	reader = fifo->side == SIDE_WRITE ? found : index;
	child_side = edge == EDGE_TO_CHILD ? SIDE_READ : SIDE_WRITE;
	parent = edge == EDGE_TO_CHILD ? writer : reader;
	child = edge == EDGE_TO_CHILD ? reader : writer;
	stage = stage_at(parent);
	other = stage_at(child);
	if (!stage || !other)
		return 0;
	only = !has_edges(stage) && !(stage->flags & STAGE_ALONE);
	is_new = edge != EDGE && !(side_and_flags_of(child, &fifo->key, child_side) & END_JOINED);
	if (!mark_joined(writer, &fifo->key, SIDE_WRITE) || !mark_joined(reader, &fifo->key, SIDE_READ))
		return WAS_LEFT;
	/* not with its parent: another process feeds or reads what seemed to converse */
	no_longer_converses(stage);
	no_longer_converses(other);
	if (is_new)
		__sync_fetch_and_add(&stage->flags, OWN_CHILD);
	if (edge == EDGE)
		return BOTH_MEMBERS;
	return only ? parent : 0;
}

/* Two stages have been joined; `made` is what mark_edge returned. */
GLOBAL(int, set_membership)(int made, u32 index, u32 found, u64 now)
{
	if (made == BOTH_MEMBERS) {
		become_member(index, now);
		become_member(found, now);
	} else if (made) {
		become_driver(made, now);
	}
	return 0;
}

/*
 * Records of stages are given back when their run is over. A reader that lives for months, of a pipe that one job after
 * the other writes to, would take all of them: of so many stages, further ones are in a pipeline of their own.
 */
#define MAX_PIPELINE_STAGES 256

/* Would an edge between these two make a pipeline of more stages than that? */
GLOBAL(int, are_too_many)(u32 a, u32 b)
{
	u32 ra = pipeline_root(a), rb = pipeline_root(b);
	struct pipeline *pa = pipeline_at(ra), *pb = pipeline_at(rb);

	if (ra == rb || !pa || !pb || (pa->members + pb->members) / ONE_STAGE <= MAX_PIPELINE_STAGES)
		return 0;
	count_lost(LOST_ENDS);
	return 1;
}

/* Joins a stage with one that was seen at the other side of its pipe, if the pipe is an edge. */
GLOBAL(int, join_partner)(u32 index, u64 reference, const struct fifo *fifo, u64 now)
{
	struct stage *other = stage_referred(reference);
	u32 found = reference & INDEX_MASK;
	int edge, made;

	if (!other || !fifo)
		return 0;
	edge = fifo->side == SIDE_WRITE ? edge_between(index, found, fifo) :
					  edge_between(found, index, fifo);
	if (edge == NO_EDGE || are_too_many(index, found))
		return 0;
	made = mark_edge(edge, index, found, fifo);
	if (made == WAS_LEFT)
		return 0;
	join(index, found, now);
	/* the child has an edge that is none to its own children */
	if (edge != EDGE)
		become_member((edge == EDGE_TO_CHILD) == (fifo->side == SIDE_WRITE) ? found : index, now);
	return set_membership(made, index, found, now);
}

/*
 * Puts a pipe into a free slot of a stage. If there is none, which is 0, the pipe's own slots
 * still give the edge; only sleeps at this end are not counted apart.
 */
static __always_inline int add_end(struct stage *stage, const struct fifo *fifo, u32 side_and_flags)
{
	for (int i = 0; i < STAGE_ENDS; i++) {
		struct pipe_end *end = &stage->ends[i];

		if (end->pipe.inode || __sync_val_compare_and_swap(&end->pipe.inode, 0, fifo->key.inode))
			continue;
		end->pipe = fifo->key;
		end->side_and_flags = side_and_flags;
		return 1;
	}
	return 0;
}

/* Puts a stage into the first slot of its side for which `is_free` holds, and returns from the caller. */
#define take_slot(pipe, side, reference, is_free)                                         \
	for (int i = 0; i < PIPE_SLOTS; i++) {                                            \
		u64 *slot = &(pipe)->stages[(side) & 1][i];                               \
		u64 old = *slot, seen = old;                                              \
                                                                                          \
		if (old != (reference) && is_free)                                        \
			seen = __sync_val_compare_and_swap(slot, old, reference);         \
		else if (old != (reference))                                              \
			continue;                                                         \
		/* another process may have put the same stage there */                   \
		if (seen == old || seen == (reference))                                   \
			return;                                                           \
	}

static __always_inline int has_ended(u64 reference)
{
	struct stage *stage = stage_referred(reference);

	return stage && stage->end_ns;
}

static __always_inline void add_slot(struct pipe *pipe, u32 side, u64 reference)
{
	take_slot(pipe, side, reference, (!old || !stage_referred(old)));
	/* a named FIFO serves job after job, faster than their records are freed */
	if (pipe->named)
		take_slot(pipe, side, reference, has_ended(old));
	count_lost(LOST_ENDS);
}

static __always_inline int stage_uses_both(const struct stage *stage, u32 index,
					   const struct pipe *pipe, u32 side)
{
	u64 self = reference_of(stage, index);

	for (int i = 0; i < PIPE_SLOTS; i++)
		if (pipe->stages[side == SIDE_READ][i] == self)
			return 1;
	return 0;
}

/* The record of a pipe, made if there is none; NULL if there is no room. */
static __always_inline struct pipe *pipe_at(const struct pipe_key *key)
{
	struct pipe *pipe = bpf_map_lookup_elem(MAP(pipes), key);
	struct scratch *page = scratch_at(0);

	if (pipe || !page)
		return pipe;
	bpf_map_update_elem(MAP(pipes), key, &page->no_pipe, BPF_NOEXIST);
	pipe = bpf_map_lookup_elem(MAP(pipes), key);
	if (!pipe)
		count_lost(LOST_PIPES);
	return pipe;
}

/* Records that a stage holds one end of a pipe. Returns whether the pipe may join it with others. */
GLOBAL(int, note_end)(u32 index, struct fifo *fifo)
{
	struct stage *stage = stage_at(index);
	struct pipe_key key;
	struct pipe *pipe;
	int slot, kept = 1;

	if (!index || !stage || !fifo || fifo->both)
		return 0;
	key = fifo->key;
	slot = find_end(index, &key, fifo->side);
	if (slot < 0) {
		kept = add_end(stage, fifo, (fifo->side + 1) | (fifo->standard ? END_STANDARD : 0) |
					    (!fifo->fresh && was_called(stage, fifo->side) ? END_LATE : 0));
	} else {
		u64 *bits = &end_of(stage, slot)->side_and_flags;

		__sync_fetch_and_and(bits, ~(END_LEFT | END_UNUSED));
		if (fifo->standard)
			__sync_fetch_and_or(bits, END_STANDARD);
	}
	/*
	 * The daemon forgets a pipe with a stage that has it among its ends: a record of one that none has would stay. Of
	 * one that the command line names the child at the other end has it.
	 */
	pipe = kept || (fifo->standard && fifo->fresh) ? pipe_at(&key) : bpf_map_lookup_elem(MAP(pipes), &key);
	if (!pipe)
		return 0;
	pipe->named |= fifo->named;
	fifo->named = pipe->named;
	add_slot(pipe, fifo->side, reference_of(stage, index));
	if (stage_uses_both(stage, index, pipe, fifo->side))
		pipe->self = 1;
	return !pipe->self;
}

/* Notes a stage's pipe end, and joins the stage with those at the other end. */
GLOBAL(int, register_end)(u32 index, struct fifo *fifo, u64 now)
{
	struct pipe_key key;
	struct pipe *pipe;

	if (!fifo || !note_end(index, fifo))
		return 0;
	key = fifo->key;
	pipe = bpf_map_lookup_elem(MAP(pipes), &key);
	if (!pipe)
		return 0;
	for (int i = 0; i < PIPE_SLOTS; i++) {
		u64 reference = pipe->stages[fifo->side == SIDE_READ][i];

		if (reference)
			join_partner(index, reference, fifo, now);
	}
	return 0;
}

/* end_number of this end, of stage `index` or of one around it; 0 = unknown. */
GLOBAL(u64, known_end)(u32 index, const struct pipe_key *key, u32 side)
{
	struct stage *stage;
	int slot;

	if (!key)
		return 0;
	for_each_enclosing_stage(stage, index) {
		slot = find_end(index, key, side);
		if (slot >= 0)
			return end_number(reference_of(stage, index), slot);
	}
	return 0;
}

/*
 * A stage inside another one uses a pipe of the outer one. An edge may move it out of there
 * (the child of tee in rule 3); then the pipe is its own as well.
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

		if (same_pipe(&end->pipe, &fifo->key) &&
		    (end->side_and_flags & ~(END_LEFT | END_UNUSED)) == borrowed) {
			__sync_fetch_and_and(&end->side_and_flags, ~(END_LEFT | END_UNUSED));
			return 0;
		}
	}
	add_end(stage, fifo, borrowed);
	return 0;
}

static __always_inline int has_edges_beside(const struct stage *stage, u32 slot)
{
	for (u32 i = 0; i < STAGE_ENDS; i++)
		if (i != slot && stage->ends[i].side_and_flags & END_JOINED)
			return 1;
	return 0;
}

/*
 * Marks the end at `slot` as left if the stage's new program does not hold it. Returns 1 if that has to be tried again:
 * another process has joined the end meanwhile.
 */
GLOBAL(int, leave_end)(u64 p, u32 index, u32 slot)
{
	struct stage *stage = stage_at(index);
	struct pipe_end *end;
	struct pipe_key key;
	u64 bits, left;
	u32 side;

	if (!stage)
		return 0;
	end = end_of(stage, slot);
	key = end->pipe;
	side = end_side(end);
	if (!key.inode || !side)
		return 0;
	bits = end->side_and_flags;
	left = bits | END_LEFT;
	if (!was_called(stage, side - 1))
		left |= END_UNUSED;
	if (bits & END_JOINED && !(left & END_UNUSED && has_edges_beside(stage, slot)))
		return 0;
	if (holds_as_stdio(p, &key, side - 1))
		return 0;
	return __sync_val_compare_and_swap(&end->side_and_flags, bits, left & ~END_JOINED) != bits;
}

/*
 * The root of a stage has become another program, for instance by the shell's exec. What it
 * read from its children before, `$(…)`, does not belong to that program. Nor does the stdout
 * that `>(gzip > f)` had before its redirection, even if that makes an edge already, provided
 * it was never used and the stage has another edge. If the program uses such a pipe after all,
 * the pipe is registered again.
 */
GLOBAL(int, leave_ends)(u64 p, u32 index)
{
	struct stage *stage = stage_at(index);

	if (!stage || !is_process(&stage->root, p))
		return 0;
	for (u32 i = 0; i < STAGE_ENDS; i++)
		if (leave_end(p, index, i) && leave_end(p, index, i) && leave_end(p, index, i))
			count_lost(LOST_UPDATES);
	return 0;
}

/*
 * One end of a stage that is about to end: whether it makes an edge may have become known
 * since it was registered (the children of tee in rule 3 are known to be in the pipeline of
 * tee's reader once tee itself is).
 */
GLOBAL(int, try_end_again)(u32 index, u32 slot, u64 now)
{
	struct stage *stage = stage_at(index);
	struct fifo fifo = {};
	struct pipe_end *end;
	u64 bits;
	u32 side;

	if (!stage)
		return 0;
	end = end_of(stage, slot);
	bits = end->side_and_flags;
	if (!end->pipe.inode || bits & END_LEFT)
		return 0;
	side = end_side(end);
	fifo.key = end->pipe;
	fifo.side = side - 1;
	/* only stdin and stdout are borrowed */
	fifo.standard = !!(bits & (END_STANDARD | END_BORROWED));
	if (bits & END_BORROWED) {
		if (known_end(word_outer(stage->word), &fifo.key, fifo.side))
			return 0;
		__sync_val_compare_and_swap(&end->side_and_flags, bits, side);
	}
	return register_end(index, &fifo, now);
}

#endif
