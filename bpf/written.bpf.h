/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which files the stages have written, and when: pages that a run wrote itself show nothing of the page cache that it
 * found.
 * Owns the map `written`.
 * Called when a call brings pages of a file that it writes into the page cache, and when warm pages are counted.
 * Costs an array look-up.
 * Cannot see writes through a mapping, nor to pages that were in the page cache before. A file whose place another one
 * takes is forgotten: its pages count as those of any file.
 */
#ifndef PIPELINED_WRITTEN_H
#define PIPELINED_WRITTEN_H

#include "tasks.bpf.h"

#define WRITTEN_BITS 12
#define WRITTEN_FILES (1 << WRITTEN_BITS)	/* each has one place: a run reads back a few files at a time */

struct written {
	u64 file;	/* file_number */
	u64 ns;	/* CLOCK_MONOTONIC */
};

MAP_ARRAY(written, struct written, WRITTEN_FILES);

/*
 * A file as one number, with its inode (inode_of): an address_space may be reused for another file, and both it and the
 * inode's number for one that is made when this is removed.
 */
static __always_inline u64 file_number(u64 mapping, u64 inode)
{
	return ((mapping >> 4) + inode) * 0x9e3779b97f4a7c15ULL;
}

static __always_inline u64 inode_of(u64 number, u32 generation)
{
	return number + ((u64)generation << 32);
}

static __always_inline struct written *written_at(u64 file)
{
	u32 at = file >> (64 - WRITTEN_BITS);

	return bpf_map_lookup_elem(MAP(written), &at);
}

/* A stage writes this file, which has brought in pages of it. */
static __always_inline void note_written(u64 mapping, u64 inode)
{
	u64 file = file_number(mapping, inode);
	struct written *entry = written_at(file);

	if (!entry)
		return;
	entry->file = file;
	entry->ns = bpf_ktime_get_ns();
}

/* When a stage wrote to the file that this reads; 0 if none is known to have. */
static __always_inline u64 written_ns(const struct reading *reading)
{
	u64 file = file_number(reading->mapping, reading->inode);
	const struct written *entry = written_at(file);

	return entry && entry->file == file ? entry->ns : 0;
}

#endif
