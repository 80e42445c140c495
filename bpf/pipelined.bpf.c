/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The BPF programs: each unpacks its arguments and calls a handler in the header of its concern.
 * Owns no map.
 * Hooks of the `sched` tier: sched_switch, sched_wakeup, sched_process_fork, _exec and _exit, failed execs, signals, and a
 * task iterator. Hooks of the `functions` and `readahead` tiers: functions and tracepoints of pipes and of the page cache.
 * daemon/pipelined/kernel/hooks.py says which program is attached where. Costs are in docs/BENCHMARKS.md.
 */
#ifdef PIPELINED_BCC
#include "bcc.bpf.h"
#else
#include "libbpf.bpf.h"
#endif

#include "functions.bpf.h"
#include "signals.bpf.h"
#include "sweep.bpf.h"
#include "switching.bpf.h"

#if defined(__TARGET_ARCH_x86)
#define FIRST_ARGUMENT(regs) ((regs)->di)
#define SECOND_ARGUMENT(regs) ((regs)->si)
#else
#define FIRST_ARGUMENT(regs) ((regs)->regs[0])
#define SECOND_ARGUMENT(regs) ((regs)->regs[1])
#endif

/* This one is first: libbpf loads in this order, and a host that forbids fexit refuses it at once. */
SEC("?fexit")
int BPF_PROG(on_execve_exit, const struct pt_regs *regs, long result)
{
	return exec_returned(result);
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

SEC("?fexit")
int BPF_PROG(on_pipe_write_end, struct kiocb *iocb, struct iov_iter *from, long result)
{
	pipe_write_ended(iocb->ki_filp, result);
	return 0;
}

/* For hosts with kprobes but without fentry. There is none for reads: kretprobes lose calls that sleep. */
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
	pipe_read_ended(iocb->ki_filp, result);
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

/* The system call itself: the functions that it calls are inlined. */
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
	added.inode = inode_of(inode->i_ino, inode->i_generation);
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
	next.inode = inode_of(inode->i_ino, inode->i_generation);
	pages_sought(cpu, &next, inode->i_size);
	return 0;
}

SEC("?tp_btf/mm_filemap_fault")
PROGRAM(on_file_fault)(u64 *context)
{
	u64 arguments[2];

	if (!watched_reads())
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
	reader_exits(p);
	return 0;
}

SEC("?tp_btf/iomap_dio_complete")
int BPF_PROG(on_direct_io, struct kiocb *iocb, int error, long result)
{
	/* what is not waited for completes in an interrupt, of whichever task */
	if (!iocb->ki_complete && !(iocb->ki_flags & IOCB_WRITE))
		direct_read(result);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	switched(preempt, prev, next);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *p)
{
	woken(p);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	task_forks(parent, child);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *p, int old_pid, struct linux_binprm *program)
{
	process_execs(p, program);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *p)
{
	process_exits(p);
	return 0;
}

SEC("?tp_btf/signal_generate")
int BPF_PROG(on_signal, int signal, const void *info, struct task_struct *target, int group, int result)
{
	signal_sent(signal, target, result);
	return 0;
}

/* The last call has no task. */
SEC("iter/task")
PROGRAM(sweep_tasks)(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	u64 address = 0;

	if (!p) {
		watch_sweeper();
		release_some(bpf_ktime_get_ns());
		return 0;
	}
	bpf_probe_read_kernel(&address, sizeof(address), &ctx->task);
	sweep_task(p, address);
	save_task(ctx->meta->seq, p);
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
	return exec_returned(ctx->result);
}

SEC("?tracepoint/syscalls/sys_exit_execveat")
PROGRAM(on_execveat_return)(struct sys_exit_args *ctx)
{
	return exec_returned(ctx->result);
}
