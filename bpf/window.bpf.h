/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which pages a task has read ahead and not consumed: 64-page words, a bit for each page.
 * Owns the map `windows`.
 * Called by the `readahead` tier: a bit is set when a page comes in, cleared when a read consumes it.
 * Costs a search of four words for each 64 pages.
 * Cannot see more than WINDOW_SETS * WINDOW_WAYS words: one that finds no place takes that of another, which is
 * counted in `lost` unless its file was closed.
 */
#ifndef PIPELINED_WINDOW_H
#define PIPELINED_WINDOW_H

#include "fifo.bpf.h"
#include "page_counts.bpf.h"
#include "written.bpf.h"

/*
 * 64-page words, each found by its tag in a set of four. Two files may each have 64 MiB
 * outstanding. With the kernel's own header a window must stay below 8 KiB: newer kernels
 * allocate no larger storage in a tracing program.
 */
#define WINDOW_SETS 120
#define WINDOW_WAYS 4
#define WORD_SHIFT 6
#define WORD_PAGES (1 << WORD_SHIFT)
#define MAX_WORDS 256	/* in one batch of a read: 31 folios of 2 MiB */
#define RUN_WORDS 64	/* in one run of pages brought in: 16 MiB */

struct word {
	u64 tag;	/* file and place: word_tag */
	u64 pages;	/* a bit for each that is outstanding */
};

/* Consecutive pages that were brought in since the last event of the task's reads. */
struct fresh {
	u64 first, last;
};
#define FRESH_RANGES 4

struct window {
	struct word words[WINDOW_SETS * WINDOW_WAYS];
	u64 outstanding;
	u64 mapping;	/* of the fresh pages */
	u64 fresh_pages;
	struct fresh fresh[FRESH_RANGES];
	u32 fresh_count;
	u32 unused;
};

MAP_TASK_STORAGE(windows, struct window);

static __always_inline u32 count_bits(u64 bits)
{
	bits -= bits >> 1 & 0x5555555555555555ULL;
	bits = (bits & 0x3333333333333333ULL) + (bits >> 2 & 0x3333333333333333ULL);
	bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return bits * 0x0101010101010101ULL >> 56;
}

/*
 * The bits of a word for pages first to last. This is a global function, like put_word and
 * take_word, because the verifier would follow each of its branches at each turn of a loop.
 */
GLOBAL(u64, word_mask)(u64 block, u64 first, u64 last)
{
	u64 start = block << WORD_SHIFT, mask = ~0ULL;

	if (first > start)
		mask &= ~0ULL << (first - start & (WORD_PAGES - 1));
	if (last < start + WORD_PAGES - 1)
		mask &= ~0ULL >> (WORD_PAGES - 1 - (last - start & (WORD_PAGES - 1)));
	return mask;
}

static __always_inline u32 file_tag(u64 mapping, u64 inode)
{
	return file_number(mapping, inode) >> 32;
}

static __always_inline u64 inode_of_mapping(u64 mapping)
{
	struct inode *inode = BPF_CORE_READ((struct address_space *)mapping, host);

	return inode_of(BPF_CORE_READ(inode, i_ino), BPF_CORE_READ(inode, i_generation));
}

static __always_inline u32 file_of(u64 mapping)
{
	return file_tag(mapping, inode_of_mapping(mapping));
}

static __always_inline u32 tag_of(const struct reading *reading)
{
	return file_tag(reading->mapping, reading->inode);
}

static __always_inline u64 word_tag(u32 file, u64 block)
{
	return (u64)file << 32 | (u32)block;
}

/* Consecutive words of a file lie in consecutive sets. */
static __always_inline u32 set_of(u32 file, u64 block)
{
	return (file + (u32)block) % WINDOW_SETS * WINDOW_WAYS;
}

static __always_inline struct word *word_at(struct window *window, u64 at)
{
	OPAQUE(at);
	if (at >= WINDOW_SETS * WINDOW_WAYS)
		return NULL;
	OPAQUE(at);	/* also keeps clang from computing the address before the check */
	return &window->words[at];
}

static __always_inline struct word *find_word(struct window *window, u32 file, u64 block)
{
	u64 tag = word_tag(file, block);
	u32 set = set_of(file, block);

	for (int way = 0; way < WINDOW_WAYS; way++) {
		struct word *word = word_at(window, set + way);

		if (word && word->tag == tag && word->pages)
			return word;
	}
	return NULL;
}

/* Forgets the pages in `mask` of one word. Returns how many of them were outstanding. */
GLOBAL(u64, take_word)(struct window *window, u32 file, u64 block, u64 mask)
{
	struct word *word = window ? find_word(window, file, block) : NULL;
	u64 taken;

	if (!word)
		return 0;
	taken = count_bits(word->pages & mask);
	word->pages &= ~mask;
	window->outstanding -= taken;
	return taken;
}

/* Forgets pages first to last. Returns how many of them were outstanding. */
GLOBAL(u64, take_pages)(struct window *window, u32 file, u64 first, u64 last)
{
	u64 taken = 0;

	if (!window || !window->outstanding)
		return 0;
	for (u64 i = 0; i < MAX_WORDS; i++) {
		u64 block = (first >> WORD_SHIFT) + i;

		if (block > last >> WORD_SHIFT)
			break;
		taken += take_word(window, file, block, word_mask(block, first, last));
	}
	return taken;
}

static __always_inline int is_outstanding(struct window *window, u32 file, u64 index)
{
	struct word *word = find_word(window, file, index >> WORD_SHIFT);

	return word && word->pages >> (index & (WORD_PAGES - 1)) & 1;
}

#define OVERLAYFS_SUPER_MAGIC 0x794c7630
#define MAPPINGS 3	/* ways to mapping_by */

/*
 * The mapping that has the pages of an open file: its own, or on overlayfs that of the file below, which private_data
 * points to (way 1), since 6.13 as the first member of struct ovl_file (way 2; 87a8a76c34a2). Overlayfs may be a module,
 * whose types are not the kernel's: the caller tries all ways. 0: not this one.
 */
GLOBAL(u64, mapping_by)(u64 address, u32 way)
{
	struct file *file = (struct file *)address, *below;

	if (!way)
		return (u64)BPF_CORE_READ(file, f_mapping);
	if (BPF_CORE_READ(file, f_inode, i_sb, s_magic) != OVERLAYFS_SUPER_MAGIC)
		return 0;
	below = BPF_CORE_READ(file, private_data);
	if (way > 1 && bpf_probe_read_kernel(&below, sizeof(below), below))
		return 0;
	return (u64)BPF_CORE_READ(below, f_mapping);
}

/* Does an open file have its pages in this mapping? */
static __always_inline int has_mapping(const struct file *file, u64 mapping)
{
	for (u32 way = 0; way < MAPPINGS; way++)
		if (mapping_by((u64)file, way) == mapping)
			return 1;
	return 0;
}

/* Does the task have this file at this descriptor? A global function for the same reason as word_mask. */
GLOBAL(int, is_open_at)(u64 p, u32 fd, u32 wanted)
{
	struct file *file = file_at_fd(p, fd);
	u64 mapping;

	for (u32 way = 0; file && way < MAPPINGS; way++) {
		mapping = mapping_by((u64)file, way);
		if (mapping && file_of(mapping) == wanted)
			return 1;
	}
	return 0;
}

/* Does the task have this file at any of its first MAX_FDS descriptors? */
GLOBAL(int, has_open)(u64 p, u32 wanted)
{
	for (u32 fd = 0; fd < MAX_FDS; fd++)
		if (is_open_at(p, fd, wanted))
			return 1;
	return 0;
}

/*
 * A word is needed and its set is full: the one at `at` goes. Pages of a file that the task has
 * closed are wasted, since it will not consume them. Others are lost: once consumed, they will
 * look warm.
 */
GLOBAL(int, evict_word)(struct task_state *task, struct window *window, u32 at)
{
	struct word *word;
	u32 pages;

	word = window ? word_at(window, at) : NULL;
	if (!task || !word)
		return 0;
	pages = count_bits(word->pages);
	window->outstanding -= pages;
	if (has_open(bpf_get_current_task(), word->tag >> 32))
		add_lost(LOST_READAHEAD, pages);
	else
		credit_pages(task->stage, PAGE_WASTED, pages);
	word->pages = 0;
	return 0;
}

static __always_inline struct word *make_word(struct task_state *task, struct window *window,
					      u32 file, u64 block)
{
	u32 set = set_of(file, block), at = set + (block & (WINDOW_WAYS - 1));
	struct word *word = find_word(window, file, block);

	if (word)
		return word;
	for (int way = 0; way < WINDOW_WAYS; way++) {
		word = word_at(window, set + way);
		if (word && !word->pages)
			break;
		word = NULL;
	}
	if (!word) {
		evict_word(task, window, at);
		word = word_at(window, at);
	}
	if (word)
		word->tag = word_tag(file, block);
	return word;
}

/* Remembers pages of one word. Returns how many of them were outstanding already. */
GLOBAL(u64, put_word)(struct task_state *task, struct window *window, u32 file, u64 block, u64 mask)
{
	struct word *word;
	u64 before;

	if (!task || !window)
		return 0;
	word = make_word(task, window, file, block);
	if (!word)
		return 0;
	before = word->pages;
	window->outstanding += count_bits(~before & mask);
	word->pages = before | mask;
	return count_bits(before & mask);
}

/* Remembers pages that came in. One that was outstanding already had been evicted unread: it is wasted. */
static __always_inline void put_pages(struct task_state *task, struct window *window, u32 file,
				      u64 first, u64 last)
{
	u64 wasted = 0;

	for (u64 i = 0; i < RUN_WORDS; i++) {
		u64 block = (first >> WORD_SHIFT) + i;

		if (block > last >> WORD_SHIFT)
			break;
		wasted += put_word(task, window, file, block, word_mask(block, first, last));
	}
	credit_pages(task->stage, PAGE_WASTED, wasted);
}

/* A read brought in a run. Whether it asked for these pages is known at the event of the read. */
static __always_inline void add_fresh(const struct task_state *task, struct window *window,
				      const struct run *run)
{
	struct fresh *fresh;
	u64 at, before;

	if (window->mapping != run->mapping) {
		credit_inserted(task->stage, window->fresh_pages);
		window->mapping = run->mapping;
		window->fresh_pages = 0;
		window->fresh_count = 0;
	}
	window->fresh_pages += run->last - run->first + 1;
	at = window->fresh_count;
	if (at) {
		before = at - 1;
		OPAQUE(before);
		if (before >= FRESH_RANGES)
			return;
		OPAQUE(before);
		fresh = &window->fresh[before];
		/* the last range also takes in what lies between: pages there are rarely outstanding */
		if (run->first == fresh->last + 1 || (at == FRESH_RANGES && run->first > fresh->last)) {
			fresh->last = run->last;
			return;
		}
	}
	OPAQUE(at);
	if (at >= FRESH_RANGES)
		return;
	OPAQUE(at);
	window->fresh[at].first = run->first;
	window->fresh[at].last = run->last;
	window->fresh_count = at + 1;
}

/* The window of the current task, made if there is none; NULL if there is no room for it. */
static __always_inline struct window *make_window(struct task_struct *p)
{
	struct window *window = bpf_task_storage_get(MAP(windows), p, 0, 0);
	struct control *control;

	if (window)
		return window;
	control = control_page();
	if (!control || control->windows >= control->max_windows)
		return NULL;
	window = bpf_task_storage_get(MAP(windows), p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (window)
		__sync_fetch_and_add(&control->windows, 1);
	return window;
}

/* Takes the fresh pages that the reading asks for, which were not read ahead, out of the window. Returns how many. */
static __always_inline u64 take_fresh(struct window *window, const struct reading *reading)
{
	u64 taken = 0;

	for (u64 i = 0; i < FRESH_RANGES; i++) {
		u64 first = window->fresh[i].first, last = window->fresh[i].last;

		if (i >= window->fresh_count)
			break;
		if (first < reading->index)
			first = reading->index;
		if (last > reading->end)
			last = reading->end;
		if (first <= last)
			taken += take_pages(window, tag_of(reading), first, last);
	}
	return taken;
}

static __always_inline int is_fresh(const struct window *window, u64 index)
{
	int found = 0;

	for (u64 i = 0; i < FRESH_RANGES; i++)
		found |= i < window->fresh_count && index >= window->fresh[i].first &&
			 index <= window->fresh[i].last;
	return found;
}

#endif
