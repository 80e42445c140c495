/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Adds pages, faults and direct I/O to the stages around a reader.
 * Owns the map `readahead`, to which stalls.bpf.h adds stalls.
 * Called by the hooks of the `readahead` tier.
 * Costs two array look-ups for each enclosing stage.
 * Cannot see who reads: the caller passes the reader's innermost stage.
 */
#ifndef PIPELINED_PAGE_COUNTS_H
#define PIPELINED_PAGE_COUNTS_H

#include "tasks.bpf.h"

static __always_inline void add_pages(u32 index, u64 class, u64 pages)
{
	struct readahead *entry;
	struct stage *stage;

	OPAQUE(class);
	if (!pages || class >= PAGE_CLASSES)
		return;
	for_each_enclosing_stage(stage, index) {
		entry = readahead_at(index);
		if (!entry)
			return;
		__sync_fetch_and_add(&entry->pages[class], pages);
	}
}

GLOBAL(int, credit_pages)(u32 index, u32 class, u64 pages)
{
	add_pages(index, class, pages);
	return 0;
}

/* Adds to another field of the records. */
#define CREDIT_READAHEAD(index, field, value)                                 \
	do {                                                                  \
		struct readahead *entry_;                                     \
		struct stage *stage_;                                         \
		u32 at_ = (index);                                            \
		for_each_enclosing_stage(stage_, at_) {                       \
			entry_ = readahead_at(at_);                           \
			if (!entry_)                                          \
				break;                                        \
			__sync_fetch_and_add(&entry_->field, value);          \
		}                                                             \
	} while (0)

GLOBAL(int, credit_inserted)(u32 index, u64 pages)
{
	CREDIT_READAHEAD(index, inserted, pages);
	return 0;
}

#define ALWAYS_NS ~0ULL	/* later than the start of any stage */

/* Warm pages of a file that was written at `written_ns` are no input of the stages that had begun by then. */
GLOBAL(int, credit_not_input)(u32 index, u64 written_ns, u64 pages)
{
	struct readahead *entry;
	struct stage *stage;

	if (!written_ns)
		return 0;
	for_each_enclosing_stage(stage, index) {
		entry = readahead_at(index);
		if (!entry)
			break;
		if (written_ns > stage->start_ns)
			__sync_fetch_and_add(&entry->not_input, pages);
	}
	return 0;
}

GLOBAL(int, credit_file)(u32 index)
{
	CREDIT_READAHEAD(index, files, 1);
	return 0;
}

GLOBAL(int, credit_fault)(u32 index, u64 class)
{
	OPAQUE(class);
	if (class < STALL_CLASSES)
		CREDIT_READAHEAD(index, faults[class], 1);
	return 0;
}

#endif
