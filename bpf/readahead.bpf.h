/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The `readahead` tier: for each page that a read of a file consumes, whether it was in the
 * page cache, read ahead in time, read ahead late, or brought in by the read itself.
 * Owns the maps `readahead`, `windows` and `cpu_reads`, and task_state.reading, .run and .fault.
 *
 * Told by three events: a page enters the page cache (of whose making, the call says that
 * the task is in), a read has looked for pages (or, where only functions can be hooked, is
 * about to), a fault on a mapped file. What a read asks for is counted as consumed when the
 * task's next one begins, or at its exit: no event says how far it came.
 *
 * A read that goes on where the one before ended, with nothing brought in and no sleep
 * between them, costs an array look-up and a few comparisons: its pages are settled with
 * others, 512 at most. Any other costs some 300 ns. Tasks in no stage end at the look-up.
 * Cannot see: tmpfs and DAX, which have no such events; io_uring's workers; how much of a
 * read that failed or was cut short was consumed (it counts as whole).
 */
#ifndef PIPELINED_READAHEAD_H
#define PIPELINED_READAHEAD_H

#include "sleep.bpf.h"
#include "topology.bpf.h"

#define PAGE_BITS 12

/* What the task on this CPU reads. */
struct cpu_reads {
	u64 mode;	/* enum reads_mode */
	u64 pid;	/* whose this is */
	struct reading reading;
	struct run run;
};

enum reads_mode {
	READS_UNWATCHED,	/* in no stage */
	READS_AWAY,	/* in a stage; what it reads is still in its task_state */
	READS_QUIET,	/* since its last event nothing was brought in, or slept for */
	READS_NEWS,
};

MAP_PERCPU(cpu_reads, struct cpu_reads, 1);

/*
 * Pages that a task read ahead and has not consumed: 64-page words, each found by its tag in
 * a set of four. Two files may each have 64 MiB outstanding; a word that finds no place takes
 * that of another. With the kernel's own header it must stay below 8 KiB: newer kernels
 * allocate no larger storage in a tracing program.
 */
#define WINDOW_SETS 120
#define WINDOW_WAYS 4
#define WORD_SHIFT 6
#define WORD_PAGES (1 << WORD_SHIFT)
#define MAX_WORDS 256	/* of one batch: 31 folios of 2 MiB */
#define RUN_WORDS 64	/* of one run of pages brought in: 16 MiB */

struct word {
	u64 tag;
	u64 pages;
};

/* Consecutive pages that were brought in since the task's reads were last told. */
struct fresh {
	u64 first, last;
};
#define FRESH 4

struct window {
	struct word words[WINDOW_SETS * WINDOW_WAYS];
	u64 outstanding;
	u64 mapping;	/* of the fresh pages */
	u64 fresh_pages;
	struct fresh fresh[FRESH];
	u32 freshes;
	u32 unused;
};

MAP_TASK_STORAGE(windows, struct window);

static __always_inline struct cpu_reads *this_cpu_reads(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(MAP(cpu_reads), &zero);
}

/* Is the current task, whose coming was not told, one that is watched? */
GLOBAL(int, came_unseen)(struct cpu_reads *cpu)
{
	struct task_struct *p = bpf_get_current_task_btf();
	u32 pid = p->pid;

	if (!cpu || cpu->pid == pid)
		return 0;
	cpu->pid = pid;
	cpu->mode = is_noted(pid) ? READS_AWAY : READS_UNWATCHED;
	return cpu->mode != READS_UNWATCHED;
}

/*
 * The same if the current task may be in a stage, else NULL. Some kernels do not trace every
 * switch: once one was missed (mend_missed_switch), to be told no coming is no proof.
 */
static __always_inline struct cpu_reads *watched_reads(void)
{
	struct cpu_reads *cpu = this_cpu_reads();
	struct control *page;
	u32 zero = 0;

	if (!cpu || cpu->mode != READS_UNWATCHED)
		return cpu;
	page = bpf_map_lookup_elem(MAP(control), &zero);
	return page && page->missed_switches && came_unseen(cpu) ? cpu : NULL;
}

static __always_inline u32 count_bits(u64 bits)
{
	bits -= bits >> 1 & 0x5555555555555555ULL;
	bits = (bits & 0x3333333333333333ULL) + (bits >> 2 & 0x3333333333333333ULL);
	bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return bits * 0x0101010101010101ULL >> 56;
}

/*
 * The bits of a word that stand for pages first to last, if any do. A function of its own, as
 * put_word and take_word: the verifier would follow each branch of it at each turn of a loop.
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

/* A file, in 32 bits: an address_space may be another file's before its pages are forgotten. */
static __always_inline u32 file_tag(u64 mapping, u64 inode)
{
	return ((mapping >> 4) + inode) * 0x9e3779b97f4a7c15ULL >> 32;
}

static __always_inline u32 file_of(u64 mapping)
{
	return file_tag(mapping, BPF_CORE_READ((struct address_space *)mapping, host, i_ino));
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
	OPAQUE(at);	/* and from computing the address before it is bounded */
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

/* Forgets the pages of one word that `mask` has; returns how many of them were outstanding. */
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

/* Forgets pages first to last; returns how many of them were outstanding. */
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

/* Is it this file that the task has at this descriptor? A function of its own, as word_mask. */
GLOBAL(int, is_open_at)(u64 p, u32 fd, u32 wanted)
{
	struct file *file = file_at_fd(p, fd);

	return file && file_of((u64)BPF_CORE_READ(file, f_mapping)) == wanted;
}

/* Has the task any descriptor, of its first MAX_FDS, of this file? */
GLOBAL(int, has_open)(u64 p, u32 wanted)
{
	for (u32 fd = 0; fd < MAX_FDS; fd++)
		if (is_open_at(p, fd, wanted))
			return 1;
	return 0;
}

static __always_inline void add_pages(u32 index, u64 class, u64 pages)
{
	struct readahead *entry;
	struct stage *stage;

	OPAQUE(class);
	if (!pages || class >= PAGE_CLASSES)
		return;
	for (int i = 0; i < MAX_DEPTH && index; i++) {
		entry = readahead_at(index);
		stage = stage_at(index);
		if (!entry || !stage)
			return;
		__sync_fetch_and_add(&entry->pages[class], pages);
		index = word_outer(stage->word);
	}
}

GLOBAL(int, credit_pages)(u32 index, u32 class, u64 pages)
{
	add_pages(index, class, pages);
	return 0;
}

/* The same for a number of its own. */
#define CREDIT_READAHEAD(index, field, value)                                         \
	do {                                                                          \
		u32 at_ = (index);                                                    \
		for (int i_ = 0; i_ < MAX_DEPTH && at_; i_++) {                       \
			struct readahead *entry_ = readahead_at(at_);                 \
			struct stage *stage_ = stage_at(at_);                         \
			if (!entry_ || !stage_)                                       \
				break;                                                \
			__sync_fetch_and_add(&entry_->field, value);                  \
			at_ = word_outer(stage_->word);                               \
		}                                                                     \
	} while (0)

GLOBAL(int, credit_inserted)(u32 index, u64 pages)
{
	CREDIT_READAHEAD(index, inserted, pages);
	return 0;
}

GLOBAL(int, credit_fault)(u32 index, u64 class)
{
	OPAQUE(class);
	if (class < STALL_CLASSES)
		CREDIT_READAHEAD(index, faults[class], 1);
	return 0;
}

/*
 * A word is needed and its set is full. Pages of a file that the task has closed will not be
 * consumed any more; others are lost: when they are, they will look warm.
 */
GLOBAL(int, give_way)(struct task_state *task, struct window *window, u32 at)
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
		give_way(task, window, at);
		word = word_at(window, at);
	}
	if (word)
		word->tag = word_tag(file, block);
	return word;
}

/* Remembers pages of one word; returns how many of them were outstanding already. */
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

/* Remembers pages that came in. One that is there already was evicted unread: it is wasted. */
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

/* A run that a read brought in: whether it asked for them is known when the read is told. */
static __always_inline void add_fresh(const struct task_state *task, struct window *window,
				      const struct run *run)
{
	struct fresh *fresh;
	u64 at, before;

	if (window->mapping != run->mapping) {
		credit_inserted(task->stage, window->fresh_pages);
		window->mapping = run->mapping;
		window->fresh_pages = 0;
		window->freshes = 0;
	}
	window->fresh_pages += run->last - run->first + 1;
	at = window->freshes;
	if (at) {
		before = at - 1;
		OPAQUE(before);
		if (before >= FRESH)
			return;
		OPAQUE(before);
		fresh = &window->fresh[before];
		/* the last one takes in what lies between: a page there that is outstanding is rare */
		if (run->first == fresh->last + 1 || (at == FRESH && run->first > fresh->last)) {
			fresh->last = run->last;
			return;
		}
	}
	OPAQUE(at);
	if (at >= FRESH)
		return;
	OPAQUE(at);
	window->fresh[at].first = run->first;
	window->fresh[at].last = run->last;
	window->freshes = at + 1;
}

/* The window of the current task; made if there is none and room for it. */
static __always_inline struct window *make_window(struct task_struct *p)
{
	struct window *window = bpf_task_storage_get(MAP(windows), p, 0, 0);
	struct control *page;
	u32 zero = 0;

	if (window)
		return window;
	page = bpf_map_lookup_elem(MAP(control), &zero);
	if (!page || page->windows >= page->max_windows)
		return NULL;
	window = bpf_task_storage_get(MAP(windows), p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (window)
		__sync_fetch_and_add(&page->windows, 1);
	return window;
}

/*
 * Does the call read the file of these pages? Else they are metadata that it needs on its way:
 * of its device, or, as btrfs has them, of an inode of the same file system. A file that
 * overlayfs shows has its pages in another one.
 */
static __always_inline int reads_file(u64 p, const struct call *call, const struct run *added)
{
	struct address_space *mapping = (struct address_space *)added->mapping;
	struct file *file = file_at_fd(p, call->kind == CALL_SENDFILE ? call->args[1] : call->args[0]);

	if (file && (u64)BPF_CORE_READ(file, f_mapping) == added->mapping)
		return 1;
	if ((added->mode & S_IFMT) == S_IFBLK)
		return 0;
	return !file || BPF_CORE_READ(file, f_inode, i_sb) != BPF_CORE_READ(mapping, host, i_sb);
}

static __always_inline void fault_brought_in(struct fault *fault, u64 first, u64 last)
{
	if (fault->index >= first && fault->index <= last)
		fault->missed = 1;
	if (fault->last < fault->first || first < fault->first)
		fault->first = first;
	if (last > fault->last)
		fault->last = last;
}

/* Pages of the reading from `from` to before `to` have been consumed, all slept for or none. */
GLOBAL(int, consume_alike)(struct task_state *task, struct window *window, struct reading *reading,
			   u64 from, u64 to)
{
	u64 pages = to - from, ahead = 0, missed;

	if (!task || !reading || to <= from)
		return 0;
	if (window)
		ahead = take_pages(window, tag_of(reading), from, to - 1);
	if (ahead > pages)
		ahead = pages;
	pages -= ahead;
	missed = reading->missed < pages ? reading->missed : pages;
	reading->missed -= missed;
	credit_pages(task->stage, reading->slept ? PAGE_LATE : PAGE_HIT, ahead);
	credit_pages(task->stage, PAGE_MISS, missed);
	credit_pages(task->stage, PAGE_WARM, pages - missed);
	return 0;
}

/* The same where `from`, if it is the first of the reading, may be all that was slept for. */
GLOBAL(int, consume)(struct task_state *task, struct window *window, struct reading *reading,
		     u64 from, u64 to)
{
	if (!reading || to <= from)
		return 0;
	if (reading->slept == SLEPT_FIRST) {
		reading->slept = SLEPT_ALL;
		consume_alike(task, window, reading, from, from + 1);
		reading->slept = SLEPT_NOT;
		from += 1;
	}
	return consume_alike(task, window, reading, from, to);
}

/* The same of those that went by quietly. */
static __always_inline void settle(struct task_state *task, struct window *window,
				   struct reading *reading)
{
	consume(task, window, reading, reading->base, reading->index);
	reading->base = reading->index;
}

/* Remembers the pages of a run, which is over. */
GLOBAL(int, end_run)(struct task_state *task, struct run *run)
{
	struct window *window;
	u64 pages;

	if (!task || !run || run->kind == NO_RUN)
		return 0;
	pages = run->last - run->first + 1;
	window = make_window(bpf_get_current_task_btf());
	if (!window) {
		add_lost(LOST_READAHEAD, pages);
	} else {
		put_pages(task, window, file_tag(run->mapping, run->inode), run->first, run->last);
		if (run->kind == ADVISED_RUN)
			credit_inserted(task->stage, pages);
		else
			add_fresh(task, window, run);
	}
	run->kind = NO_RUN;
	return 0;
}

/*
 * From here on until give_reading what the current task reads is in its task_state: where a
 * program can be preempted (7.3), its task may leave the CPU in the middle. NULL: in no stage.
 */
static __always_inline struct reading *take_reading(struct cpu_reads *cpu, struct task_state *task)
{
	if (!task || !task->stage || task->stage == STAGE_DEAD) {
		cpu->mode = READS_UNWATCHED;
		return NULL;
	}
	if (cpu->mode > READS_AWAY) {
		task->reading = cpu->reading;
		task->run = cpu->run;
		cpu->mode = READS_AWAY;
	}
	return &task->reading;
}

static __always_inline void give_reading(struct cpu_reads *cpu, const struct task_state *task,
					 u32 mode)
{
	cpu->reading = task->reading;
	cpu->run = task->run;
	cpu->mode = mode;
}

/* Do these pages follow a run that has room for them? */
static __always_inline int extends(const struct run *run, const struct run *added)
{
	return run->mapping == added->mapping && run->last + 1 == added->first &&
	       added->last - run->first < (RUN_WORDS - 1) * WORD_PAGES;
}

/* The current task brings in pages; they do not follow those that it brought in last. */
GLOBAL(int, pages_added)(struct cpu_reads *cpu, const struct run *added)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_state *task = state_of(p);
	u64 address = bpf_get_current_task();
	struct call call = {};
	u32 kind = READ_RUN;

	if (!cpu || !added || !take_reading(cpu, task))
		return 0;
	saved_call(p, &call);
	switch (call.kind) {
	case CALL_READ:
	case CALL_SPLICE:
	case CALL_SENDFILE:
	case CALL_FILE:
		break;
	case CALL_ADVISE:
		kind = ADVISED_RUN;
		break;
	default:
		if (added->mapping == task->fault.mapping)
			fault_brought_in(&task->fault, added->first, added->last);
		return 0;
	}
	if ((kind == READ_RUN || (added->mode & S_IFMT) == S_IFBLK) &&
	    !reads_file(address, &call, added))
		return 0;
	if (task->run.kind == kind && extends(&task->run, added)) {
		task->run.last = added->last;
	} else {
		settle(task, bpf_task_storage_get(MAP(windows), p, 0, 0), &task->reading);
		end_run(task, &task->run);
		task->run = *added;
		task->run.kind = kind;
	}
	give_reading(cpu, task, READS_NEWS);
	return 0;
}

/* Pages of one folio were brought in: most follow those of the one before. */
static __always_inline void folio_added(struct cpu_reads *cpu, const struct run *added)
{
	struct run *run = &cpu->run;

	if (cpu->mode == READS_NEWS && run->kind == READ_RUN && extends(run, added))
		run->last = added->last;
	else
		pages_added(cpu, added);
}

/* How many of the fresh pages are among those that the reading asks for: these are none read ahead. */
static __always_inline u64 take_fresh(struct window *window, const struct reading *reading)
{
	u64 taken = 0;

	for (u64 i = 0; i < FRESH; i++) {
		u64 first = window->fresh[i].first, last = window->fresh[i].last;

		if (i >= window->freshes)
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

	for (u64 i = 0; i < FRESH; i++)
		found |= i < window->freshes && index >= window->fresh[i].first &&
			 index <= window->fresh[i].last;
	return found;
}

/*
 * What was brought in since the reads were last told was so for this reading, and what was
 * slept for is the page at `index`, and the batch that it begins. Returns an enum slept.
 */
GLOBAL(int, look_back)(struct task_state *task, struct window *window, struct reading *reading,
		       u64 index)
{
	u32 class = STALL_OTHER, slept = SLEPT_NOT;
	u64 taken;

	if (!task || !reading)
		return 0;
	if (task->unclassed.count && task->unclassed.mapping == reading->mapping) {
		if (window && window->mapping == reading->mapping && is_fresh(window, index))
			class = STALL_MISS;
		else if (window && is_outstanding(window, tag_of(reading), index))
			class = STALL_LATE;
		slept = SLEPT_ALL;
	}
	class_stalls(task, class);
	if (!window || !window->fresh_pages)
		return slept;
	taken = window->mapping == reading->mapping ? take_fresh(window, reading) : 0;
	reading->missed += taken;
	if (window->fresh_pages > taken)
		credit_inserted(task->stage, window->fresh_pages - taken);
	window->fresh_pages = 0;
	window->freshes = 0;
	return slept;
}

/* The same for a reading that was told before its pages were looked for. */
static __always_inline void look_back_asked(struct task_state *task, struct window *window,
					    struct reading *reading)
{
	u32 slept = look_back(task, window, reading, reading->index);

	if (slept)
		reading->slept = slept;
}

/* Where in its file the task's read began, or no file is as long. */
static __always_inline u64 call_position(struct task_struct *p)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
	u64 fd = ARGUMENT_0(regs), position = ~0ULL, pointer = 0;
	struct fdtable *fdt;
	struct file *file = NULL;

	switch (NUMBER(p, regs)) {
	case CALLS_AT_FILE:
		break;
	case CALLS_AT_ARGUMENT:
		position = ARGUMENT_3(regs);
		if (position != ~0ULL)	/* preadv2 means the file's by -1 */
			return position;
		break;
	case CALL_AT_SPLICE:
		pointer = ARGUMENT_1(regs);
		break;
	case CALL_AT_SENDFILE:
		fd = ARGUMENT_1(regs);
		pointer = ARGUMENT_2(regs);
		break;
	default:
		return ~0ULL;
	}
	if (pointer)
		return bpf_probe_read_user(&position, sizeof(position), (void *)pointer) ? ~0ULL :
											   position;
	fdt = p->files->fdt;
	if ((u32)fd < fdt->max_fds)
		bpf_probe_read_kernel(&file, sizeof(file), fdt->fd + (u32)fd);
	return file ? BPF_CORE_READ(file, f_pos) : ~0ULL;
}

/* The same call goes on to further pages? */
static __always_inline int goes_on(const struct reading *reading, const struct reading *next)
{
	return next->mapping == reading->mapping && next->last == reading->last &&
	       next->index > reading->index;
}

/* Does a read begin within the page in which the one before it ended? */
static __always_inline int shares_page(const struct reading *reading, const struct reading *next)
{
	return next->mapping == reading->mapping && next->index == reading->end;
}

/* What was slept for, seen from a read that begins in the page in which this one ended. */
static __always_inline u32 slept_for_last(const struct reading *reading)
{
	if (reading->slept == SLEPT_ALL ||
	    (reading->slept == SLEPT_FIRST && reading->index == reading->end))
		return SLEPT_FIRST;
	return SLEPT_NOT;
}

/*
 * 6.12 and newer say nothing of a batch that ends before a page still under I/O
 * (filemap_get_pages): a call that begins with one is first told further on.
 */
static __always_inline u64 untold_pages(struct task_struct *p, const struct reading *reading,
					const struct reading *next)
{
	u64 start = call_position(p) >> PAGE_BITS;

	if (next->mapping == reading->mapping && start <= reading->end && reading->end < next->index)
		start = reading->end + 1;
	return start < next->index ? start : next->index;
}

/* The next reading of the current task begins, or the same one comes to further pages. */
GLOBAL(int, read_on)(struct cpu_reads *cpu, const struct reading *next)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_state *task = state_of(p);
	struct reading *reading;
	struct window *window;
	u32 slept;
	u64 start;

	reading = cpu && next ? take_reading(cpu, task) : NULL;
	if (!reading)
		return 0;
	settle(task, bpf_task_storage_get(MAP(windows), p, 0, 0), reading);
	end_run(task, &task->run);
	window = bpf_task_storage_get(MAP(windows), p, 0, 0);
	if (reading->asks)
		look_back_asked(task, window, reading);
	if (!goes_on(reading, next)) {
		u32 shared = shares_page(reading, next), missed, slept;

		slept = slept_for_last(reading);
		if (reading->mapping)
			consume(task, window, reading, reading->index, reading->end + 1 - shared);
		missed = reading->missed;
		start = next->asks ? next->index : untold_pages(p, reading, next);
		*reading = *next;
		reading->index = start;
		if (shared) {	/* that page goes over to the next one, as what it was */
			reading->missed = missed;
			reading->slept = slept;
		}
	}
	slept = reading->asks ? 0 : look_back(task, window, reading, next->index);
	if (reading->index < next->index) {
		consume(task, window, reading, reading->index, next->index);
		reading->index = next->index;
		reading->slept = SLEPT_NOT;
	}
	if (slept)
		reading->slept = slept;
	reading->base = reading->index;
	give_reading(cpu, task, reading->slept || reading->missed ? READS_NEWS : READS_QUIET);
	return 0;
}

#define MAX_QUIET 512	/* pages that may wait to be settled */

/* Does the reader go on from where its last read ended, or within that, with nothing new? */
static __always_inline int reads_on_quietly(struct cpu_reads *cpu, const struct reading *next, u64 end)
{
	struct reading *reading = &cpu->reading;

	if (cpu->mode != READS_QUIET || next->mapping != reading->mapping ||
	    reading->index - reading->base >= MAX_QUIET)
		return 0;
	if (!goes_on(reading, next) && next->index != reading->end &&
	    next->index != reading->end + 1)
		return 0;
	reading->index = next->index;
	reading->last = next->last;
	reading->end = end;
	return 1;
}

/* A read has looked, or is about to look, for pages. */
static __always_inline void pages_sought(struct cpu_reads *cpu, struct reading *next, u64 size)
{
	u64 end = size ? (size - 1) >> PAGE_BITS : next->last;

	if (end > next->last)
		end = next->last;
	if (end < next->index)
		end = next->index;
	if (reads_on_quietly(cpu, next, end))
		return;
	next->end = end;
	read_on(cpu, next);
}

/* The current task faults on a page of a mapped file. */
GLOBAL(int, file_fault)(u64 mapping, u64 index)
{
	struct task_state *task = state_of(bpf_get_current_task_btf());
	struct fault *fault;

	if (!task || !task->stage || task->stage == STAGE_DEAD)
		return 0;
	fault = &task->fault;
	if (fault->mapping == mapping && fault->index == index)
		return 0;	/* tried again, now that the page is there */
	if (fault->mapping)
		credit_fault(task->stage, fault->missed ? STALL_MISS :
					  fault->slept && fault->ahead ? STALL_LATE : STALL_OTHER);
	if (fault->mapping != mapping) {
		fault->first = 1;
		fault->last = 0;
	}
	fault->mapping = mapping;
	fault->index = index;
	fault->ahead = index >= fault->first && index <= fault->last;
	fault->missed = 0;
	fault->slept = 0;
	return 0;
}

/* A task of a stage gets the CPU; or the one that has it comes to be in a stage by its exec. */
static __always_inline void reads_come(u32 pid)
{
	struct cpu_reads *cpu = this_cpu_reads();

	if (!cpu || (cpu->pid == pid && cpu->mode != READS_UNWATCHED))
		return;
	cpu->pid = pid;
	cpu->mode = READS_AWAY;
}

/* It leaves its CPU: what it reads goes with it. */
static __always_inline void reads_leave(struct task_state *task, u32 pid)
{
	struct cpu_reads *cpu = this_cpu_reads();

	if (!cpu || cpu->pid != pid)
		return;
	if (cpu->mode > READS_AWAY) {
		task->reading = cpu->reading;
		task->run = cpu->run;
	}
	cpu->pid = 0;
	cpu->mode = READS_UNWATCHED;
}

/* The current task exits: what it consumed last, and what it never will. */
static __always_inline int reads_end(struct task_struct *p)
{
	struct task_state *task = is_noted(p->pid) ? state_of(p) : NULL;
	struct window *window;
	struct control *page;
	u32 zero = 0;

	if (!task || !task->stage || task->stage == STAGE_DEAD)
		return 0;
	reads_leave(task, p->pid);
	settle(task, bpf_task_storage_get(MAP(windows), p, 0, 0), &task->reading);
	end_run(task, &task->run);
	window = bpf_task_storage_get(MAP(windows), p, 0, 0);
	if (task->reading.asks)
		look_back_asked(task, window, &task->reading);
	if (task->reading.mapping)
		consume(task, window, &task->reading, task->reading.index, task->reading.end + 1);
	class_stalls(task, STALL_OTHER);
	file_fault(0, 0);
	if (!window)
		return 0;
	credit_inserted(task->stage, window->fresh_pages);
	credit_pages(task->stage, PAGE_WASTED, window->outstanding);
	page = bpf_map_lookup_elem(MAP(control), &zero);
	if (page)
		__sync_fetch_and_add(&page->windows, -1);
	return 0;
}

/* Direct I/O of the current task is done. */
static __always_inline void direct_read(s64 size)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_state *task = is_noted(p->pid) ? state_of(p) : NULL;

	if (task && task->stage && task->stage != STAGE_DEAD && size > 0)
		CREDIT_READAHEAD(task->stage, direct_bytes, size);
}

/* The current task is asleep for disk. What does it read? */
GLOBAL(int, reader_sleeps)(struct task_state *task, const struct call *call, u64 now)
{
	u64 p = bpf_get_current_task();
	u32 fd, mode, kind = OTHER_STALLS;
	struct file *file;

	if (!task || !call)
		return 0;
	fd = call->args[0];
	switch (call->kind) {
	case CALL_WRITE:
	case CALL_FILE:
	case CALL_TEE:
		return 0;
	case CALL_SENDFILE:
		fd = call->args[1];
		break;
	case CALL_READ:
	case CALL_SPLICE:
		break;
	case CALL_FAULT:
		return stall_began(task, FAULT_STALLS, 0, now);
	default:
		return stall_began(task, OTHER_STALLS, 0, now);
	}
	file = file_at_fd(p, fd);
	if (!file)
		return 0;
	mode = BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT;
	if (mode == S_IFIFO || mode == S_IFSOCK)
		return 0;	/* splice of a pipe into a file: a writer */
	if (!(BPF_CORE_READ(file, f_flags) & O_DIRECT) && (mode == S_IFREG || mode == S_IFBLK))
		kind = READ_STALLS;
	return stall_began(task, kind, (u64)BPF_CORE_READ(file, f_mapping), now);
}

#endif
