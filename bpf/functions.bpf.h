/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The `functions` tier: sizes of writes and reads, what went through a stage's pipes, how full they were, how long reads
 * of files took, and the bytes that splice moves without the kernel accounting them.
 * Owns the map `functions`; writes task_state.read_ns.
 * Called at each call of the hooked functions.
 * Costs are in docs/BENCHMARKS.md, measured by `make bench ARGS='--only functions'`; a task in no stage ends at one
 * array look-up.
 * Cannot see io_uring, nor readv and preadv of files, which do not go through vfs_read.
 */
#ifndef PIPELINED_FUNCTIONS_H
#define PIPELINED_FUNCTIONS_H

#include "topology.bpf.h"

static __always_inline struct functions *functions_at(u32 index)
{
	return bpf_map_lookup_elem(MAP(functions), &index);
}

/* The task's state if it is in a stage, else NULL. */
static __always_inline struct task_state *member(struct task_struct *p)
{
	struct task_state *task;

	if (!is_noted(p->pid))
		return NULL;
	task = state_of(p);
	return stage_of(task) ? task : NULL;
}

/* How many bits `value` has: the least n with value < 2^n. */
static __always_inline u32 bits(u64 value)
{
	u32 found = 0;

	for (u32 half = 32; half; half /= 2) {
		if (value >> half) {
			value >>= half;
			found += half;
		}
	}
	return found + (value != 0);
}

/* The bucket, of those up to 2^first, 2^(first + 1) …, that holds `value`, which is not 0. */
static __always_inline u32 bucket_for(u64 value, u32 first, u32 buckets)
{
	u32 at = bits(value - 1);

	at = at > first ? at - first : 0;
	return at < buckets ? at : buckets - 1;
}

#define HISTOGRAM_ADD(histogram, buckets, at, value)                          \
	do {                                                                  \
		u64 bucket_ = (at);                                           \
		OPAQUE(bucket_);                                              \
		if (bucket_ < (buckets)) {                                    \
			__sync_fetch_and_add(&(histogram).counts[bucket_], 1); \
			__sync_fetch_and_add(&(histogram).sum, value);        \
		}                                                             \
	} while (0)

/* A write begins: `size` as the caller asked for, and the pipe as it found it. */
static __always_inline void pipe_write_began(struct task_state *task, u64 size, u32 used,
					     u32 slots)
{
	struct functions *entry;
	struct stage *stage;
	u32 index;

	if (!size || !slots)
		return;
	if (used > slots)
		used = slots;
	index = task->stage;
	for_each_enclosing_stage(stage, index) {
		entry = functions_at(index);
		if (!entry)
			return;
		HISTOGRAM_ADD(entry->pipe_writes, SIZE_BUCKETS,
			      bucket_for(size, 0, SIZE_BUCKETS), size);
		HISTOGRAM_ADD(entry->pipe_fill, FILL_BUCKETS,
			      (used * (FILL_BUCKETS - 1) + slots - 1) / slots,
			      ((u64)used << FILL_SHIFT) / slots);
		entry->pipe_slots = slots;
	}
}

/* Is the pipe one of the stage's own at this side, or of one around it: no pipe of a child's, nor of `$(...)`? */
static __always_inline int flows(u32 index, const struct pipe_key *key, u32 side)
{
	struct pipe_end *end = end_at(known_end(index, key, side));

	return end && (end->side_and_flags & END_JOINED ||
		       (end->side_and_flags & (END_STANDARD | END_LEFT)) == END_STANDARD);
}

/* `size` bytes went through one side of a pipe. */
GLOBAL(int, count_flow)(u32 index, const struct pipe_key *key, u32 side, u64 size)
{
	struct functions *entry;
	struct stage *stage;

	if (!key)
		return 0;
	for_each_enclosing_stage(stage, index) {
		entry = functions_at(index);
		if (entry && flows(index, key, side))
			__sync_fetch_and_add(side == SIDE_READ ? &entry->pipe_in_bytes :
								 &entry->pipe_out_bytes, size);
	}
	return 0;
}

static __always_inline struct pipe_key key_of(struct file *file)
{
	u64 address = (u64)BPF_CORE_READ(file, f_inode);	/* the verifier computes with no pointer */
	struct inode *inode = file->f_inode;
	struct super_block *sb = inode->i_sb;
	struct pipe_key key = { .inode = inode->i_ino, .device = sb->s_dev };

	key.incarnation = incarnation_of(address, inode->i_generation, sb->s_magic != PIPEFS_MAGIC);
	return key;
}

static __always_inline void pipe_write_ended(struct file *file, s64 size)
{
	struct task_state *task = size > 0 ? member(bpf_get_current_task_btf()) : NULL;
	struct pipe_key key;

	if (!task)
		return;
	key = key_of(file);
	count_flow(task->stage, &key, SIDE_WRITE, size);
}

static __always_inline void pipe_read_ended(struct file *file, s64 size)
{
	struct task_state *task;
	struct functions *entry;
	struct stage *stage;
	struct pipe_key key;
	u32 index;

	if (size <= 0)
		return;
	task = member(bpf_get_current_task_btf());
	if (!task)
		return;
	key = key_of(file);
	count_flow(task->stage, &key, SIDE_READ, size);
	index = task->stage;
	for_each_enclosing_stage(stage, index) {
		entry = functions_at(index);
		if (!entry)
			return;
		HISTOGRAM_ADD(entry->pipe_reads, SIZE_BUCKETS,
			      bucket_for(size, 0, SIZE_BUCKETS), size);
	}
}

static __always_inline int is_on_disk(struct file *file)
{
	u32 type = file->f_inode->i_mode & S_IFMT;

	return type == S_IFREG || type == S_IFBLK;
}

static __always_inline void file_read_began(struct file *file)
{
	struct task_state *task = is_on_disk(file) ? member(bpf_get_current_task_btf()) : NULL;

	if (task)
		task->read_ns = bpf_ktime_get_ns();
}

static __always_inline void file_read_ended(struct file *file, s64 size)
{
	struct task_state *task = is_on_disk(file) ? member(bpf_get_current_task_btf()) : NULL;
	struct functions *entry;
	struct stage *stage;
	u64 took;
	u32 index;

	if (!task || !task->read_ns)
		return;
	took = bpf_ktime_get_ns() - task->read_ns;
	task->read_ns = 0;
	if (size <= 0)
		return;
	index = task->stage;
	for_each_enclosing_stage(stage, index) {
		entry = functions_at(index);
		if (!entry)
			return;
		HISTOGRAM_ADD(entry->file_reads, SIZE_BUCKETS,
			      bucket_for(size, 0, SIZE_BUCKETS), size);
		HISTOGRAM_ADD(entry->file_read_time, TIME_BUCKETS,
			      bucket_for(took, TIME_FIRST, TIME_BUCKETS), took);
	}
}

static __always_inline int is_pipe(struct file *file)
{
	return (file->f_inode->i_mode & S_IFMT) == S_IFIFO;
}

/* Do bytes of this file count for the stage? Those of a pipe only if the stage, or one around it, has an end of it. */
static __always_inline int is_own(struct file *file, u32 index, u32 side)
{
	struct pipe_key key;

	if (!is_pipe(file))
		return 1;
	key = key_of(file);
	return known_end(index, &key, side) != 0;
}

static __always_inline void count_file_flow(struct file *file, u32 index, u32 side, u64 size)
{
	struct pipe_key key;

	if (!is_pipe(file))
		return;
	key = key_of(file);
	count_flow(index, &key, side, size);
}

/* Adds bytes that task->ioac does not count; `from` and `to` are 1 if the stage read or wrote them. */
GLOBAL(int, add_spliced)(u32 index, u64 size, u32 from, u32 to)
{
	struct stage *stage;

	for_each_enclosing_stage(stage, index) {
		__sync_fetch_and_add(&stage->read_bytes, from ? size : 0);
		__sync_fetch_and_add(&stage->read_calls, from);
		__sync_fetch_and_add(&stage->written_bytes, to ? size : 0);
		__sync_fetch_and_add(&stage->write_calls, to);
	}
	return 0;
}

/*
 * Bytes went from one file to another within the kernel. A pipe that the process made for
 * itself, because splice needs one, is neither read nor written by the stage.
 */
static __always_inline void spliced(struct file *in, struct file *out, s64 size, int consumes)
{
	struct task_state *task;
	struct functions *entry;
	u32 index, from, to;

	if (size <= 0)
		return;
	task = member(bpf_get_current_task_btf());
	if (!task)
		return;
	index = task->stage;
	from = consumes && is_own(in, index, SIDE_READ);
	to = is_own(out, index, SIDE_WRITE);
	add_spliced(index, size, from, to);
	if (from)
		count_file_flow(in, index, SIDE_READ, size);
	if (to)
		count_file_flow(out, index, SIDE_WRITE, size);
	entry = functions_at(index);
	if (entry && to && is_pipe(out))
		entry->pipe_slots = out->f_inode->i_pipe->max_usage;
}

/* Memory was given to the pipe at descriptor `fd`, or taken from it. */
static __always_inline void vmspliced(u32 fd, s64 size)
{
	struct task_state *task;
	struct fifo fifo = {};

	if (size <= 0)
		return;
	task = member(bpf_get_current_task_btf());
	if (task && fifo_at(bpf_get_current_task(), fd, &fifo) &&
	    known_end(task->stage, &fifo.key, fifo.side)) {
		add_spliced(task->stage, size, fifo.side == SIDE_READ, fifo.side == SIDE_WRITE);
		count_flow(task->stage, &fifo.key, fifo.side, size);
	}
}

#endif
