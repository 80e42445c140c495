/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which FIFO a task holds at a file descriptor, and who else holds it.
 * Owns no map.
 * Called when a task goes to sleep on a file that is not the one it slept on before, when a process is looked at for
 * pipes, and by the sweep.
 * Costs five or six guarded reads, 40 ns, for one descriptor.
 * Cannot see descriptors from MAX_FDS on when it looks through all.
 */
#ifndef PIPELINED_FIFO_H
#define PIPELINED_FIFO_H

#include "accounting.bpf.h"

#define MAX_FDS 64
#define INODE_ALIGNMENT 6	/* bits: an inode lies at the begin of a cache line */

struct fifo {
	struct pipe_key key;
	struct pipe_inode_info *pipe;
	u16 mode;	/* of the inode, even if it is no FIFO */
	u8 side;
	u8 named;
	u8 both;	/* opened for reading and writing */
	u8 standard;	/* as END_STANDARD */
	u8 fresh;	/* the process became another program at this moment, and has not used it */
	u8 unused;
};

/* See struct pipe_key. */
static __always_inline u32 incarnation_of(u64 inode, u32 generation, int named)
{
	return named ? generation : inode >> INODE_ALIGNMENT;
}

/* The file at a descriptor of the task, or NULL. */
static __always_inline struct file *file_at_fd(u64 p, u32 fd)
{
	struct fdtable *fdt = BPF_CORE_READ(TASK(p), files, fdt);
	struct file *file = NULL;

	if (fdt && fd < BPF_CORE_READ(fdt, max_fds))
		bpf_probe_read_kernel(&file, sizeof(file), BPF_CORE_READ(fdt, fd) + fd);
	return file;
}

/* Fills in *fifo and returns 1 if descriptor fd of the task is a FIFO. fifo->mode is set for any file. */
GLOBAL(int, fifo_at)(u64 p, u32 fd, struct fifo *fifo)
{
	struct super_block *sb;
	struct inode *inode;
	struct file *file;
	u32 mode;

	if (!fifo)
		return 0;
	fifo->mode = 0;
	file = file_at_fd(p, fd);
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
	fifo->named = BPF_CORE_READ(sb, s_magic) != PIPEFS_MAGIC;
	fifo->key.incarnation = incarnation_of((u64)inode, BPF_CORE_READ(inode, i_generation), fifo->named);
	fifo->pipe = BPF_CORE_READ(inode, i_pipe);
	fifo->side = mode & FMODE_WRITE ? SIDE_WRITE : SIDE_READ;
	fifo->both = (mode & (FMODE_READ | FMODE_WRITE)) == (FMODE_READ | FMODE_WRITE);
	return 1;
}

static __always_inline int same_pipe(const struct pipe_key *a, const struct pipe_key *b)
{
	return a->inode == b->inode && a->device == b->device && a->incarnation == b->incarnation;
}

/* Is descriptor fd of the task this side of this pipe? */
GLOBAL(int, holds_at)(u64 p, u32 fd, const struct pipe_key *key, u32 side)
{
	struct fifo fifo = {};

	return key && fifo_at(p, fd, &fifo) && same_pipe(&fifo.key, key) && fifo.side == side;
}

/* Does the task hold this side of this pipe as descriptor 0 or 1? */
GLOBAL(int, holds_as_stdio)(u64 p, const struct pipe_key *key, u32 side)
{
	return key && (holds_at(p, 0, key, side) || holds_at(p, 1, key, side));
}

/* How many descriptors of all processes share the file at this one. */
GLOBAL(int, sharers)(u64 p, u32 fd)
{
	struct file *file = file_at_fd(p, fd);

	return FILE_REFERENCES(file);
}

/*
 * Does the task hold this side of this pipe at any descriptor below MAX_FDS but stderr?
 * Returns the number of descriptors that share it, or 0.
 */
GLOBAL(int, holds_anywhere)(u64 p, const struct pipe_key *key, u32 side)
{
	if (!key)
		return 0;
	for (u32 fd = 0; fd < MAX_FDS; fd++)
		if (fd != 2 && holds_at(p, fd, key, side))
			return sharers(p, fd);
	return 0;
}

/* Does the task hold any file at the descriptors from 3 to 63? */
static __always_inline int holds_above_stdio(u64 p, struct scratch *scratch)
{
	struct file **table = BPF_CORE_READ(TASK(p), files, fdt, fd);
	u64 any = 0;

	/* a descriptor table never has fewer than 64 places (NR_OPEN_DEFAULT) */
	if (bpf_probe_read_kernel(scratch->files, sizeof(scratch->files), table))
		return 0;
	for (int fd = 3; fd < 64; fd++)
		any |= scratch->files[fd];
	return any != 0;
}

/* Has anybody written to the pipe (or read from it) since it was made? */
static __always_inline int was_used(const struct fifo *fifo, u32 side)
{
	struct pipe_inode_info *pipe = fifo->pipe;

	return side == SIDE_WRITE ? BPF_CORE_READ(pipe, head) != 0 :
				    BPF_CORE_READ(pipe, tail) != 0;
}

/* Is this side of the pipe open anywhere? */
static __always_inline int has_users(const struct fifo *fifo, u32 side)
{
	struct pipe_inode_info *pipe = fifo->pipe;

	return side == SIDE_WRITE ? BPF_CORE_READ(pipe, writers) != 0 :
				    BPF_CORE_READ(pipe, readers) != 0;
}

#endif
