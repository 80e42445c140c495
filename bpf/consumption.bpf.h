/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What reads consumed, page by page: warm, read ahead in time or late, or missed.
 * Owns no map; writes task_state.reading and .run.
 * Called by the `readahead` tier when a read begins, goes on or ends, and at exit.
 * Costs a search of the window for each 64 pages of a read.
 * Cannot see how far a read came before the task's next event: no event reports that.
 */
#ifndef PIPELINED_CONSUMPTION_H
#define PIPELINED_CONSUMPTION_H

#include "window.bpf.h"

/* Pages of the reading from `from` to before `to` have been consumed: all were slept for, or none. */
GLOBAL(int, consume_alike)(struct task_state *task, struct window *window, struct reading *reading,
			   u64 from, u64 to)
{
	u64 pages = to - from, ahead = 0, missed, warm;

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
	warm = pages - missed;
	credit_pages(task->stage, PAGE_WARM, warm);
	if (warm)
		credit_not_input(task->stage, reading->of_program ? ALWAYS_NS : written_ns(reading), warm);
	return 0;
}

/* Counts pages as consumed, where `from` may be the only page that was slept for. */
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

/* Counts the consumed pages of a reading that were not counted yet. */
static __always_inline void settle(struct task_state *task, struct window *window,
				   struct reading *reading)
{
	consume(task, window, reading, reading->base, reading->index);
	reading->base = reading->index;
}

/* A run is over: remembers its pages. */
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
 * Did the task sleep for the file that it reads, of which these are the mappings? The pages of a file on overlayfs
 * belong to the file below.
 */
GLOBAL(int, slept_for)(u64 slept, u64 read)
{
	if (slept == read)
		return 1;
	return slept && BPF_CORE_READ((struct address_space *)slept, host, i_sb) !=
				BPF_CORE_READ((struct address_space *)read, host, i_sb);
}

/*
 * What was brought in since the task's last event was brought in for this reading; what was
 * slept for is the page at `index`, and the batch that it begins. Returns an enum slept.
 */
GLOBAL(int, look_back)(struct task_state *task, struct window *window, struct reading *reading,
		       u64 index)
{
	u32 class = STALL_OTHER, slept = SLEPT_NOT;
	u64 taken;

	if (!task || !reading)
		return 0;
	if (task->unclassed.count && slept_for(task->unclassed.mapping, reading->mapping)) {
		if (window && window->mapping == reading->mapping && is_fresh(window, index))
			class = STALL_MISS;
		else if (window && is_outstanding(window, tag_of(reading), index))
			class = STALL_LATE;
		slept = SLEPT_ALL;
	}
	classify_stalls(task, class);
	if (!window || !window->fresh_pages)
		return slept;
	taken = window->mapping == reading->mapping ? take_fresh(window, reading) : 0;
	reading->missed += taken;
	if (window->fresh_pages > taken)
		credit_inserted(task->stage, window->fresh_pages - taken);
	window->fresh_pages = 0;
	window->fresh_count = 0;
	return slept;
}

/* Looks back (look_back) on a reading whose event came before its pages were looked up. */
static __always_inline void look_back_deferred(struct task_state *task, struct window *window,
					    struct reading *reading)
{
	u32 slept = look_back(task, window, reading, reading->index);

	if (slept)
		reading->slept = slept;
}

#endif
