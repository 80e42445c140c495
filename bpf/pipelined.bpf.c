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
#include "sweep.bpf.h"
#include "switching.bpf.h"

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
