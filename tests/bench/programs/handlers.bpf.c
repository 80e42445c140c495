// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The handlers of the `functions` tier, called in a loop from a raw tracepoint's program that
 * handlers.c runs by BPF_PROG_RUN: their cost, for kernels that allow no program at functions.
 */
#include "../../../bpf/libbpf.bpf.h"
#include "../../../bpf/functions.bpf.h"

#define CALLS 2000	/* BPF_PROG_RUN has no repeat for raw tracepoints */

static __always_inline struct file *own_file(int fd)
{
	return bpf_get_current_task_btf()->files->fd_array[fd];
}

/* As on_pipe_write does it: stdout is the pipe. */
static long call_pipe_write(u64 index, void *ctx)
{
	struct task_state *task = member(bpf_get_current_task_btf());
	struct pipe_inode_info *pipe = own_file(1)->f_inode->i_pipe;

	if (task)
		pipe_write_began(task, 4096 + index, pipe->head - pipe->tail, pipe->max_usage);
	return 0;
}

static long call_pipe_read(u64 index, void *ctx)
{
	pipe_read_ended(own_file(1), 4096 + index);	/* any pipe */
	return 0;
}

/* Both ends of one read. Descriptor 0 is a file. */
static long call_file_read(u64 index, void *ctx)
{
	file_read_began(own_file(0));
	file_read_ended(own_file(0), 4096 + index);
	return 0;
}

static long call_nothing(u64 index, void *ctx)
{
	return 0;
}

#define RUN(name)                                           \
	SEC("raw_tp")                                       \
	int run_##name(void *ctx)                           \
	{                                                   \
		return bpf_loop(CALLS, call_##name, NULL, 0); \
	}

RUN(nothing)
RUN(pipe_write)
RUN(pipe_read)
RUN(file_read)
