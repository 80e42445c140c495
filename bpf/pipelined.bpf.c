/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The programs of the `sched` tier: each unpacks its arguments and calls a handler.
 * Hooks: sched_switch, sched_wakeup, sched_process_fork, _exec, _exit (tp_btf), and
 * a task iterator that the sweep runs. Costs are in docs/BENCHMARKS.md.
 */
#ifdef PIPELINED_BCC
#include "bcc.bpf.h"
#else
#include "libbpf.bpf.h"
#endif

#include "functions.bpf.h"
#include "discovery.bpf.h"
#include "readahead.bpf.h"

/* Adds to a counter of each stage around `index`. */
#define for_each_stage(stage, index)                                                \
	for (int depth = 0; depth < MAX_DEPTH && (index) && (stage = stage_at(index)); \
	     depth++, index = word_outer(stage->word))

/* Optional: tells failed execs, which leave no trace in the scheduler. */
static __always_inline int exec_failed(long result)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_state *task;
	struct stage *stage;
	u32 index;

	if (result >= 0)
		return 0;
	task = state_of(p);
	if (!task || task->stage == STAGE_DEAD)
		return 0;
	index = task->stage;
	for_each_stage(stage, index)
		__sync_fetch_and_add(&stage->exec_failures, 1);
	return 0;
}

#if defined(__TARGET_ARCH_x86)
#define FIRST_ARGUMENT(regs) ((regs)->di)
#define SECOND_ARGUMENT(regs) ((regs)->si)
#else
#define FIRST_ARGUMENT(regs) ((regs)->regs[0])
#define SECOND_ARGUMENT(regs) ((regs)->regs[1])
#endif

/* Stands first: libbpf loads in this order, and a host that forbids fexit says so at once. */
SEC("?fexit")
int BPF_PROG(on_execve_exit, const struct pt_regs *regs, long result)
{
	return exec_failed(result);
}

SEC("?fentry")
int BPF_PROG(on_pipe_write, struct kiocb *iocb, struct iov_iter *from)
{
	struct task_state *task = member(bpf_get_current_task_btf());
	struct pipe_inode_info *pipe = iocb->ki_filp->f_inode->i_pipe;

	if (task)
		pipe_write_began(task, from->count, pipe->head - pipe->tail, pipe->max_usage);
	return 0;
}

/* Where there are kprobes but no fentry. Their like at the return loses calls that sleep. */
SEC("?kprobe")
PROGRAM(on_pipe_write_kprobe)(struct pt_regs *regs)
{
	struct task_state *task = member(bpf_get_current_task_btf());
	struct kiocb *iocb = (struct kiocb *)FIRST_ARGUMENT(regs);
	struct iov_iter *from = (struct iov_iter *)SECOND_ARGUMENT(regs);
	struct pipe_inode_info *pipe;

	if (!task)
		return 0;
	pipe = BPF_CORE_READ(iocb, ki_filp, f_inode, i_pipe);
	pipe_write_began(task, BPF_CORE_READ(from, count),
			 BPF_CORE_READ(pipe, head) - BPF_CORE_READ(pipe, tail),
			 BPF_CORE_READ(pipe, max_usage));
	return 0;
}

SEC("?fexit")
int BPF_PROG(on_pipe_read, struct kiocb *iocb, struct iov_iter *to, long result)
{
	pipe_read_ended(result);
	return 0;
}

SEC("?fentry")
int BPF_PROG(on_file_read, struct file *file)
{
	file_read_began(file);
	return 0;
}

SEC("?fexit")
int BPF_PROG(on_file_read_end, struct file *file, char *to, u64 count, s64 *position, long result)
{
	file_read_ended(file, result);
	return 0;
}

SEC("?fexit")
int BPF_PROG(on_splice, struct file *in, s64 *in_at, struct file *out, s64 *out_at, u64 count,
	     u32 flags, long result)
{
	spliced(in, out, result, 1);
	return 0;
}

SEC("?fexit")
int BPF_PROG(on_tee, struct file *in, struct file *out, u64 count, u32 flags, long result)
{
	spliced(in, out, result, 0);
	return 0;
}

/* The system call: what it calls is inlined. */
SEC("?fexit")
int BPF_PROG(on_vmsplice, const struct pt_regs *regs, long result)
{
	vmspliced(FIRST_ARGUMENT(regs), result);
	return 0;
}

SEC("?tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(on_page_added, struct folio *folio)
{
	struct cpu_reads *cpu = watched_reads();
	struct address_space *mapping = folio->mapping;
	struct inode *inode = mapping->host;
	struct run added = {};

	if (!cpu)
		return 0;
	added.mapping = (u64)mapping;
	added.first = folio->index;
	added.last = added.first + FOLIO_PAGES(folio) - 1;
	added.inode = inode->i_ino;
	added.mode = inode->i_mode;
	folio_added(cpu, &added);
	return 0;
}

SEC("?tp_btf/mm_filemap_get_pages")
int BPF_PROG(on_pages_got, struct address_space *mapping, unsigned long index, unsigned long last)
{
	struct cpu_reads *cpu = watched_reads();

	struct reading next = { .mapping = (u64)mapping, .index = index, .last = last };
	struct inode *inode = mapping->host;

	if (!cpu)
		return 0;
	next.inode = inode->i_ino;
	pages_sought(cpu, &next, inode->i_size);
	return 0;
}

SEC("?tp_btf/mm_filemap_fault")
PROGRAM(on_file_fault)(u64 *context)
{
	struct cpu_reads *cpu = watched_reads();
	u64 arguments[2];

	if (!cpu)
		return 0;
	bpf_probe_read_kernel(arguments, sizeof(arguments), context);
	return file_fault(arguments[0], arguments[1]);
}

/* Before those tracepoints: filemap_get_pages is about to look. Since 6.3 it is told a count. */
static __always_inline int about_to_read(struct kiocb *iocb, u64 iterator_or_count)
{
	struct cpu_reads *cpu = watched_reads();
	struct address_space *mapping;
	struct reading next = {};
	u64 count = iterator_or_count, position;

	if (!cpu)
		return 0;
	if ((s64)count < 0)
		count = BPF_CORE_READ((struct iov_iter *)iterator_or_count, count);
	if (!count)
		return 0;
	mapping = BPF_CORE_READ(iocb, ki_filp, f_mapping);
	position = BPF_CORE_READ(iocb, ki_pos);
	next.mapping = (u64)mapping;
	next.index = position >> PAGE_BITS;
	next.last = (position + count - 1) >> PAGE_BITS;
	next.inode = BPF_CORE_READ(mapping, host, i_ino);
	next.asks = 1;
	pages_sought(cpu, &next, BPF_CORE_READ(mapping, host, i_size));
	return 0;
}

SEC("?fentry")
PROGRAM(on_get_pages)(u64 *context)
{
	u64 arguments[2];	/* the second one's type differs by kernel */

	bpf_probe_read_kernel(arguments, sizeof(arguments), context);
	return about_to_read((struct kiocb *)arguments[0], arguments[1]);
}

SEC("?kprobe")
PROGRAM(on_get_pages_kprobe)(struct pt_regs *regs)
{
	return about_to_read((struct kiocb *)FIRST_ARGUMENT(regs), SECOND_ARGUMENT(regs));
}

static __always_inline int about_to_fault(struct vm_fault *fault)
{
	struct cpu_reads *cpu = watched_reads();

	if (cpu)
		file_fault((u64)BPF_CORE_READ(fault, vma, vm_file, f_mapping),
			   BPF_CORE_READ(fault, pgoff));
	return 0;
}

SEC("?fentry")
int BPF_PROG(on_filemap_fault, struct vm_fault *fault)
{
	return about_to_fault(fault);
}

SEC("?kprobe")
PROGRAM(on_filemap_fault_kprobe)(struct pt_regs *regs)
{
	return about_to_fault((struct vm_fault *)FIRST_ARGUMENT(regs));
}

SEC("?tp_btf/sched_process_exit")
int BPF_PROG(on_reader_exit, struct task_struct *p)
{
	return reads_end(p);
}

SEC("?tp_btf/iomap_dio_complete")
int BPF_PROG(on_direct_io, struct kiocb *iocb, int error, long result)
{
	if (!(iocb->ki_flags & IOCB_WRITE))
		direct_read(result);
	return 0;
}

/* Counts a sleep on a pipe that is none of their own for stage `index` and those around it. */
GLOBAL(int, add_sleep)(u32 index, u32 side)
{
	struct stage *stage;

	for_each_stage(stage, index) {
		if (side == SIDE_READ)
			__sync_fetch_and_add(&stage->sleeps_empty, 1);
		else
			__sync_fetch_and_add(&stage->sleeps_full, 1);
	}
	return 0;
}

/* Counts a sleep: for the end slept on, and for every other stage around the task. */
GLOBAL(u32, count_sleep)(struct task_state *task, struct fifo *fifo)
{
	struct stage *stage;
	u32 end, index;

	if (!task || !fifo)
		return 0;
	end = known_end(task->stage, &fifo->key, fifo->side);
	task->slept_on = end;
	index = task->stage;
	for_each_stage(stage, index) {
		if (end && index == (end - 1) >> 3)
			__sync_fetch_and_add(&stage->ends[(end - 1) & (STAGE_ENDS - 1)].sleeps, 1);
		else if (fifo->side == SIDE_READ)
			__sync_fetch_and_add(&stage->sleeps_empty, 1);
		else
			__sync_fetch_and_add(&stage->sleeps_full, 1);
	}
	return end;
}

/* A thread ended: its CPU time and, of a main thread, its life, for stages it is not the root of. */
GLOBAL(int, credit_child)(u32 index, u32 tgid, u64 cpu, u64 life)
{
	struct stage *stage;

	for_each_stage(stage, index) {
		if (stage->pid == tgid)
			continue;
		__sync_fetch_and_add(&stage->children_cpu_ns, cpu);
		__sync_fetch_and_add(&stage->children_life_ns, life);
	}
	return 0;
}

/* The thread is gone: its time ends with its last switch-out, when exit_mm is behind it. */
static __always_inline void end_task(struct task_struct *p, struct task_state *task, u64 now)
{
	u64 clock;
	u32 index;

	if (task->stage && task->stage != STAGE_DEAD) {
		credit_usage(bpf_get_current_task(), task);
		credit_child(task->stage, p->tgid, p->se.sum_exec_runtime,
			     p->pid == p->tgid ? now - p->start_time : 0);
	}
	clock = __sync_lock_test_and_set(&task->clock, 0);
	if (clock)
		task_credit(task, clock, now);
	forget(task, p->pid);
	index = __sync_lock_test_and_set(&task->stage, STAGE_DEAD);
	if (!index || index == STAGE_DEAD)
		return;
	if (clock)
		stage_add(index, -state_counts(clock >> CLOCK_STATE_SHIFT), now);
	stage_put(index, now);
}

static __always_inline int is_young(struct task_struct *p, struct task_state *task, u64 now)
{
	if (!task->born_ns)
		return 0;
	if (now - task->born_ns < YOUNG_NS)
		return 1;
	task->born_ns = 0;
	if (!task->stage)
		task->clock = 0;
	return 0;
}

#define UNJOINED_LOOKS 4	/* sleeps on a pipe without partner that are worth a look */

static __always_inline int is_joined(u32 end)
{
	struct stage *stage = stage_at(end >> 3);

	return stage && stage->ends[end & (STAGE_ENDS - 1)].key.pad & END_JOINED;
}

/* Whether to look for who is at the other end of the pipe slept on: -1, or enum ask. */
GLOBAL(int, is_unjoined)(u32 index, const struct fifo *fifo, u32 no_exec)
{
	struct stage *stage;
	struct pipe_end *end;
	u32 known;

	if (!fifo)
		return -1;
	known = known_end(index, &fifo->key, fifo->side);
	if (!known)
		return no_exec ? ASK_NOT : ASK_USED;
	stage = stage_at((known - 1) >> 3);
	if (!stage)
		return -1;
	end = &stage->ends[(known - 1) & (STAGE_ENDS - 1)];
	if (end->key.pad & END_JOINED || end->sleeps >= UNJOINED_LOOKS)
		return -1;
	return end->sleeps ? ASK_EAGERLY : no_exec ? ASK_NOT : ASK_USED;
}

#define FIRST_LOOKS 32		/* looks at a task that is in no stage, or young, one by one, */
#define LOOK_INTERVAL 256	/* and from then on, while it is young */

static __always_inline int worth_a_look(struct task_state *task)
{
	u32 looks = task->looks++;

	return looks < FIRST_LOOKS || looks % LOOK_INTERVAL == 0;
}

static __always_inline u64 file_at(struct task_struct *p, u32 fd)
{
	struct files_struct *files = p->files;
	struct fdtable *fdt = files->fdt;
	u64 file = 0;

	/* no call at all for the first two of a table that never grew */
	if (fdt->max_fds == NR_OPEN_DEFAULT && fd < 2)
		return fd ? (u64)files->fd_array[1] : (u64)files->fd_array[0];
	if (fd < fdt->max_fds)
		bpf_probe_read_kernel(&file, sizeof(file), fdt->fd + fd);
	return file;
}

/* The common case: a member sleeps on the same end of the same pipe as the time before. */
static __always_inline int sleep_again(struct task_struct *p, struct task_state *task,
				       const struct call *call, struct held *held, u64 now)
{
	u32 end = task->cached_end - 1;
	struct stage *stage;

	if (!task->cached_end || call->args[0] != task->cached_fd ||
	    (call->kind != CALL_READ && call->kind != CALL_WRITE) ||
	    p->__state & (TASK_STOPPED_OR_TRACED | TASK_FROZEN) ||
	    file_at(p, task->cached_fd) != task->cached_file)
		return 0;
	stage = stage_at(end >> 3);
	if (!stage)
		return 0;
	transition(task, call->kind == CALL_READ ? STATE_PIPE_EMPTY : STATE_PIPE_FULL, held, now);
	task->slept_on = end + 1;
	__sync_fetch_and_add(&stage->ends[end & (STAGE_ENDS - 1)].sleeps, 1);
	if (word_outer(stage->word))
		add_sleep(word_outer(stage->word), call->kind == CALL_READ ? SIDE_READ : SIDE_WRITE);
	return 1;
}

/* Everything else: finds out why, meets new pipes, and remembers a joined end. */
static __always_inline void sleep_anew(struct task_struct *p, struct task_state *task, int look,
				       u64 now)
{
	u64 address = bpf_get_current_task();
	u32 zero = 0, known;
	struct asleep *page = bpf_map_lookup_elem(MAP(asleep), &zero);
	struct sleep *sleep;
	int ask;

	if (!page)
		return;
	sleep = &page->sleep;
	__builtin_memset(page, 0, sizeof(*page));
	saved_call(p, &page->call);
	look_asleep(p, address, &page->call, sleep);
	task->cached_end = 0;
	ask = sleep->on_fifo ? is_unjoined(task->stage, &sleep->fifo,
					   p->group_leader->flags & PF_FORKNOEXEC) :
			       -1;
	if (ask >= 0) {
		if (sleep->fd < 2)
			look = 1;
		else
			meet_sleeper(address, task, &sleep->fifo, sleep->fd, now);
	}
	if (look)
		meet_self(task, ask > 0 ? ask : ASK_NOT, now);
	if (!task->clock)
		return;
	change_state(task, sleep->state, now);
	if (sleep->state == STATE_DISK)
		reader_sleeps(task, &page->call, now);
	if (!sleep->on_fifo)
		return;
	known = count_sleep(task, &sleep->fifo);
	/* in one stage, at its own end of a joined pipe: next time is quick */
	if (known && (known - 1) >> 3 == task->stage && is_joined(known - 1) &&
	    (page->call.kind == CALL_READ || page->call.kind == CALL_WRITE)) {
		task->cached_fd = sleep->fd;
		task->cached_file = file_at(p, sleep->fd);
		task->cached_end = known;
	}
}

/*
 * Notes the kernel's own times of a task that leaves its CPU. It was on it, but some
 * kernels do not trace every switch (seen on a 6.18 guest: none away from one host
 * thread), so its coming may have been missed. These times then say how long ago it was.
 */
static __always_inline void mend_missed_switch(struct task_struct *p, struct task_state *task,
					       u64 now)
{
	u64 total = p->se.sum_exec_runtime, ran = total - task->ran_ns, clock = task->clock;
	u64 delay = p->sched_info.run_delay - task->delay_ns;
	struct control *page;
	u32 zero = 0;

	task->ran_ns = total;
	task->delay_ns += delay;
	if (!clock || clock >> CLOCK_STATE_SHIFT == STATE_CPU)
		return;
	page = bpf_map_lookup_elem(MAP(control), &zero);
	if (page && task->stage)
		__sync_fetch_and_add(&page->missed_switches, 1);
	if (ran > now - (clock & CLOCK_NS_MASK))
		ran = now - (clock & CLOCK_NS_MASK);
	task->woken_ns = now - ran - delay;
	change_state(task, STATE_CPU, now - ran);
}

/* What makes new pipes likely makes it worth to look again. */
static __always_inline void follow_again(struct task_struct *p, struct task_state *task)
{
	task->looks = 0;
	note(task, p->pid);
}

/* The latest exec of its root names a stage; a wrapper lends its place to its child. */
GLOBAL(int, rename_stage)(u64 p, u32 index, u64 now)
{
	struct stage *stage;
	u32 tgid = BPF_CORE_READ(TASK(p), tgid);
	u32 parent = BPF_CORE_READ(TASK(p), real_parent, tgid);
	u32 above = BPF_CORE_READ(TASK(p), real_parent, real_parent, tgid);

	for_each_stage(stage, index) {
		__sync_fetch_and_add(&stage->execs, 1);
		if (stage->pid == tgid)
			stage->exec_ns = now;
		if (stage->name_pid == tgid) {
			name_stage(stage, p);
		} else if (stage->flags & STAGE_WRAPPER &&
			   (stage->name_pid == parent || stage->name_pid == above)) {
			stage->name_pid = tgid;
			name_stage(stage, p);
		}
	}
	return 0;
}

/* The current process has become another program. */
static __always_inline void has_execd(struct task_struct *p, struct task_state *task, u64 now)
{
	task->exec_id = p->self_exec_id;
	take_up_pending(task, now);
	task->exec_ns = now;
	task->cached_end = 0;
	meet_self(task, ASK_USED, now);
	rename_stage(bpf_get_current_task(), task->stage, now);
	leave_ends(bpf_get_current_task(), task->stage);
	meet_arguments(bpf_get_current_task(), task, now);
	meet_alone(bpf_get_current_task(), task, now);
	task->born_ns = 0;
	if (!task->stage)
		task->clock = 0;
	follow_again(p, task);
}

/*
 * Some execs are not told (seen on 7.3): likely, where a tracepoint's program can be preempted,
 * it does not run for another task meanwhile (bpf_prog.active). in_execve: it will be told yet.
 */
static __always_inline int missed_exec(struct task_struct *self, const struct task_state *task)
{
	return self->self_exec_id != task->exec_id && !BPF_CORE_READ_BITFIELD(self, in_execve);
}

static __always_inline void switch_out(struct task_struct *p, struct task_state *task,
				       bool preempt, struct held *held, u64 *clock)
{
	int runnable = preempt || !p->__state, look;
	struct call call = {};
	u64 now;

	if (!task->clock && !task->pending && !(p->__state & TASK_DEAD)) {
		if (runnable)
			return;
		/* in no stage, and no pipe was found: the sweep looks at it from now on */
		if (task->looks++ >= FIRST_LOOKS) {
			forget(task, p->pid);
			return;
		}
	}
	now = *clock = bpf_ktime_get_ns();
	mend_missed_switch(p, task, now);
	take_up_pending(task, now);
	if (p->__state & TASK_DEAD) {
		end_task(p, task, now);
		return;
	}
	if (missed_exec(p, task))
		has_execd(p, task, now);
	look = p->flags & p->group_leader->flags & PF_FORKNOEXEC && is_young(p, task, now) &&
	       worth_a_look(task);
	if (runnable) {
		if (look)
			meet_self(task, ASK_NOT, now);
		if (task->clock)
			transition(task, STATE_RUNQUEUE, held, now);
		return;
	}
	saved_call(p, &call);
	if (!look && sleep_again(p, task, &call, held, now))
		return;
	sleep_anew(p, task, look, now);
}

static __always_inline void count_fork(u32 index)
{
	struct stage *stage;

	for_each_stage(stage, index)
		__sync_fetch_and_add(&stage->forks, 1);
}

/* Outside the process tree that `pipelined run` watches? Its tasks get no storage. */
static __always_inline int is_unwatched(u32 tgid)
{
	u32 zero = 0;
	struct control *page = bpf_map_lookup_elem(MAP(control), &zero);

	return page && page->watch_pid && page->watch_pid != tgid;
}

/*
 * A new task without storage: another task was stopped on this CPU within the kernel's
 * own storage code (bpf_task_storage_busy), so none could be had at the fork. Or the
 * task is older than the daemon, and the first sweep has not come to it yet.
 */
LOCAL(struct task_state *, born_late)(struct task_struct *p)
{
	struct task_struct *leader = p->group_leader;
	struct task_state *born, *above;
	u64 now;

	if (p->flags & PF_KTHREAD || is_unwatched(0))
		return NULL;
	born = bpf_task_storage_get(MAP(tasks), p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!born) {
		count_lost(LOST_TASKS);
		return NULL;
	}
	note(born, p->pid);
	born->exec_id = p->self_exec_id;
	now = bpf_ktime_get_ns();
	if (now - p->start_time > YOUNG_NS)
		return born;
	if (p->tgid == p->pid)
		leader = p->real_parent->group_leader;
	above = state_of(leader);
	if (p->tgid == p->pid) {
		born->born_ns = p->start_time;
		born->parent_pid = leader->tgid;
		born->parent_start_ns = leader->start_time;
	}
	if (above && above->stage && above->stage != STAGE_DEAD) {
		born->stage = above->stage;
		stage_hold(born->stage);
	}
	if (born->born_ns || born->stage)
		born->clock = clock_pack(STATE_RUNQUEUE, p->start_time);
	return born;
}

/*
 * How long the task that gets the CPU has waited for it, by the kernel's own account
 * (kernel/sched/stats.h): what it waited on run queues that it was moved away from since
 * its last switch-out is in run_delay already, the rest runs since last_queued. Every
 * task has a cfs_rq, whatever its class. Spares a program at each wake-up of the host.
 */
static __always_inline u64 queued_ns(struct task_struct *p, const struct task_state *task)
{
	u64 delay = p->sched_info.run_delay - task->delay_ns;
	u64 since = p->sched_info.last_queued;

	if (since)
		delay += p->se.cfs_rq->rq->clock - since;
	return delay;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct task_state *task;
	struct held held = {};
	u64 now = 0;

	if (is_noted(prev->pid)) {
		task = state_of(prev);
		if (task) {
			reads_leave(task, prev->pid);
			switch_out(prev, task, preempt, &held, &now);
		}
	}
	if (is_noted(next->pid)) {
		task = state_of(next);
		if (!task)
			task = born_late(next);
		if (task && (task->clock || task->pending)) {
			if (!now)
				now = bpf_ktime_get_ns();
			if (task->clock >> CLOCK_STATE_SHIFT > STATE_RUNQUEUE &&
			    !was_woken(task, task->clock))
				task->woken_ns = now - queued_ns(next, task);
			take_up_pending(task, now);
			transition(task, STATE_CPU, &held, now);
			if (task->stage)
				reads_come(next->pid);
		}
	}
	apply_held(&held, now);
	return 0;
}

/*
 * Most sleeps are split from the run queue when the task runs again (queued_ns). Not so
 * a wait for disk: levels must not show one while the sleeper waits for its CPU. Nor a
 * wake-up on an idle CPU or on another one: the run queue's clock is not set again
 * before the switch that it asks for (RQCF_REQ_SKIP), and a virtual CPU takes its time
 * to come to life or to take the interrupt.
 */
static __always_inline int clock_stands_still(struct task_struct *p)
{
	struct rq *rq = p->se.cfs_rq->rq;

	return rq->nr_running == 1 || rq->cpu != bpf_get_smp_processor_id();
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *p)
{
	struct task_state *task;
	u32 state;

	if (!is_noted(p->pid) || !(waits_for_io(p) || clock_stands_still(p)))
		return 0;
	task = state_of(p);
	if (!task)
		return 0;
	/* else it is not followed, or was woken before it had left its CPU: it never slept */
	state = task->clock >> CLOCK_STATE_SHIFT;
	if (state == STATE_DISK)
		change_state(task, STATE_RUNQUEUE, bpf_ktime_get_ns());
	else if (state > STATE_RUNQUEUE)
		task->woken_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	struct task_state *task = state_of(parent), *born;
	int process = child->tgid != parent->tgid;
	u64 now;

	if (child->flags & PF_KTHREAD || (!task && is_unwatched(parent->tgid)))
		return 0;
	now = bpf_ktime_get_ns();
	if (task) {
		take_up_pending(task, now);
		/* a subshell about to have children: they inherit what it is a stage of */
		if (parent->group_leader->flags & PF_FORKNOEXEC)
			meet_self(task, ASK_NOT, now);
	}
	if (process && task && task->stage && task->stage != STAGE_DEAD)
		count_fork(task->stage);
	born = bpf_task_storage_get(MAP(tasks), child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!born) {
		u32 *bucket = bucket_of(child->pid);

		if (is_unwatched(0))
			count_lost(LOST_TASKS);
		else if (bucket)
			*bucket += 1;	/* born_late makes up for it */
		return 0;
	}
	note(born, child->pid);
	born->exec_id = child->self_exec_id;
	if (process) {
		born->born_ns = now;
		note_fed_pipes(bpf_get_current_task(), born);
		born->parent_pid = parent->tgid;
		born->parent_start_ns = parent->group_leader->start_time;
		if (task)
			follow_again(parent, task);
	}
	if (task && task->stage && task->stage != STAGE_DEAD) {
		born->stage = task->stage;
		stage_hold(born->stage);
	}
	if (process || born->stage)
		born->clock = clock_pack(STATE_RUNQUEUE, now);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *p)
{
	struct task_state *task = state_of(p);

	if (task) {
		has_execd(p, task, bpf_ktime_get_ns());
		if (task->stage)
			reads_come(p->pid);
	}
	return 0;
}

static __always_inline void count_exit(u32 tgid, u32 index)
{
	struct stage *stage;

	for_each_stage(stage, index)
		if (stage->pid != tgid)
			__sync_fetch_and_add(&stage->exited_children, 1);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *p)
{
	struct task_state *task;
	u64 now;

	if (p->flags & PF_KTHREAD || p->signal->live.counter)
		return 0;
	task = state_of(p);
	if (!task)
		return 0;
	now = bpf_ktime_get_ns();
	if (missed_exec(p, task))
		has_execd(p, task, now);
	take_up_pending(task, now);
	/* the last look, its files are still open: it may never have exec'd nor slept */
	meet_self(task, ASK_USED, now);
	if (task->stage == STAGE_DEAD)
		return 0;
	if (task->stage)
		meet_feeding_parent(p, task, now);
	if (is_root(task->stage, p->tgid))
		for (u32 slot = 0; slot < STAGE_ENDS; slot++)
			try_end_again(task->stage, slot, now);
	note(task, p->pid);
	name_again(bpf_get_current_task(), task->stage);
	count_exit(p->tgid, task->stage);
	return 0;
}

static __always_inline int is_on_cpu(struct task_struct *p)
{
	return p->se.cfs_rq->rq->curr->pid == p->pid;	/* task_struct.on_cpu is gone in 7.3 */
}

LOCAL(u32, present_state)(struct task_struct *p, u64 address)
{
	struct sleep sleep = {};
	struct call call = {};

	if (is_on_cpu(p))
		return STATE_CPU;
	if (!p->__state)
		return STATE_RUNQUEUE;
	saved_call(p, &call);
	look_asleep(p, address, &call, &sleep);
	return sleep.state;
}

/* A task that is in no stage: it was running before the daemon, or not known to use a pipe. */
LOCAL(int, pick_up)(struct task_struct *p, struct task_state *task, u64 address, u64 now)
{
	struct task_struct *leader = p->group_leader;
	struct task_state *above;
	struct meeting meeting = { .address = address, .now = now, .flags = STAGE_FROM_NOW };
	struct control *page;
	u32 zero = 0, state;

	page = bpf_map_lookup_elem(MAP(control), &zero);
	if (page && p->start_time < page->began_ns)
		meeting.flags |= STAGE_PARTIAL;

	if (p->tgid == p->pid)
		leader = p->real_parent->group_leader;
	above = state_of(leader);
	if (above && above->stage != STAGE_DEAD &&
	    (p->tgid != p->pid || p->start_time >= above->exec_ns))
		meeting.stage = above->stage;
	if (!claim(task))
		return 0;
	if (p->tgid == p->pid)
		meet(p, task, &meeting);
	if (meeting.stage) {
		note(task, p->pid);
		credit_usage(address, task);	/* from now on only what is new */
		state = present_state(p, address);
		adopt(task, meeting.stage, state, now);
	}
	release(task);
	if (meeting.held)
		stage_put(meeting.held, now);
	return 0;
}

/* Brings the clocks of every pipeline around a stage up to now. */
static __always_inline void tick_pipelines(u32 index, u64 now)
{
	struct stage *stage;

	for_each_stage(stage, index)
		pipeline_add(index, 0, now);
}

/* The sweep is over: whoever made it may be whom to watch. */
static __always_inline void watch_sweeper(void)
{
	u32 zero = 0;
	struct control *page = bpf_map_lookup_elem(MAP(control), &zero);

	if (page && page->watch_pid == WATCH_SWEEPER)
		page->watch_pid = bpf_get_current_pid_tgid() >> 32;
}

#define BORN_NS (NS_PER_S / 10)	/* a fork takes no longer, from the list of tasks to its event */

/* The sweep: every task of every stage is credited up to now. */
SEC("iter/task")
PROGRAM(sweep_tasks)(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct task_state *task;
	u64 address = 0;
	u64 now;

	if (!p)
		watch_sweeper();
	if (!p || p->flags & PF_KTHREAD || p->__state & TASK_DEAD)
		return 0;
	bpf_probe_read_kernel(&address, sizeof(address), &ctx->task);
	now = bpf_ktime_get_ns();
	task = state_of(p);
	if (!task) {
		/* is on_fork about to run for it, on another CPU? */
		if (is_unwatched(0) || now - p->start_time < BORN_NS)
			return 0;
		task = bpf_task_storage_get(MAP(tasks), p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (!task) {
			count_lost(LOST_TASKS);
			return 0;
		}
		task->exec_id = p->self_exec_id;
		note(task, p->pid);
	}
	if (task->stage == STAGE_DEAD)
		return 0;
	if (!task->stage && !task->clock)
		pick_up(p, task, address, now);
	if (!task->stage)
		return 0;
	bring_up_to_date(task, is_on_cpu(p), now);
	credit_usage(address, task);
	name_again(address, task->stage);
	tick_pipelines(task->stage, now);
	return 0;
}

struct sys_exit_args {
	u64 common;
	s64 nr;
	s64 result;
};

SEC("?tracepoint/syscalls/sys_exit_execve")
PROGRAM(on_execve_return)(struct sys_exit_args *ctx)
{
	return exec_failed(ctx->result);
}

SEC("?tracepoint/syscalls/sys_exit_execveat")
PROGRAM(on_execveat_return)(struct sys_exit_args *ctx)
{
	return exec_failed(ctx->result);
}
