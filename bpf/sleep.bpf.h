/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Why a task sleeps, from the registers that it saved and the file it waits for; and which stall thereby begins.
 * Owns the map `asleep`.
 * Called at sched_switch when a followed task goes to sleep, unless on the same pipe end as the time before; for the
 * first sleeps of any other task; and by the sweep.
 * About 150 ns if a pipe is found, 40 ns if the call takes no file.
 * Cannot see what io_uring or restart_syscall wait for: their state is `other`.
 */
#ifndef PIPELINED_SLEEP_H
#define PIPELINED_SLEEP_H

#include "fifo.bpf.h"
#include "syscalls.bpf.h"

/* The state of a task that sleeps in a read or write of a file of this kind. */
static __always_inline u32 file_state(u32 mode, u32 io_sleep)
{
	if (mode == S_IFSOCK)
		return STATE_NET;
	if (mode == S_IFREG || mode == S_IFBLK)
		return STATE_DISK;
	return io_sleep ? STATE_DISK : STATE_OTHER;
}

/* The FIFO that a sleeping call waits for, as *fd and *fifo. Returns 0 if it waits for none. */
static __always_inline int slept_fifo(u64 p, const struct call *call, u32 *fd,
				      struct fifo *fifo)
{
	u32 in = call->args[0], out = call->args[0];
	struct pipe_inode_info *pipe;

	if (call->kind == CALL_SPLICE)
		out = call->args[2];
	else if (call->kind == CALL_TEE)
		out = call->args[1];
	else if (call->kind == CALL_SENDFILE)
		in = call->args[1];
	*fd = in;
	if (fifo_at(p, in, fifo)) {
		if (call->kind == CALL_READ)
			fifo->side = SIDE_READ;
		else if (call->kind == CALL_WRITE)
			fifo->side = SIDE_WRITE;
		/* if the pipe that it reads from is not empty, the call waits for the other file */
		pipe = fifo->pipe;
		if (in == out || BPF_CORE_READ(pipe, head) == BPF_CORE_READ(pipe, tail))
			return 1;
	}
	if (in == out)
		return 0;
	*fd = out;
	return fifo_at(p, out, fifo);
}

struct sleep {
	u32 state;
	u32 on_fifo;
	u32 fd;
	u32 unused;
	struct fifo fifo;
};

/*
 * What sched_switch finds out about a sleep. It is kept off the stack: before 6.5 the frames
 * of all nested calls, rounded up to 32 bytes each, must fit into 512 bytes. Interrupts are
 * off at a switch, so nobody else uses it meanwhile.
 */
struct asleep {
	struct call call;
	struct sleep sleep;
};

MAP_PERCPU(asleep, struct asleep, 1);

/* The state of a task that sleeps in a call of this kind, which is no read or write of a descriptor. */
static __always_inline u32 call_state(u32 kind, u32 io_sleep)
{
	switch (kind) {
	case CALL_COPY:
	case CALL_FILE:
	case CALL_FAULT:
		return io_sleep ? STATE_DISK : STATE_OTHER;
	case CALL_WAIT:
		return STATE_CHILD;
	case CALL_LOCK:
		return STATE_LOCK;
	case CALL_POLL:
		return STATE_POLL;
	case CALL_NET:
		return STATE_NET;
	case CALL_SLEEP:
		return STATE_SLEEP;
	default:
		return STATE_OTHER;
	}
}

/*
 * Does the freezer of cgroup v2 hold the task? It lets it sleep as many others do (do_freezer_trap in kernel/signal.c),
 * and not in a state of its own as those of cgroup v1 and of a suspend do.
 */
static __always_inline int is_frozen(u64 p, u32 state)
{
	return state & TASK_FREEZABLE && state & TASK_INTERRUPTIBLE &&
	       BPF_CORE_READ(TASK(p), jobctl) & JOBCTL_TRAP_FREEZE;
}

/* Why a task that is about to leave its CPU, or is off it, does not run. */
GLOBAL(int, why_asleep)(u64 p, const struct call *call, struct sleep *sleep)
{
	u32 state, io_sleep;

	if (!call || !sleep)
		return 0;
	io_sleep = call->task_state & TASK_UNINTERRUPTIBLE;
	if (call->kind >= CALL_READ && call->kind <= CALL_SENDFILE) {
		sleep->on_fifo = slept_fifo(p, call, &sleep->fd, &sleep->fifo);
		if (sleep->on_fifo)
			state = sleep->fifo.side == SIDE_READ ? STATE_PIPE_EMPTY : STATE_PIPE_FULL;
		else
			state = file_state(sleep->fifo.mode, io_sleep);
	} else {
		state = call_state(call->kind, io_sleep);
	}
	if (call->iowait) {
		state = STATE_DISK;
		sleep->on_fifo = 0;
	}
	if (call->task_state & (TASK_STOPPED_OR_TRACED | TASK_FROZEN) || is_frozen(p, call->task_state)) {
		state = STATE_STOPPED;
		sleep->on_fifo = 0;
	}
	sleep->state = state;
	return 0;
}

static __always_inline int waits_for_io(struct task_struct *task)
{
	return BPF_CORE_READ_BITFIELD(task, in_iowait);
}

static __always_inline void look_asleep(struct task_struct *task, u64 address,
					struct call *call, struct sleep *sleep)
{
	call->task_state = task->__state;
	call->iowait = waits_for_io(task);
	why_asleep(address, call, sleep);
}

/* Does the task hold this pipe at descriptor `reading` - 1? */
GLOBAL(int, reads_pipe)(u64 p, u32 reading, const struct pipe_key *key)
{
	struct fifo fifo = {};

	return key && reading && fifo_at(p, reading - 1, &fifo) && same_pipe(&fifo.key, key);
}

#define READS_STDIN 1

/* The descriptor in whose read a task is asleep, plus 1; 0 if it is not in one. */
LOCAL(u32, reads_asleep)(struct task_struct *p)
{
	struct call call = {};

	saved_call(p, &call);
	return p->__state && call.kind == CALL_READ ? call.args[0] + 1 : 0;
}

/* The current task goes to sleep for disk: a stall begins if it reads. */
GLOBAL(int, reader_sleeps)(struct task_state *task, const struct call *call, u64 now)
{
	u64 p = bpf_get_current_task();
	u32 fd, mode, kind = OTHER_STALLS, writes = 0;
	struct file *file;

	if (!task || !call)
		return 0;
	fd = call->args[0];
	switch (call->kind) {
	case CALL_FILE:
	case CALL_TEE:
		return 0;
	case CALL_WRITE:
		writes = 1;
		break;
	case CALL_SENDFILE:
		fd = call->args[1];
		break;
	case CALL_READ:
	case CALL_SPLICE:
	case CALL_COPY:
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
		/* a write to a pipe waits for disk in a fault on a mapped file alone; splice of a pipe into a file: a writer */
		return writes ? stall_began(task, FAULT_STALLS, 0, now) : 0;
	if (writes)
		return 0;
	if (!(BPF_CORE_READ(file, f_flags) & O_DIRECT) && (mode == S_IFREG || mode == S_IFBLK))
		kind = READ_STALLS;
	return stall_began(task, kind, (u64)BPF_CORE_READ(file, f_mapping), now);
}

#endif
