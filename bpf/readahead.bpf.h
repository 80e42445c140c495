/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The `readahead` tier: for each page that a read of a file consumes, whether it was in the page cache, read ahead in
 * time, read ahead late, or brought in by the read itself.
 * Owns the map `cpu_reads`.
 * Called when a page enters the page cache (the system call that the task is in shows for whom), when a read has looked
 * up pages (or, if only functions can be hooked, is about to), at a fault on a mapped file, and at exit.
 * A read that continues where the one before ended, with nothing brought in and no sleep between them, costs an array
 * look-up and a few comparisons: its pages are counted together with others, 512 at most. Any other costs some 300 ns.
 * Tasks in no stage end at the look-up. A file is counted when such a read begins where another file does.
 * Cannot see tmpfs and DAX, which have no such events; io_uring's workers; how much of a read that failed or was cut
 * short was consumed: it counts as whole. What a read asks for is counted as consumed when the task's next one begins,
 * or at its exit: no event shows how far it came.
 */
#ifndef PIPELINED_READAHEAD_H
#define PIPELINED_READAHEAD_H

#include "consumption.bpf.h"
#include "faults.bpf.h"
#include "syscalls.bpf.h"

#define PAGE_BITS 12

/* What the task on this CPU reads. */
struct cpu_reads {
	u64 mode;	/* enum reads_mode */
	u64 pid;	/* whose this is: thread id, and start time as in struct process; 0 = nobody's */
	u64 start_ns;
	struct reading reading;
	struct run run;
};

enum reads_mode {
	READS_UNWATCHED,	/* the task is in no stage */
	READS_AWAY,	/* it is in a stage; what it reads is in its task_state */
	READS_QUIET,	/* since its last event nothing was brought in or slept for */
	READS_CHANGED,
};

MAP_PERCPU(cpu_reads, struct cpu_reads, 1);

static __always_inline struct cpu_reads *this_cpu_reads(void)
{
	return only_entry(MAP(cpu_reads));
}

static __always_inline int is_reader(const struct cpu_reads *cpu, struct task_struct *p)
{
	return cpu->pid == p->pid && cpu->start_ns == p->start_time;
}

static __always_inline void set_reader(struct cpu_reads *cpu, struct task_struct *p)
{
	cpu->pid = p->pid;
	cpu->start_ns = p->start_time;
}

/* The switch to the current task may have been missed. Sets up this CPU's record for it; returns 1 if it is watched. */
GLOBAL(int, came_unseen)(struct cpu_reads *cpu)
{
	struct task_struct *p = bpf_get_current_task_btf();

	if (!cpu || is_reader(cpu, p))
		return 0;
	set_reader(cpu, p);
	cpu->mode = is_noted(p->pid) ? READS_AWAY : READS_UNWATCHED;
	return cpu->mode != READS_UNWATCHED;
}

/*
 * What the task on this CPU reads, if it may be in a stage, else NULL. Some kernels do not trace
 * every switch: once one was missed (repair_missed_switch), an empty record proves nothing.
 */
static __always_inline struct cpu_reads *watched_reads(void)
{
	struct cpu_reads *cpu = this_cpu_reads();
	struct control *control;

	if (!cpu || cpu->mode != READS_UNWATCHED)
		return cpu;
	control = control_page();
	return control && control->missed_switches && came_unseen(cpu) ? cpu : NULL;
}

/*
 * Does the call read the file of these pages? If not, they are metadata that it needs: of its
 * device or, on btrfs, of an inode of the same file system. The pages of a file on overlayfs
 * belong to another file.
 */
static __always_inline int reads_file(u64 p, const struct call *call, const struct run *added)
{
	struct address_space *mapping = (struct address_space *)added->mapping;
	struct file *file = file_at_fd(p, call->kind == CALL_SENDFILE ? call->args[1] : call->args[0]);

	if (file && has_mapping(file, added->mapping))
		return 1;
	if ((added->mode & S_IFMT) == S_IFBLK)
		return 0;
	return !file || BPF_CORE_READ(file, f_inode, i_sb) != BPF_CORE_READ(mapping, host, i_sb);
}

/* Are these pages of a file that the call writes? */
static __always_inline int writes_file(u64 p, const struct call *call, const struct run *added)
{
	struct file *file;

	if ((added->mode & S_IFMT) != S_IFREG)
		return 0;
	switch (call->kind) {
	case CALL_WRITE:
		return 1;
	case CALL_SPLICE:
	case CALL_COPY:
		file = file_at_fd(p, call->args[2]);
		break;
	case CALL_SENDFILE:
		file = file_at_fd(p, call->args[0]);
		break;
	default:
		return 0;
	}
	return file && has_mapping(file, added->mapping);
}

/*
 * From here to give_reading, what the current task reads is in its task_state: where a program
 * can be preempted (7.3), its task may leave the CPU meanwhile. NULL if it is in no stage.
 */
static __always_inline struct reading *take_reading(struct cpu_reads *cpu, struct task_state *task)
{
	if (!stage_of(task)) {
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

/* Which kind of run a call of this kind makes of the pages that it brings in. */
static __always_inline u32 run_kind(u32 call_kind)
{
	switch (call_kind) {
	case CALL_READ:
	case CALL_SPLICE:
	case CALL_SENDFILE:
	case CALL_COPY:
		return READ_RUN;
	case CALL_ADVISE:
		return ADVISED_RUN;
	default:
		return NO_RUN;
	}
}

/* The current task brings in pages that do not follow those that it brought in last. */
GLOBAL(int, pages_added)(struct cpu_reads *cpu, const struct run *added)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_state *task = state_of(p);
	struct call call = {};
	u32 kind;

	if (!cpu || !added || !take_reading(cpu, task))
		return 0;
	saved_call(p, &call);
	/* a fault on what it passes on to write(2) leaves the registers of that call */
	if (call.kind == CALL_WRITE && added->mapping == task->fault.mapping)
		call.kind = CALL_FAULT;
	if (writes_file(bpf_get_current_task(), &call, added)) {
		note_written(added->mapping, added->inode);
		return 0;
	}
	kind = run_kind(call.kind);
	if (kind == NO_RUN) {
		if (added->mapping == task->fault.mapping)
			fault_brought_in(&task->fault, added->first, added->last);
		return 0;
	}
	if ((kind == READ_RUN || (added->mode & S_IFMT) == S_IFBLK) &&
	    !reads_file(bpf_get_current_task(), &call, added))
		return 0;
	if (task->run.kind == kind && extends(&task->run, added)) {
		task->run.last = added->last;
	} else {
		settle(task, bpf_task_storage_get(MAP(windows), p, 0, 0), &task->reading);
		end_run(task, &task->run);
		task->run = *added;
		task->run.kind = kind;
	}
	give_reading(cpu, task, READS_CHANGED);
	return 0;
}

/* The pages of one folio were brought in; most follow those of the folio before. */
static __always_inline void folio_added(struct cpu_reads *cpu, const struct run *added)
{
	struct run *run = &cpu->run;

	if (cpu->mode == READS_CHANGED && run->kind == READ_RUN && extends(run, added))
		run->last = added->last;
	else
		pages_added(cpu, added);
}

/* Does the same call go on to further pages? */
static __always_inline int continues(const struct reading *reading, const struct reading *next)
{
	return next->mapping == reading->mapping && next->last == reading->last &&
	       next->index > reading->index;
}

/* Does a read begin in the page in which the one before it ended? */
static __always_inline int shares_page(const struct reading *reading, const struct reading *next)
{
	return next->mapping == reading->mapping && next->index == reading->end;
}

/* enum slept of a read that begins in the page in which this one ended. */
static __always_inline u32 slept_for_last(const struct reading *reading)
{
	if (reading->slept == SLEPT_ALL ||
	    (reading->slept == SLEPT_FIRST && reading->index == reading->end))
		return SLEPT_FIRST;
	return SLEPT_NOT;
}

/*
 * The page at which the call began. 6.12 and newer have no event for a batch that ends before a
 * page still under I/O (filemap_get_pages): the first event of such a call is further on.
 */
static __always_inline u64 unreported_start(struct task_struct *p, const struct reading *reading,
					const struct reading *next)
{
	u64 start = call_position(p) >> PAGE_BITS;

	if (next->mapping == reading->mapping && start <= reading->end && reading->end < next->index)
		start = reading->end + 1;
	return start < next->index ? start : next->index;
}

/*
 * Is this what the kernel reads to start a program, or the dynamic linker to find out how to map a
 * library: the first page of a file that other processes have mapped?
 */
static __always_inline int is_of_program(struct task_struct *reader, const struct reading *next)
{
	struct address_space *mapping = (struct address_space *)next->mapping;

	if (BPF_CORE_READ_BITFIELD(reader, in_execve))
		return 1;
	return !next->last && BPF_CORE_READ(mapping, i_mmap.rb_root.rb_node);
}

/* What is left of the task's reading has been consumed, and the next one takes its place. */
static __always_inline void replace_reading(struct task_struct *p, struct task_state *task,
					    struct window *window, struct reading *reading,
					    const struct reading *next)
{
	u32 shared = shares_page(reading, next), slept = slept_for_last(reading), missed;
	u32 other_file = reading->mapping != next->mapping;
	u64 start;

	if (reading->mapping)
		consume(task, window, reading, reading->index, reading->end + 1 - shared);
	missed = reading->missed;
	start = next->before_lookup ? next->index : unreported_start(p, reading, next);
	*reading = *next;
	reading->index = start;
	reading->of_program = is_of_program(p, next);
	if (other_file && !start && !reading->of_program && !call_position(p))
		credit_file(task->stage);
	if (shared) {	/* that page goes over to the next one, as what it was */
		reading->missed = missed;
		reading->slept = slept;
	}
}

/* The next reading of the current task begins, or the same one comes to further pages. */
GLOBAL(int, advance_reading)(struct cpu_reads *cpu, const struct reading *next)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_state *task = state_of(p);
	struct reading *reading;
	struct window *window;
	u32 slept;

	reading = cpu && next ? take_reading(cpu, task) : NULL;
	if (!reading)
		return 0;
	settle(task, bpf_task_storage_get(MAP(windows), p, 0, 0), reading);
	end_run(task, &task->run);
	window = bpf_task_storage_get(MAP(windows), p, 0, 0);
	if (reading->before_lookup)
		look_back_deferred(task, window, reading);
	if (!continues(reading, next))
		replace_reading(p, task, window, reading, next);
	slept = reading->before_lookup ? 0 : look_back(task, window, reading, next->index);
	if (reading->index < next->index) {
		consume(task, window, reading, reading->index, next->index);
		reading->index = next->index;
		reading->slept = SLEPT_NOT;
	}
	if (slept)
		reading->slept = slept;
	reading->base = reading->index;
	give_reading(cpu, task, reading->slept || reading->missed ? READS_CHANGED : READS_QUIET);
	return 0;
}

#define MAX_QUIET 512	/* consumed pages that may wait to be counted */

/* If the reader goes on from where its last read ended, or inside that, with nothing new: notes it and returns 1. */
static __always_inline int advance_quietly(struct cpu_reads *cpu, const struct reading *next, u64 end)
{
	struct reading *reading = &cpu->reading;

	if (cpu->mode != READS_QUIET || next->mapping != reading->mapping || reading->of_program ||
	    reading->index - reading->base >= MAX_QUIET)
		return 0;
	if (!continues(reading, next) && next->index != reading->end &&
	    next->index != reading->end + 1)
		return 0;
	reading->index = next->index;
	reading->last = next->last;
	reading->end = end;
	return 1;
}

/* A read has looked up pages, or is about to. `size` is that of the file. */
static __always_inline void pages_sought(struct cpu_reads *cpu, struct reading *next, u64 size)
{
	u64 end = size ? (size - 1) >> PAGE_BITS : next->last;

	if (end > next->last)
		end = next->last;
	if (end < next->index)
		end = next->index;
	if (advance_quietly(cpu, next, end))
		return;
	next->end = end;
	advance_reading(cpu, next);
}

/* For kernels without those tracepoints: filemap_get_pages is about to look. Since 6.3 it takes a count. */
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
	next.inode = inode_of_mapping((u64)mapping);
	next.before_lookup = 1;
	pages_sought(cpu, &next, BPF_CORE_READ(mapping, host, i_size));
	return 0;
}

static __always_inline int about_to_fault(struct vm_fault *fault)
{
	struct cpu_reads *cpu = watched_reads();

	if (cpu)
		file_fault((u64)BPF_CORE_READ(fault, vma, vm_file, f_mapping),
			   BPF_CORE_READ(fault, pgoff));
	return 0;
}

/* A task of a stage gets the CPU, or the task that has it enters a stage by its exec. */
static __always_inline void reader_gets_cpu(struct task_struct *p)
{
	struct cpu_reads *cpu = this_cpu_reads();

	if (!cpu || (is_reader(cpu, p) && cpu->mode != READS_UNWATCHED))
		return;
	set_reader(cpu, p);
	cpu->mode = READS_AWAY;
}

/* It leaves its CPU and takes along what it reads. */
static __always_inline void reader_leaves_cpu(struct task_state *task, struct task_struct *p)
{
	struct cpu_reads *cpu = this_cpu_reads();

	if (!cpu || !is_reader(cpu, p))
		return;
	if (cpu->mode > READS_AWAY) {
		task->reading = cpu->reading;
		task->run = cpu->run;
	}
	cpu->pid = 0;
	cpu->mode = READS_UNWATCHED;
}

/* Counts what a task of a stage that exits consumed last, and what it read ahead for nothing. */
static __always_inline void settle_at_exit(struct task_state *task, struct task_struct *p)
{
	struct window *window;

	reader_leaves_cpu(task, p);
	settle(task, bpf_task_storage_get(MAP(windows), p, 0, 0), &task->reading);
	end_run(task, &task->run);
	window = bpf_task_storage_get(MAP(windows), p, 0, 0);
	if (task->reading.before_lookup)
		look_back_deferred(task, window, &task->reading);
	if (task->reading.mapping)
		consume(task, window, &task->reading, task->reading.index, task->reading.end + 1);
	classify_stalls(task, STALL_OTHER);
	file_fault(0, 0);
	if (!window)
		return;
	credit_inserted(task->stage, window->fresh_pages);
	credit_pages(task->stage, PAGE_WASTED, window->outstanding);
}

/* The current task exits. A driver may have left its stage, and has its window all the same. */
static __always_inline void reader_exits(struct task_struct *p)
{
	struct task_state *task = is_noted(p->pid) ? state_of(p) : NULL;
	struct control *control = control_page();

	if (stage_of(task))
		settle_at_exit(task, p);
	if (control && control->windows && bpf_task_storage_get(MAP(windows), p, 0, 0))
		__sync_fetch_and_add(&control->windows, -1);
}

/* Direct I/O of the current task is done. */
static __always_inline void direct_read(s64 size)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_state *task = is_noted(p->pid) ? state_of(p) : NULL;

	if (stage_of(task) && size > 0)
		CREDIT_READAHEAD(task->stage, direct_bytes, size);
}

#endif
