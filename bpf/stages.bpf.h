/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The life of a stage: made, entered by threads, held, moved into another one, ended.
 * Owns the maps `stages` and `free_stages`; writes task_state.stage, .pending and .claimed.
 * Called at fork, exec and exit, when a pipe is discovered, and by the sweep.
 * About 1 us for a new stage, nothing per switch of a known one.
 * Makes no stage further in than MAX_NESTED; what runs there belongs to the stage around it.
 */
#ifndef PIPELINED_STAGES_H
#define PIPELINED_STAGES_H

#include "cgroups.bpf.h"
#include "members.bpf.h"
#include "naming.bpf.h"

#define RETRIES 8

static __always_inline void stage_hold(u32 index)
{
	struct stage *stage = stage_at(index);

	if (index && stage)
		__sync_fetch_and_add(&stage->live, 1);
}

/* Gives up one hold on a stage. The last one ends it, and possibly those around it. */
GLOBAL(int, stage_put)(u32 index, u64 now)
{
	/* no walk outwards as elsewhere: `word` must be the one that this very step has changed */
	for (int i = 0; i < MAX_NESTED && index; i++) {
		struct stage *stage = stage_at(index);
		u64 word;

		/* whoever had found it alive may hold it once more after its end: it has given up all already */
		if (!stage || __sync_fetch_and_add(&stage->live, -1) != 1 || stage->word & WORD_ENDED)
			return 0;
		if (!(stage->word & WORD_RETIRED)) {
			pipeline_add(index, 0, now);
			stage->end_ns = now;	/* after its time: a sweep that sees the one sees the other */
			count_ended();
		}
		/* it may be becoming a driver, retiring or being moved: whichever comes first gives up what it held */
		word = __sync_fetch_and_or(&stage->word, WORD_ENDED);
		if (word & WORD_ENDED)
			return 0;
		if (!(word & (WORD_RETIRED | WORD_DRIVER)))
			members_add(index, -1, now);
		index = word_outer(word);
	}
	return 0;
}

/* A stage has been moved: takes what it counts for from the old enclosing stage to the new one. */
static __always_inline void move_counts(u32 outer, u32 old, u64 counts, u64 now)
{
	if (outer && counts)
		stage_add(outer, counts, now);
	if (old && counts)
		stage_add(old, -counts, now);
}

/* Moves a stage, with what it counts for now, into another enclosing stage. Returns the one that it was in, or 0. */
static __always_inline u32 set_outer(u32 index, u32 outer, u64 now)
{
	struct stage *stage = stage_at(index);

	if (!stage || outer == index)
		return 0;
	stage_hold(outer);
	for (int i = 0; i < RETRIES; i++) {
		u64 word = stage->word, counts = stage_counts(word);
		u32 old = word_outer(word);
		u64 moved = (word & ~((u64)INDEX_MASK << WORD_OUTER_SHIFT)) |
			    (u64)outer << WORD_OUTER_SHIFT;

		if (__sync_val_compare_and_swap(&stage->word, word, moved) != word)
			continue;
		if (word & WORD_ENDED) {
			stage_put(outer, now);
			return 0;
		}
		move_counts(outer, old, counts, now);
		stage_put(old, now);
		return old;
	}
	stage_put(outer, now);
	count_lost(LOST_UPDATES);
	return 0;
}

/* The root's life so far counts for its new stage. Returns its time on CPU. */
static __always_inline u64 copy_life(struct stage *stage, const struct task_state *task)
{
	for (int i = 0; i < STATES; i++)
		stage->time_ns[i] = task->young_ns[i];
	stage->user_ns = task->user_ns;
	stage->system_ns = task->system_ns;
	stage->read_bytes = task->read_bytes;
	stage->written_bytes = task->written_bytes;
	stage->read_calls = task->read_calls;
	stage->write_calls = task->write_calls;
	return task->young_ns[STATE_CPU];
}

/* Who the root of a new stage is, which process forked it, which is its starter, and what its job and instance. */
static __always_inline void describe_root(struct stage *stage, u64 p, const struct task_state *task)
{
	set_process(&stage->root, p);
	stage->namer = stage->root;
	if (task && task->parent.pid)
		stage->parent = task->parent;
	else
		set_process(&stage->parent, (u64)BPF_CORE_READ(TASK(p), real_parent));
	if (task) {
		stage->starter = task->starter;
		stage->job = task->job;
		stage->instance = task->instance;
	}
	stage->cgroup = cgroup_of(p);
}

static __always_inline int is_deep(u32 outer)
{
	struct stage *stage;

	for_enclosing_stages(depth, MAX_NESTED - 1, stage, outer)
		;
	return outer != 0;
}

/*
 * A new stage, without a name, whose root is `p`, inside stage `outer`, with a pipeline of its own. `task` is
 * the root's state. With STAGE_FROM_NOW in `flags`, its life so far does not count. The caller
 * holds the stage. Returns 0 if there is no room.
 */
GLOBAL(u32, fill_stage)(u64 p, struct task_state *task, u32 outer, u32 flags, u64 now)
{
	u64 start = now, cpu = 0;
	struct pipeline *pipeline;
	struct stage *stage;
	u32 index;

	if (is_deep(outer) || bpf_map_pop_elem(MAP(free_stages), &index)) {
		count_lost(LOST_STAGES);
		return 0;
	}
	stage = stage_at(index);
	if (!stage)
		return 0;
	pipeline = &stage->pipeline;
	if (task && task->born_ns && !(flags & STAGE_FROM_NOW)) {
		start = task->born_ns;
		cpu = copy_life(stage, task);
	}
	describe_root(stage, p, task);
	stage->flags = flags & ~STAGE_FROM_NOW;
	stage->live = 1;
	pipeline->moment = now & PIPELINE_CLOCK_MASK;
	pipeline->start_ns = start;
	pipeline->time_ns[0][0] = now - start - cpu;
	pipeline->time_ns[1][0] = cpu;
	pipeline->members = ONE_STAGE + 1;
	stage_hold(outer);
	stage->word = (u64)outer << WORD_OUTER_SHIFT | (flags & STAGE_LAST_PART ? WORD_LAST_PART : 0);
	return index;
}

/* Names a new stage. Apart from fill_stage: the stack is short there. */
GLOBAL(int, publish_stage)(u32 index, u64 p, const struct task_state *task)
{
	struct stage *stage = stage_at(index);

	if (!stage)
		return 0;
	name_stage(stage, p, task);
	stage->start_ns = stage->pipeline.start_ns;	/* from now on the sweep sees it */
	return 0;
}

/* A stage was made inside these for a pipe: bytes pass between processes of theirs. */
GLOBAL(int, mark_enclosing)(u32 index)
{
	struct stage *stage;

	for_each_enclosing_stage(stage, index)
		__sync_fetch_and_or(&stage->flags, STAGE_ENCLOSES);
	return 0;
}

static __always_inline u32 create_stage(u64 p, struct task_state *task, u32 outer, u32 flags,
					u64 now)
{
	u32 index;

	if (!task->born_ns || flags & STAGE_FROM_NOW)
		credit_usage(p, task);	/* what it did before does not count for this stage */
	if (outer && !(flags & STAGE_ALONE))
		mark_enclosing(outer);
	index = fill_stage(p, task, outer, flags, now);
	if (index)
		publish_stage(index, p, task);
	return index;
}

/* In the task's own context: it enters stage `index`, whatever its state. */
GLOBAL(int, enter_stage)(struct task_state *task, u32 index, u64 now)
{
	u64 counts;
	u32 old;

	if (!task)
		return 0;
	old = task->stage;
	if (!index || index == old || old == STAGE_DEAD)
		return 0;
	if (task->clock)
		bring_up_to_date(task, 1, 0, now);
	else
		task->clock = clock_pack(STATE_CPU, now);
	task->cached_end = 0;	/* of the stage that it leaves */
	counts = state_counts(task->clock >> CLOCK_STATE_SHIFT);
	stage_hold(index);
	/* another CPU may have adopted this task into a stage of its process meanwhile */
	if (__sync_val_compare_and_swap(&task->stage, old, index) != old) {
		stage_put(index, now);
		return 0;
	}
	stage_add(index, counts, now);
	if (old) {
		stage_add(old, -counts, now);
		stage_put(old, now);
	}
	return 0;
}

/* Not in the task's own context: puts a task that is in no stage into one. Returns 1 if it did. */
static __always_inline int adopt(struct task_state *task, u32 index, u32 state, u64 now)
{
	u64 counts = state_counts(state);

	stage_hold(index);
	if (__sync_val_compare_and_swap(&task->stage, 0, index) != 0) {
		stage_put(index, now);
		return 0;
	}
	stage_add(index, counts, now);
	/* if the task is followed, or had an event meanwhile, it has counted itself or will */
	if (__sync_val_compare_and_swap(&task->clock, 0, clock_pack(state, now)) != 0)
		stage_add(index, -counts, now);
	else if (is_gone(task) && __sync_lock_test_and_set(&task->clock, 0))
		stage_add(index, -counts, now);	/* it has ended meanwhile: end_task found no clock, or takes it first */
	return 1;
}

/* The stage that another task has assigned to this one is given up, which has ended. */
static __always_inline void give_up_pending(struct task_state *task, u64 now)
{
	u32 index = __sync_lock_test_and_set(&task->pending, 0);

	if (index)
		stage_put(index, now);
}

/* In the task's own context: it enters the stage that another task has assigned to it, if any. */
static __always_inline void take_up_pending(struct task_state *task, u64 now)
{
	u32 index = task->pending;

	if (!index)
		return;
	/* in this order: who looks for its stage finds it in one place or the other */
	enter_stage(task, index, now);
	if (__sync_val_compare_and_swap(&task->pending, index, 0) == index)
		stage_put(index, now);	/* the hold that came with the assignment */
}

/* Another task that was noted, so that its end is seen, has a stage now: until then it may have forgotten itself at a sleep. */
static __always_inline void note_again(struct task_state *task, u32 thread)
{
	if (!is_gone(task))
		note(task, thread);
}

#define CLAIM_TRIES 64	/* take as long as it takes to make a stage, a few us */

/* Passes some time. Few turns: the verifier goes through each. */
GLOBAL(int, wait_a_moment)(void)
{
	for (int i = 0; i < 4; i++)
		bpf_ktime_get_ns();
	return 0;
}

/*
 * A process may be found to be a stage by itself and by a child on another CPU at the same
 * time. Only one of them makes the stage; it claims the task and releases it afterwards.
 * Returns 0 if the other one is making it.
 */
GLOBAL(int, claim)(struct task_state *task)
{
	if (!task)
		return 0;
	for (int i = 0; i < CLAIM_TRIES; i++) {
		if (__sync_val_compare_and_swap(&task->claimed, 0, 1) == 0)
			return 1;
		wait_a_moment();
	}
	return 0;
}

static __always_inline void release(struct task_state *task)
{
	__sync_lock_test_and_set(&task->claimed, 0);
}

/* Is the process of task `p` the root of this stage? */
GLOBAL(int, is_root)(u32 index, u64 p)
{
	struct stage *stage = index ? stage_at(index) : NULL;

	return stage && is_process(&stage->root, p);
}

/* The innermost stage of a process if it is the root of that, else 0. */
static __always_inline u32 own_stage(const struct task_state *task, u64 p)
{
	u32 index = task->stage;
	struct stage *stage = index ? stage_at(index) : NULL;

	return stage && !(stage->word & WORD_RETIRED) && is_process(&stage->root, p) ? index : 0;
}

/* own_stage, but a shell that runs the last part of a pipeline (STAGE_LAST_PART in `flags`) has another stage for that. */
static __always_inline u32 own_stage_for(const struct task_state *task, u64 p, u32 flags)
{
	u32 index = own_stage(task, p);
	struct stage *stage = index ? stage_at(index) : NULL;

	return stage && flags & ~stage->flags & STAGE_LAST_PART ? 0 : index;
}

/* The stage of which another process is the root, made if there is none. The caller holds it. */
GLOBAL(u32, stage_of_other)(u64 p, struct task_state *task, u32 state, u32 flags, u64 now)
{
	u32 index, pending;

	if (is_gone(task))
		return 0;
	index = own_stage_for(task, p, flags);
	if (index) {
		stage_hold(index);
		return index;
	}
	if (!claim(task))
		return 0;
	pending = task->pending;
	index = own_stage_for(task, p, flags);
	if (pending || index) {
		index = pending ? pending : index;
		stage_hold(index);
	} else {
		note(task, BPF_CORE_READ(TASK(p), pid));
		if (!task->clock)
			take_own_times(p, task);
		index = create_stage(p, task, unretired(task->stage), flags | STAGE_FROM_NOW, now);
		if (index && !(task->stage == 0 && task->clock == 0 &&
			       adopt(task, index, state, now))) {
			stage_hold(index);
			__sync_lock_test_and_set(&task->pending, index);
			/* it may have ended meanwhile: whichever of the two sees the other gives it up */
			if (is_gone(task))
				give_up_pending(task, now);
		}
		note_again(task, BPF_CORE_READ(TASK(p), pid));
	}
	release(task);
	return index;
}

static __always_inline void stage_exec(u32 index, u64 now)
{
	struct stage *stage = stage_at(index);

	if (index && stage) {
		stage->exec_ns = now;
		stage->execs = 1;
	}
}

/* The current process becomes the root of a new stage with these flags. Returns 0 if there is no room. */
static __always_inline u32 become_stage(u64 p, struct task_state *task, u32 flags, u64 now)
{
	u32 index;

	if (!claim(task))
		return 0;
	take_up_pending(task, now);
	index = own_stage_for(task, p, flags);
	if (!index) {
		index = create_stage(p, task, task->stage, flags, now);
		if (index) {
			enter_stage(task, index, now);
			stage_put(index, now);
		}
	}
	release(task);
	return index;
}

#endif
