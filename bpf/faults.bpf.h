/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Faults on files that are mapped into memory: was the page there, on its way, or missing?
 * Owns no map; writes task_state.fault.
 * Called at each fault of a stage's task on a mapped file, and when such a task brings in pages.
 * Costs a few comparisons, and two array look-ups for each enclosing stage.
 * Cannot see pages that were mapped without a fault of their own (fault-around, huge pages).
 */
#ifndef PIPELINED_FAULTS_H
#define PIPELINED_FAULTS_H

#include "page_counts.bpf.h"

static __always_inline void fault_brought_in(struct fault *fault, u64 first, u64 last)
{
	if (fault->index >= first && fault->index <= last)
		fault->missed = 1;
	if (fault->last < fault->first || first < fault->first)
		fault->first = first;
	if (last > fault->last)
		fault->last = last;
}

/* The current task faults on a page of a mapped file. */
GLOBAL(int, file_fault)(u64 mapping, u64 index)
{
	struct task_state *task = state_of(bpf_get_current_task_btf());
	struct fault *fault;

	if (!stage_of(task))
		return 0;
	fault = &task->fault;
	if (fault->mapping == mapping && fault->index == index)
		return 0;	/* the same fault again, now that the page is there */
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

#endif
