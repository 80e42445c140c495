/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Accounts time: every thread's states, and how many stages of a pipeline are on CPU or wait for disk.
 * Owns no map; writes the words, times and counters of `stages`, and the clocks of `tasks` with what of the kernel's own
 * times is before them.
 * Called from every hook of the `sched` tier.
 * Costs an exchange of the thread's clock, and an addition for each enclosing stage; docs/BENCHMARKS.md has the figure
 * of a whole switch.
 * Credits no time to stages beyond MAX_DEPTH; what they do at a moment is counted up to the outermost.
 *
 * All sums telescope: a transition exchanges one time stamp and credits the difference, so nothing is lost or counted
 * twice whatever two CPUs do at once.
 */
#ifndef PIPELINED_ACCOUNTING_H
#define PIPELINED_ACCOUNTING_H

#include "stalls.bpf.h"

#define PIPELINE_TRIES 8	/* merges in a chain, and other CPUs that change the pipeline meanwhile */

#define CLOCK_STATE_SHIFT 60
#define CLOCK_NS_MASK ((1ULL << CLOCK_STATE_SHIFT) - 1)
_Static_assert(STATES <= 1 << (64 - CLOCK_STATE_SHIFT), "a clock has too few bits for the states");

static __always_inline u64 clock_pack(u32 state, u64 now)
{
	return (u64)state << CLOCK_STATE_SHIFT | now;
}

/* What a thread in `state` adds to the word of its stage. */
static __always_inline u64 state_counts(u32 state)
{
	return state == STATE_CPU ? WORD_CPU : state == STATE_DISK ? WORD_DISK : 0;
}

/*
 * What a stage with these counts adds to its enclosing stage: a stage that has a thread on CPU is on CPU, else it waits
 * for disk if any thread does. Without branches, as pipeline_counts: the verifier would go each combination of ways.
 */
static __always_inline u64 stage_counts(u64 word)
{
	u64 on_cpu = ((word & WORD_CPU_MASK) + WORD_CPU_MASK) >> 16;
	u64 on_disk = ((word >> 16 & WORD_CPU_MASK) + WORD_CPU_MASK) >> 16;

	return on_cpu * WORD_CPU + (on_disk & ~on_cpu) * WORD_DISK;
}

/* What stage_counts returns (0, WORD_CPU or WORD_DISK) in the units of a pipeline's moment. */
static __always_inline u64 pipeline_counts(u64 counts)
{
	return counts % WORD_DISK * PIPELINE_CPU + counts / WORD_DISK * PIPELINE_DISK;
}

/* Moves `ns` of the time in this cell, or what there is, to the cell of the next level. */
static __always_inline void raise_level(u64 *cell, u64 level, u64 ns)
{
	if (level >= LEVEL_COUNT - 1)
		return;
	if (ns > *cell)
		ns = *cell;
	__sync_fetch_and_add(cell, -ns);
	__sync_fetch_and_add(cell + 2, ns);
}

/*
 * Credits the time since the last change to the level that `moment` has. `behind`: the clock of the pipeline is ahead,
 * and `elapsed` negative. Then nothing is credited. But if the change is a stage that was on CPU all the while, because
 * its switch was missed, that time moves one level up.
 */
static __always_inline void credit_level(struct pipeline *pipeline, u64 moment, u64 elapsed,
					 int behind, u64 change)
{
	u64 level = moment / PIPELINE_CPU & PIPELINE_COUNT_MASK, *cell;

	if (level > LEVEL_COUNT - 1)
		level = LEVEL_COUNT - 1;
	OPAQUE(level);
	if (level > LEVEL_COUNT - 1)
		return;
	cell = &pipeline->time_ns[level][moment >= PIPELINE_DISK];
	if (!behind)
		__sync_fetch_and_add(cell, elapsed);
	else if (change == PIPELINE_CPU)
		raise_level(cell, level, -elapsed & PIPELINE_CLOCK_MASK);
}

/*
 * A time before the programs were attached: what ended unwatched ended at the checkpoint (resuming.bpf.h). A clock that
 * has been started since may be ahead of that by more than it can count, so such a time has this mark.
 */
#define UNWATCHED (1ULL << 63)

static __always_inline u64 marked_if_unwatched(u64 now)
{
	struct control *control = control_page();

	if (!control)
		return now;
	OPAQUE(control);	/* or bcc's clang computes the field's address before the check */
	return now > control->watched_ns ? now : now | UNWATCHED;
}

/*
 * Adds `change` to what the stages of pipeline `index` do, and credits the time since the
 * last change. A merged pipeline passes everything on to the one that it was merged into.
 * If this and a merge happen at once, the second of the two sees what the first did: both
 * are atomic. Returns 0 when done, else the pipeline to try next, with *change set to what
 * remains: the same pipeline if another CPU changed it meanwhile, or if `now` is behind its
 * clock and this is not the `slow` path.
 */
static __always_inline u32 pipeline_add_once(u32 index, u64 *change, u64 now, const int slow)
{
	struct pipeline *pipeline = pipeline_at(index);
	u64 moment, after, elapsed;
	int behind;

	if (!pipeline)
		return 0;
	if (pipeline->alias)
		return pipeline->alias;
	moment = pipeline->moment;
	elapsed = (now - moment) & PIPELINE_CLOCK_MASK;
	behind = elapsed > PIPELINE_CLOCK_MASK / 2 || (slow && elapsed && now & UNWATCHED);
	if (behind && !slow)
		return index;
	after = moment + *change;
	if (!behind)
		after = (after & ~PIPELINE_CLOCK_MASK) | (now & PIPELINE_CLOCK_MASK);
	if (__sync_val_compare_and_swap(&pipeline->moment, moment, after) != moment)
		return index;
	if (pipeline->alias) {
		*change = __sync_lock_test_and_set(&pipeline->moment, 0) & ~PIPELINE_CLOCK_MASK;
		return pipeline->alias;
	}
	credit_level(pipeline, moment, elapsed, behind, *change);
	return 0;
}

/* Repeats that until it is done, whatever the pipeline was merged into. */
GLOBAL(int, pipeline_add)(u32 index, u64 change, u64 now)
{
	struct pipeline *pipeline;

	now = marked_if_unwatched(now);
	for (int i = 0; i < PIPELINE_TRIES && index; i++)
		index = pipeline_add_once(index, &change, now, 1);
	pipeline = index ? pipeline_at(index) : NULL;
	if (!pipeline)
		return 0;
	/* too many CPUs at once: leave the time to the next change */
	__sync_fetch_and_add(&pipeline->moment, change);
	if (pipeline->alias)
		count_lost(LOST_UPDATES);
	return 0;
}

/*
 * What one context switch changes in a pipeline, added up. If a stage leaves the CPU to
 * another stage of its pipeline, the changes cancel out and the pipeline is not touched.
 */
struct deferred {
	u64 counts;
	u32 pipeline;
	u32 unused;
};

static __always_inline void apply_deferred(const struct deferred *deferred, u64 now)
{
	u64 counts = deferred->counts;
	u32 index;

	if (!counts)
		return;
	index = pipeline_add_once(deferred->pipeline, &counts, now, 0);
	if (index)
		pipeline_add(index, counts, now);
}

/*
 * Adds `change` to the word of stage `index`. If the stage thereby goes on or off CPU, or
 * begins or ends waiting for disk, its pipeline is changed too: by way of `deferred`, unless
 * that already holds a change of another pipeline. Returns the enclosing stage if *change
 * has to be added there as well, else 0.
 */
static __always_inline u32 stage_add_once(u32 index, u64 *change, struct deferred *deferred, u64 now)
{
	struct stage *stage = stage_at(index);
	u64 word, before, after;
	u32 pipeline;

	if (!stage)
		return 0;
	word = __sync_fetch_and_add(&stage->word, *change);
	before = stage_counts(word);
	after = stage_counts(word + *change);
	if (before == after)
		return 0;
	pipeline = stage->pipeline.alias ? stage->pipeline.alias : index;
	if (word & WORD_RETIRED) {
		/* its pipeline no longer counts it; the stages around it do */
	} else if (deferred && (!deferred->counts || deferred->pipeline == pipeline)) {
		deferred->counts += pipeline_counts(after) - pipeline_counts(before);
		deferred->pipeline = pipeline;
	} else {
		pipeline_add(pipeline, pipeline_counts(after) - pipeline_counts(before), now);
	}
	*change = after - before;
	return word_outer(word);
}

GLOBAL(int, stage_add)(u32 index, u64 change, u64 now)
{
	for (int i = 0; i < MAX_NESTED && index; i++)
		index = stage_add_once(index, &change, NULL, now);
	return 0;
}

/* What is left of `ns` if its last `over` ns are cut off. */
static __always_inline u64 cut_off(u64 ns, u64 over)
{
	return ns > over ? ns - over : 0;
}

/* Credits time in `state`, which is bounded, and on the run queue after it, to one stage. */
static __always_inline void credit_stage(struct stage *stage, u64 state, u64 elapsed, u64 queued)
{
	__sync_fetch_and_add(&stage->time_ns[state], elapsed);
	if (queued)
		__sync_fetch_and_add(&stage->time_ns[STATE_RUNQUEUE], queued);
}

/* Credits time that ended now to a stage that has retired: only what lies before its end. */
GLOBAL(int, credit_retired)(u32 index, u64 state, u64 elapsed, u64 queued, u64 now)
{
	struct stage *stage = stage_at(index);
	u64 over;

	OPAQUE(state);
	if (!stage || state >= STATES)
		return 0;
	over = cut_off(now, stage->end_ns);
	credit_stage(stage, state, cut_off(elapsed, cut_off(over, queued)),
		     cut_off(queued, over));
	return 0;
}

/* Credits time in `state`, and on the run queue after it, to stage `index` and those around it. */
GLOBAL(int, credit_stages)(u32 index, u64 state, u64 elapsed, u64 queued, u64 now)
{
	struct stage *stage;

	OPAQUE(state);
	if (state >= STATES)
		return 0;
	for_each_enclosing_stage(stage, index)
		if (stage->word & WORD_RETIRED)
			credit_retired(index, state, elapsed, queued, now);
		else
			credit_stage(stage, state, elapsed, queued);
	return 0;
}

/* Credits sleep on a pipe to the end slept on. */
static __always_inline void credit_end(u64 number, u64 elapsed)
{
	struct pipe_end *end = end_at(number);

	if (end)
		__sync_fetch_and_add(&end->asleep_ns, elapsed);
}

/*
 * How long a task that has no CPU, or gets one now, has waited for it, by the kernel's own account
 * (kernel/sched/stats.h). run_delay has the waits on run queues that it was moved away from
 * since its last switch-out; the rest runs since last_queued. Every task has a cfs_rq,
 * whatever its class. This saves a program at each wake-up of the host.
 */
static __always_inline u64 queued_ns(struct task_struct *p, const struct task_state *task)
{
	u64 delay = p->sched_info.run_delay - task->delay_ns;
	u64 since = p->sched_info.last_queued;

	if (since)
		delay += p->se.cfs_rq->rq->clock - since;
	return delay;
}

/* From now on the kernel's own times of a task are its stage's: not what it ran and waited before. */
static __always_inline void take_own_times(u64 p, struct task_state *task)
{
	task->delay_ns = BPF_CORE_READ(TASK(p), sched_info.run_delay);
	task->ran_ns = BPF_CORE_READ(TASK(p), se.sum_exec_runtime);
}

/* Has the sleep ended, and the wait for a CPU begun, since this clock was set? */
static __always_inline int was_woken(const struct task_state *task, u64 clock)
{
	return clock >> CLOCK_STATE_SHIFT > STATE_RUNQUEUE &&
	       task->woken_ns > (clock & CLOCK_NS_MASK);
}

/* Credits a task's time since its clock was set, in the state that the clock has, to its stage `index` and those around it. */
static __always_inline void task_credit(struct task_state *task, u32 index, u64 clock, u64 now)
{
	u64 state = clock >> CLOCK_STATE_SHIFT, queued = 0;
	u64 elapsed = now - (clock & CLOCK_NS_MASK);
	struct stage *stage;
	u32 outer;

	OPAQUE(state);
	if (state >= STATES)
		return;
	if (was_woken(task, clock) && task->woken_ns < now) {
		queued = now - task->woken_ns;
		elapsed -= queued;
	}
	if (task->born_ns) {
		task->young_ns[state] += elapsed;
		task->young_ns[STATE_RUNQUEUE] += queued;
	}
	stage = index ? stage_at(index) : NULL;
	if (stage && state == STATE_CPU)
		__sync_fetch_and_add(&task->cpu_ns, elapsed);
	if (stage && stage->word & WORD_RETIRED) {
		credit_stages(index, state, elapsed, queued, now);
	} else if (stage) {
		credit_stage(stage, state, elapsed, queued);
		outer = word_outer(stage->word);
		if (outer)
			credit_stages(outer, state, elapsed, queued, now);
	}
	if (task->slept_on && state == STATE_RUNQUEUE)
		return;	/* the sweep found it woken: its sleep has been credited */
	if (task->slept_on)
		credit_end(task->slept_on, elapsed);
	else if (task->stall.kind)
		stall_continues(task, elapsed, now);
}

/* A followed task changes to `state`. Called only from its own events. */
static __always_inline void transition(struct task_state *task, u32 state, struct deferred *deferred,
				       u64 now)
{
	u64 clock = __sync_lock_test_and_set(&task->clock, clock_pack(state, now));
	u64 change = state_counts(state);

	if (clock) {
		change -= state_counts(clock >> CLOCK_STATE_SHIFT);
		task_credit(task, task->stage, clock, now);
		task->slept_on = 0;
		if (task->stall.kind)
			stall_ended(task);
	}
	if (task->stage && change) {
		u32 outer = stage_add_once(task->stage, &change, deferred, now);

		if (outer)
			stage_add(outer, change, now);
	}
}

/* Moves a thread to `state`, off the hot path: verified once. */
GLOBAL(int, change_state)(struct task_state *task, u32 state, u64 now)
{
	if (task)
		transition(task, state, NULL, now);
	return 0;
}

/*
 * Credits a task's time up to now without changing its state. May run at the same time as
 * its own events. It does nothing while the task is on CPU and its clock has another state:
 * then its switch is being recorded on another CPU, or was missed, and then
 * repair_missed_switch needs the whole time.
 *
 * `woken_ns`: 0, or since when it has been waiting for a CPU. Its clock then says that it does: when it gets the CPU, what
 * came before this moment is not known any more. A wait for disk has ended at its wake-up (woken).
 */
GLOBAL(int, bring_up_to_date)(struct task_state *task, u32 on_cpu, u64 woken_ns, u64 now)
{
	u64 clock, state;
	u32 index;

	if (!task)
		return 0;
	clock = task->clock;
	index = task->stage;	/* before the clock is changed: as soon as it is, the task may end */
	if (!clock || now <= (clock & CLOCK_NS_MASK) ||
	    (on_cpu && clock >> CLOCK_STATE_SHIFT != STATE_CPU))
		return 0;
	state = clock >> CLOCK_STATE_SHIFT;
	if (woken_ns && state > STATE_RUNQUEUE && state != STATE_DISK) {
		if (!was_woken(task, clock))
			task->woken_ns = woken_ns;
		state = STATE_RUNQUEUE;
	}
	if (__sync_val_compare_and_swap(&task->clock, clock, clock_pack(state, now)) == clock)
		task_credit(task, index, clock, now);
	return 0;
}

/* Growth of the kernel's own counters of a task since they were last taken. */
struct usage {
	u64 user_ns, system_ns, read_bytes, written_bytes, read_calls, write_calls;
};

/*
 * How far the number that `read` reads has grown since it was last taken. If the thread has taken a later one between
 * the sweep's reading and this, that may have been its last: the sweep reads again, or the difference would be lost.
 */
#define growth(credited, read) ({                                                       \
	u64 value_ = (read);                                                            \
	u64 grown_ = value_ - __sync_lock_test_and_set(credited, value_);               \
                                                                                        \
	if ((s64)grown_ < 0) {                                                          \
		value_ = (read);                                                        \
		grown_ += value_ - __sync_lock_test_and_set(credited, value_);          \
	}                                                                               \
	grown_;                                                                         \
})

static __always_inline void take_usage(u64 p, struct task_state *task, struct usage *usage)
{
	usage->user_ns = growth(&task->user_ns, BPF_CORE_READ(TASK(p), utime));
	usage->system_ns = growth(&task->system_ns, BPF_CORE_READ(TASK(p), stime));
	usage->read_bytes = growth(&task->read_bytes, BPF_CORE_READ(TASK(p), ioac.rchar));
	usage->written_bytes = growth(&task->written_bytes, BPF_CORE_READ(TASK(p), ioac.wchar));
	usage->read_calls = growth(&task->read_calls, BPF_CORE_READ(TASK(p), ioac.syscr));
	usage->write_calls = growth(&task->write_calls, BPF_CORE_READ(TASK(p), ioac.syscw));
}

static __always_inline void add_usage(struct stage *stage, const struct usage *usage)
{
	__sync_fetch_and_add(&stage->user_ns, usage->user_ns);
	__sync_fetch_and_add(&stage->system_ns, usage->system_ns);
	__sync_fetch_and_add(&stage->read_bytes, usage->read_bytes);
	__sync_fetch_and_add(&stage->written_bytes, usage->written_bytes);
	__sync_fetch_and_add(&stage->read_calls, usage->read_calls);
	__sync_fetch_and_add(&stage->write_calls, usage->write_calls);
}

/* Credits a task's growth in CPU modes, bytes and calls to its stages. */
GLOBAL(int, credit_usage)(u64 p, struct task_state *task)
{
	struct usage usage;
	struct stage *stage;
	u32 index;

	if (!task)
		return 0;
	index = task->stage;
	take_usage(p, task, &usage);
	for_each_enclosing_stage(stage, index)
		add_usage(stage, &usage);
	return 0;
}

#endif
