/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which FIFO a task holds at a file descriptor. Owns no map; five or six guarded
 * reads, 40 ns. Cannot see descriptors above MAX_FDS when it looks for any.
 */
#ifndef PIPELINED_FIFO_H
#define PIPELINED_FIFO_H

#include "accounting.h"

#define MAX_FDS 64

struct fifo {
	struct pipe_key key;
	struct pipe_inode_info *pipe;
	u32 side;
	u32 named;
	u32 mode;	/* of the inode, also when it is no FIFO */
	u32 both;	/* one descriptor opened for reading and writing */
};

/* 1 and *fifo when descriptor fd of the task is a FIFO; fifo->mode is set for any file. */
GLOBAL int fifo_at(u64 p, u32 fd, struct fifo *fifo)
{
	struct super_block *sb;
	struct inode *inode;
	struct file *file = NULL;
	struct file **table;
	struct fdtable *fdt;
	u32 mode;

	if (!fifo)
		return 0;
	fifo->mode = 0;
	fdt = BPF_CORE_READ(TASK(p), files, fdt);
	if (!fdt || fd >= BPF_CORE_READ(fdt, max_fds))
		return 0;
	table = BPF_CORE_READ(fdt, fd);
	bpf_probe_read_kernel(&file, sizeof(file), table + fd);
	if (!file)
		return 0;
	inode = BPF_CORE_READ(file, f_inode);
	fifo->mode = BPF_CORE_READ(inode, i_mode) & S_IFMT;
	if (fifo->mode != S_IFIFO)
		return 0;
	sb = BPF_CORE_READ(inode, i_sb);
	mode = BPF_CORE_READ(file, f_mode);
	fifo->key.inode = BPF_CORE_READ(inode, i_ino);
	fifo->key.device = BPF_CORE_READ(sb, s_dev);
	fifo->key.pad = 0;
	fifo->named = BPF_CORE_READ(sb, s_magic) != PIPEFS_MAGIC;
	fifo->pipe = BPF_CORE_READ(inode, i_pipe);
	fifo->side = mode & FMODE_WRITE ? SIDE_WRITE : SIDE_READ;
	fifo->both = (mode & (FMODE_READ | FMODE_WRITE)) == (FMODE_READ | FMODE_WRITE);
	return 1;
}

static __always_inline int same_pipe(const struct pipe_key *a, const struct pipe_key *b)
{
	return a->inode == b->inode && a->device == b->device;
}

/* Does the task hold this side of this pipe as descriptor 0 or 1? */
GLOBAL int holds_as_stdio(u64 p, const struct pipe_key *key, u32 side)
{
	struct fifo fifo = {};

	if (!key)
		return 0;
	if (fifo_at(p, 0, &fifo) && same_pipe(&fifo.key, key) && fifo.side == side)
		return 1;
	return fifo_at(p, 1, &fifo) && same_pipe(&fifo.key, key) && fifo.side == side;
}

/* Does the task hold this side of this pipe through any descriptor below MAX_FDS? */
GLOBAL int holds_anywhere(u64 p, const struct pipe_key *key, u32 side)
{
	if (!key)
		return 0;
	for (u32 fd = 0; fd < MAX_FDS; fd++) {
		struct fifo fifo = {};

		if (fifo_at(p, fd, &fifo) && same_pipe(&fifo.key, key) && fifo.side == side)
			return 1;
	}
	return 0;
}

/* Has anybody written to the pipe (or read from it) since it was made? */
static __always_inline int was_used(const struct fifo *fifo, u32 side)
{
	struct pipe_inode_info *pipe = fifo->pipe;

	return side == SIDE_WRITE ? BPF_CORE_READ(pipe, head) != 0 :
				    BPF_CORE_READ(pipe, tail) != 0;
}

#endif
