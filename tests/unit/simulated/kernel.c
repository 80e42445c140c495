/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel of a host that is made up: tasks, files and pipes as the programs see them, and the events at which they
 * run, each with the same handler as in bpf/pipelined.bpf.c. What happens, and when, is decided in host.py, which calls
 * the functions at the end of this file; they are in the order of a process's life.
 * Memory of tasks, files and inodes is reused, the one freed last first.
 */
#include "native.h"
#include "sweep.bpf.h"
#include "switching.bpf.h"

#define EXPORTED __attribute__((visibility("default")))

struct host_task {
	struct task_struct task;
	struct pt_regs regs;
	struct files_struct files;
	struct fdtable table;
	struct signal_struct signal;
	struct mm_struct memory;
	char arguments[64];
	u64 on_cpu_ns;	/* since when */
	u32 listed;	/* the iterator sees it */
};

struct host_pipe {
	struct inode inode;
	struct pipe_inode_info pipe;
} __attribute__((aligned(1 << INODE_ALIGNMENT)));

enum { FILES = 512, PIPES = 128 };

static struct host_task tasks_of_host[TASKS], idle[CPUS], sweeper;
static struct open_file open_files[FILES];
static struct host_pipe host_pipes[PIPES];
static struct rq run_queues[CPUS];
static struct cfs_rq fair[CPUS];
static struct super_block pipefs = { .s_dev = 13, .s_magic = PIPEFS_MAGIC }, disk = { .s_dev = 8 };
static struct kernfs_node folder = { .id = 7, .name = "session.scope" };
static struct cgroup group = { .kn = &folder };
static struct css_set set = { .dfl_cgrp = &group };
static const struct cred user = { .uid = { 1000 }, .euid = { 1000 } };

static u32 number_of(const struct task_struct *task)
{
	return (const struct host_task *)task - tasks_of_host;
}

static long bpf_task_pt_regs(struct task_struct *task)
{
	return (long)&((struct host_task *)task)->regs;
}

static void set_up(struct host_task *p, u32 cpu)
{
	memset(p, 0, sizeof(*p));
	p->listed = 1;
	p->task.group_leader = p->task.real_parent = &p->task;
	p->task.files = &p->files;
	p->files.fdt = &p->table;
	p->table.fd = p->files.fd_array;
	p->table.max_fds = NR_OPEN_DEFAULT;
	p->task.signal = &p->signal;
	p->task.mm = &p->memory;
	p->task.cgroups = &set;
	p->task.real_cred = &user;
	p->task.se.cfs_rq = &fair[cpu];
}

static u32 cpu_of(const struct host_task *p)
{
	return p->task.se.cfs_rq->rq->cpu;
}

/* An event of the task that is on this CPU. */
static void in_context(u32 cpu)
{
	current_cpu = cpu;
	current = run_queues[cpu].curr;
}

extern struct map __start_maps[], __stop_maps[];

EXPORTED u32 maps_of_programs(struct map **first)
{
	*first = __start_maps;
	return __stop_maps - __start_maps;
}

/* Another daemon starts on this host. */
EXPORTED void observe(void (*at_interrupt)(void))
{
	interrupt = at_interrupt;
	calls_to_interrupt = 0;
}

EXPORTED void boot(void)
{
	clock_ns = 1000 * NS_PER_S;
	memset(tasks_of_host, 0, sizeof(tasks_of_host));
	for (u32 cpu = 0; cpu < CPUS; cpu++) {
		fair[cpu].rq = &run_queues[cpu];
		run_queues[cpu] = (struct rq){ .curr = &idle[cpu].task, .cpu = cpu };
		set_up(&idle[cpu], cpu);
	}
	set_up(&sweeper, CPUS - 1);
	strcpy(sweeper.task.comm, "pipelined");
}

EXPORTED u64 now(void)
{
	return clock_ns;
}

EXPORTED void pass_time(u64 ns)
{
	clock_ns += ns;
}

/* The daemon sweeps in the middle of the next program, at its n-th call of a helper from now on. */
EXPORTED void interrupt_after(u32 calls)
{
	calls_to_interrupt = calls;
}

EXPORTED long update_element(struct map *map, const void *key, const void *value)
{
	if (map->kind == HASH)
		return bpf_map_update_elem(map, key, value, 0);
	if (map->kind == STACK) {
		if (map->count == map->entries)
			return -7;
		memcpy((char *)map->memory + map->count++ * map->value_size, value, map->value_size);
		return 0;
	}
	memcpy((char *)map->memory + *(u32 *)key * map->value_size, value, map->value_size);
	return 0;
}

EXPORTED void *look_up_element(struct map *map, const void *key)
{
	return bpf_map_lookup_elem(map, key);
}

EXPORTED void delete_element(struct map *map, const void *key)
{
	bpf_map_delete_elem(map, key);
}

/* A pipe, or a FIFO of a file system, whose inode is at this place in memory. */
EXPORTED void make_pipe(u32 at, u64 inode, u32 generation, u32 named)
{
	struct host_pipe *made = &host_pipes[at];

	memset(made, 0, sizeof(*made));
	made->inode.i_mode = S_IFIFO | 0600;
	made->inode.i_sb = named ? &disk : &pipefs;
	made->inode.i_ino = inode;
	made->inode.i_generation = named ? generation : 0;
	made->inode.i_pipe = &made->pipe;
	made->pipe.max_usage = 16;
}

EXPORTED void set_pipe(u32 at, u32 head, u32 tail, u32 readers, u32 writers)
{
	struct pipe_inode_info *pipe = &host_pipes[at].pipe;

	pipe->head = head;
	pipe->tail = tail;
	pipe->readers = readers;
	pipe->writers = writers;
}

EXPORTED void open_file(u32 at, u32 pipe, u32 writes)
{
	open_files[at].file.f_inode = &host_pipes[pipe].inode;
	open_files[at].file.f_mode = writes ? FMODE_WRITE : FMODE_READ;
}

EXPORTED void set_references(u32 at, int references)
{
	open_files[at].references = references;
}

/* Descriptor `fd` of a task is this file; a negative one is none. */
EXPORTED void set_descriptor(u32 task, u32 fd, int file)
{
	tasks_of_host[task].files.fd_array[fd] = file < 0 ? NULL : &open_files[file].file;
}

/* Process 1, or what the process on CPU of `parent` forks. */
EXPORTED u64 fork_task(u32 task, int pid, int parent)
{
	struct host_task *child = &tasks_of_host[task];
	struct host_task *forking = parent < 0 ? &sweeper : &tasks_of_host[parent];

	set_up(child, task % CPUS);
	child->task.pid = child->task.tgid = pid;
	child->task.start_time = child->task.start_boottime = ++clock_ns;
	child->task.flags = PF_FORKNOEXEC;
	child->task.self_exec_id = forking->task.self_exec_id;
	child->signal.live.counter = 1;
	memcpy(child->task.comm, forking->task.comm, COMM_LEN);
	memcpy(child->files.fd_array, forking->files.fd_array, sizeof(child->files.fd_array));
	child->task.real_parent = parent < 0 ? &child->task : &forking->task;
	if (parent >= 0) {
		in_context(cpu_of(forking));
		child->task.__state = 0x800;	/* TASK_NEW */
		task_forks(&forking->task, &child->task);
		child->task.__state = 0;
	}
	child->task.sched_info.last_queued = clock_ns;
	fair[task % CPUS].rq->nr_running++;
	return child->task.start_time;
}

/* It has its new name before the event of its exec. */
EXPORTED void exec_begins(u32 task, const char *comm, const char *arguments)
{
	struct host_task *p = &tasks_of_host[task];

	memset(p->task.comm, 0, COMM_LEN);
	strncpy(p->task.comm, comm, COMM_LEN - 1);
	strncpy(p->arguments, arguments, sizeof(p->arguments) - 1);
	p->memory.arg_start = (u64)p->arguments;
	p->memory.arg_end = p->memory.arg_start + strlen(p->arguments);
	p->task.in_execve = 1;
	p->task.flags &= ~PF_FORKNOEXEC;
	p->task.self_exec_id++;
}

EXPORTED void exec_ends(u32 task, u32 is_script)
{
	struct host_task *p = &tasks_of_host[task];
	struct linux_binprm program = { .filename = "/script", .interp = "/interpreter" };

	if (!is_script)
		program.interp = program.filename;
	in_context(cpu_of(p));
	process_execs(&p->task, &program);
	p->task.in_execve = 0;
}

/* The task has read, or written, `bytes` by one call. */
EXPORTED void count_call(u32 task, u32 writes, u64 bytes)
{
	struct host_task *p = &tasks_of_host[task];

	if (writes) {
		p->task.ioac.wchar += bytes;
		p->task.ioac.syscw++;
	} else {
		p->task.ioac.rchar += bytes;
		p->task.ioac.syscr++;
	}
}

/* A task is about to sleep in this system call; -1 is none: a fault that waits for disk. */
EXPORTED void fall_asleep(u32 task, int call, u32 fd)
{
	struct host_task *p = &tasks_of_host[task];

	p->regs.orig_ax = call;
	p->regs.di = fd;
	p->task.in_iowait = call == -1;
	p->task.__state = call == -1 ? TASK_UNINTERRUPTIBLE : 1;
}

EXPORTED void wake(u32 task, u32 on_cpu)
{
	struct host_task *p = &tasks_of_host[task];

	in_context(on_cpu);
	p->task.__state = 0;
	p->task.sched_info.last_queued = clock_ns;
	p->task.se.cfs_rq->rq->nr_running++;
	woken(&p->task);
	p->task.in_iowait = 0;
}

/* The task on a CPU leaves it to this one; to the idle task if that is negative. */
EXPORTED void switch_to(u32 cpu, int task)
{
	struct rq *rq = &run_queues[cpu];
	struct host_task *next = task < 0 ? &idle[cpu] : &tasks_of_host[task];
	struct host_task *prev = (struct host_task *)rq->curr;
	struct sched_info *info = &next->task.sched_info;

	if (prev == next)
		return;
	in_context(cpu);
	rq->clock = clock_ns;
	rq->curr = &next->task;
	if (prev->task.pid) {
		prev->task.se.sum_exec_runtime += clock_ns - prev->on_cpu_ns;
		prev->task.utime += clock_ns - prev->on_cpu_ns;
		if (prev->task.__state)
			rq->nr_running--;
	}
	switched(!prev->task.__state, &prev->task, &next->task);
	if (prev->task.pid && !prev->task.__state)
		prev->task.sched_info.last_queued = clock_ns;
	if (info->last_queued)
		info->run_delay += clock_ns - info->last_queued;
	info->last_queued = 0;
	next->on_cpu_ns = clock_ns;
}

/* With the status that wait() is to say, which is that of all threads or of the first one. */
EXPORTED void exit_begins(u32 task, int status, int group)
{
	struct host_task *p = &tasks_of_host[task];

	p->signal.flags = group ? SIGNAL_GROUP_EXIT : 0;
	p->signal.group_exit_code = group ? status : 0;
	p->task.exit_code = group ? 0 : status;
	p->signal.live.counter = 0;
	in_context(cpu_of(p));
	process_exits(&p->task);
}

EXPORTED void set_parent(u32 task, u32 parent)
{
	tasks_of_host[task].task.real_parent = &tasks_of_host[parent].task;
}

/* Its last act before it leaves its CPU. */
EXPORTED void exit_ends(u32 task)
{
	tasks_of_host[task].task.__state = TASK_DEAD;
}

/* Its parent has reaped it, maybe before it leaves its CPU. */
EXPORTED void unlist_task(u32 task)
{
	tasks_of_host[task].listed = 0;
}

/* It is reaped and off its CPU: nothing refers to its memory any more. */
EXPORTED void free_task(u32 task)
{
	for (struct map *map = __start_maps; map < __stop_maps; map++)
		if (map->kind == TASK_STORAGE) {
			free(((void **)map->memory)[task]);
			((void **)map->memory)[task] = NULL;
		}
}

/*
 * The daemon's iterator, on a CPU of its own as far as the programs' memory is concerned. Returns the number of bytes
 * that it has written out, at `*to`.
 */
EXPORTED u32 sweep_all(const char **to)
{
	saved_size = 0;
	*to = saved;
	for (u32 task = 0; task < TASKS; task++) {
		current = &sweeper.task;
		current_cpu = CPUS;
		if (!tasks_of_host[task].listed)
			continue;
		sweep_task(&tasks_of_host[task].task, (u64)&tasks_of_host[task].task);
		save_task(NULL, &tasks_of_host[task].task);
	}
	watch_sweeper();
	release_some(bpf_ktime_get_ns());
	return saved_size;
}

/* The innermost stage of a task, or one assigned to it; 0 if it has none. */
EXPORTED u32 stage_of_task(u32 task, u32 *pending)
{
	struct task_state *state = state_of(&tasks_of_host[task].task);

	*pending = state ? state->pending : 0;
	return stage_of(state);
}
