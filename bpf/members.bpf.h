/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What keeps a run open: the stages of a pipeline that live and are no drivers. A driver is a stage only because it
 * reads from its own child or feeds it; when the last other stage ends, it retires, and what it starts later is none of that run.
 * Owns no map; writes pipeline.members and .drivers, and the ends of stages.
 * Called when a stage is made, joined or over.
 * Costs one addition for each of these.
 * Cannot retire more than PIPELINE_DRIVERS stages of a pipeline: others are stages until they end.
 */
#ifndef PIPELINED_MEMBERS_H
#define PIPELINED_MEMBERS_H

#include "accounting.bpf.h"

static __always_inline void count_ended(void)
{
	struct control *control = control_page();
	u64 ended;

	if (!control)
		return;
	ended = __sync_fetch_and_add(&control->ended, 1) + 1;
	if (ended == control->wake_at)
		bpf_ringbuf_output(MAP(wakeups), &ended, sizeof(ended), 0);
}

static __always_inline int is_retired(u32 index)
{
	struct stage *stage = index ? stage_at(index) : NULL;

	return stage && stage->word & WORD_RETIRED;
}

/* The stage, or the nearest one around it that has not retired. */
static __always_inline u32 unretired(u32 index)
{
	struct stage *stage;

	for_each_enclosing_stage(stage, index)
		if (!(stage->word & WORD_RETIRED))
			break;
	return index;
}

/*
 * A stage is over although its threads live: they no longer count for it, and leave it at their next event
 * (retirement.bpf.h). Returns 0 if it was over already.
 */
static __always_inline int retire(u32 index, u64 now)
{
	struct stage *stage = stage_at(index);
	u64 word;

	if (!stage || stage->word & (WORD_RETIRED | WORD_ENDED))
		return 0;
	/* before the flag: who sees that asks for the time; `now` is another task's, which may have begun before */
	stage->end_ns = now > stage->start_ns ? now : stage->start_ns;
	word = __sync_fetch_and_or(&stage->word, WORD_RETIRED);
	if (word & (WORD_RETIRED | WORD_ENDED))
		return 0;
	pipeline_add(index, -pipeline_counts(stage_counts(word)), now);
	count_ended();
	return 1;
}

/*
 * Adds to the members of a pipeline, whatever it was merged into. If none is left, its drivers retire. If this and a
 * merge happen at once, the second of the two takes along what the first left behind.
 */
GLOBAL(int, members_add)(u32 index, u64 change, u64 now)
{
	for (int i = 0; i < MAX_ALIASES; i++) {
		struct stage *stage = stage_at(index);
		struct pipeline *pipeline;
		u64 left;

		if (!stage)
			return 0;
		pipeline = &stage->pipeline;
		if (pipeline->alias) {
			index = pipeline->alias;
			continue;
		}
		left = __sync_fetch_and_add(&pipeline->members, change) + change;
		if (!pipeline->alias) {
			for (int at = 0; !(left & (ONE_STAGE - 1)) && at < PIPELINE_DRIVERS; at++)
				if (pipeline->drivers[at])
					retire(pipeline->drivers[at], now);
			return 0;
		}
		change = __sync_lock_test_and_set(&pipeline->members, 0);
		index = pipeline->alias;
	}
	return 0;
}

/* Enters a stage among the drivers of a pipeline. Returns 0 if there is no room. */
GLOBAL(int, add_driver)(u32 index, u32 driver)
{
	for (int i = 0; i < MAX_ALIASES; i++) {
		struct stage *stage = stage_at(index);
		struct pipeline *pipeline;
		int at;

		if (!stage)
			return 0;
		pipeline = &stage->pipeline;
		for (at = 0; at < PIPELINE_DRIVERS; at++)
			if (pipeline->drivers[at] == driver ||
			    !__sync_val_compare_and_swap(&pipeline->drivers[at], 0, driver))
				break;
		if (!pipeline->alias)
			return at < PIPELINE_DRIVERS;
		index = pipeline->alias;
	}
	return 0;
}

/* A stage has read from its own child, or has fed it, and that is all that joins it with others: it does not keep the run open. */
static __always_inline void become_driver(u32 index, u64 now)
{
	struct stage *stage = stage_at(index);

	if (!stage || stage->word & WORD_DRIVER || !add_driver(index, index))
		return;
	/* its child may find the same at this moment, on another CPU */
	if (!(__sync_fetch_and_or(&stage->word, WORD_DRIVER) & (WORD_DRIVER | WORD_ENDED)))
		members_add(index, -1, now);
}

/* Another edge joins the stage: if it was a driver, it no longer is. */
static __always_inline void become_member(u32 index, u64 now)
{
	struct stage *stage = stage_at(index);

	u64 word = stage ? stage->word : 0;

	if (!stage || !(word & WORD_DRIVER))
		return;
	word = __sync_fetch_and_and(&stage->word, ~WORD_DRIVER);
	/* one that is over gives up nothing any more */
	if ((word & (WORD_DRIVER | WORD_RETIRED | WORD_ENDED)) == WORD_DRIVER)
		members_add(index, 1, now);
}

#endif
