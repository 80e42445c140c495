/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which kind of wait a system call makes, by its number; its arguments and its position in a file, from the registers
 * that a task saved.
 * Owns no map.
 * Called at sched_switch for every followed task that goes to sleep, and by the `readahead` tier.
 * Costs a tree of comparisons, about 3 ns.
 * Cannot see io_uring, whose workers are kernel threads, nor restart_syscall.
 */
#ifndef PIPELINED_SYSCALLS_H
#define PIPELINED_SYSCALLS_H

#include "accounting.bpf.h"

enum call_kind {
	CALL_OTHER,
	CALL_READ,	/* fd in argument 0 */
	CALL_WRITE,	/* fd in argument 0 */
	CALL_SPLICE,	/* from argument 0 to argument 2 */
	CALL_TEE,	/* from argument 0 to argument 1 */
	CALL_SENDFILE,	/* from argument 1 to argument 0 */
	CALL_COPY,	/* copy_file_range, from argument 0 to argument 2 */
	CALL_FILE,	/* other file calls: sync */
	CALL_WAIT,
	CALL_LOCK,
	CALL_POLL,
	CALL_NET,
	CALL_SLEEP,
	CALL_ADVISE,	/* readahead, fadvise: file in argument 0 */
	CALL_FAULT,	/* no system call: an exception from user space */
};

struct call {
	u32 kind;
	u32 args[3];
	u32 task_state;	/* __state */
	u32 iowait;
};

#if defined(__TARGET_ARCH_x86)

#define NR_READ 0
#define NR_WRITE 1

static __always_inline int call_kind_64(long nr)
{
	switch (nr) {
	case 0: case 17: case 19: case 295: case 327:	/* read pread64 readv preadv preadv2 */
		return CALL_READ;
	case 1: case 18: case 20: case 296: case 328:	/* write … pwritev2 */
	case 278:					/* vmsplice, which mostly writes */
		return CALL_WRITE;
	case 275:
		return CALL_SPLICE;
	case 276:
		return CALL_TEE;
	case 40:
		return CALL_SENDFILE;
	case 326:
		return CALL_COPY;
	case 26: case 74: case 75: case 162: case 277: case 306:
		return CALL_FILE;	/* msync fsync fdatasync sync sync_file_range syncfs */
	case 187: case 221:
		return CALL_ADVISE;	/* readahead fadvise64; what madvise brings in is used by faults */
	case 61: case 247: case 56: case 58: case 435:
		return CALL_WAIT;	/* wait4 waitid; clone vfork clone3 sleep for a vfork child */
	case 202: case 449: case 455: case 72: case 73: case 65: case 220:
		return CALL_LOCK;	/* futex* fcntl flock semop semtimedop */
	case 7: case 23: case 232: case 270: case 271: case 281: case 441:
		return CALL_POLL;
	case 42: case 43: case 44: case 45: case 46: case 47: case 288: case 299: case 307:
		return CALL_NET;
	case 34: case 35: case 128: case 130: case 230:
		return CALL_SLEEP;	/* pause nanosleep rt_sigtimedwait rt_sigsuspend clock_nanosleep */
	case -1:
		return CALL_FAULT;
	default:
		return CALL_OTHER;
	}
}

/* arch/x86/entry/syscalls/syscall_32.tbl */
GLOBAL(int, call_kind_32)(long nr)
{
	switch (nr) {
	case 3: case 145: case 180: case 333: case 378:
		return CALL_READ;
	case 4: case 146: case 181: case 334: case 379: case 316:
		return CALL_WRITE;
	case 313:
		return CALL_SPLICE;
	case 315:
		return CALL_TEE;
	case 187: case 239:
		return CALL_SENDFILE;
	case 377:
		return CALL_COPY;
	case 36: case 118: case 144: case 148: case 314: case 344:
		return CALL_FILE;
	case 225: case 250: case 272:
		return CALL_ADVISE;	/* readahead fadvise64 fadvise64_64 */
	case 7: case 114: case 284: case 120: case 190: case 435:
		return CALL_WAIT;
	case 55: case 143: case 221: case 240: case 420: case 422: case 449: case 455:
		return CALL_LOCK;
	case 82: case 142: case 168: case 256: case 308: case 309: case 319: case 413: case 414: case 441:
		return CALL_POLL;
	case 102: case 337: case 345: case 362: case 364: case 369: case 370: case 371: case 372:
	case 417:
		return CALL_NET;
	case 29: case 72: case 162: case 177: case 179: case 267: case 407: case 421:
		return CALL_SLEEP;
	case -1:
		return CALL_FAULT;
	default:
		return CALL_OTHER;
	}
}

#define TS_COMPAT 0x0002	/* arch/x86/include/asm/thread_info.h */

/* Numbers of 64-bit calls that read a file, by where they take their position from. */
#define CALLS_AT_FILE 0: case 19	/* the file's: read readv */
#define CALLS_AT_ARGUMENT 17: case 295: case 327	/* argument 3: pread64 preadv preadv2 */
#define CALL_AT_SPLICE 275	/* argument 1 points to it, or the file's */
#define CALL_AT_SENDFILE 40	/* argument 2, of the file in argument 1 */
/* And of those that wait for several files, by how these are named. */
#define CALLS_OF_ENTRIES 7: case 271	/* poll ppoll */
#define CALLS_OF_SETS 23: case 270	/* select pselect6 */
#define CALLS_OF_EPOLL 232: case 281: case 441	/* epoll_wait epoll_pwait epoll_pwait2 */
#define NUMBER(task, regs) ((task)->thread_info.status & TS_COMPAT ? -1 : (int)(regs)->orig_ax)
#define ARGUMENT_0(regs) ((regs)->di)
#define ARGUMENT_1(regs) ((regs)->si)
#define ARGUMENT_2(regs) ((regs)->dx)
#define ARGUMENT_3(regs) ((regs)->r10)

#elif defined(__TARGET_ARCH_arm64)

#define NR_READ 63
#define NR_WRITE 64

/* include/uapi/asm-generic/unistd.h; 32-bit tasks are not recognized */
static __always_inline int call_kind_64(long nr)
{
	switch (nr) {
	case 63: case 65: case 67: case 69: case 286:
		return CALL_READ;
	case 64: case 66: case 68: case 70: case 287: case 75:
		return CALL_WRITE;
	case 76:
		return CALL_SPLICE;
	case 77:
		return CALL_TEE;
	case 71:
		return CALL_SENDFILE;
	case 285:
		return CALL_COPY;
	case 81: case 82: case 83: case 84: case 227: case 267:
		return CALL_FILE;
	case 213: case 223:
		return CALL_ADVISE;	/* readahead fadvise64 */
	case 95: case 260: case 220: case 435:
		return CALL_WAIT;
	case 98: case 449: case 455: case 25: case 32: case 192: case 193:
		return CALL_LOCK;
	case 22: case 72: case 73: case 441:
		return CALL_POLL;
	case 202: case 203: case 206: case 207: case 211: case 212: case 242: case 243: case 269:
		return CALL_NET;
	case 101: case 115: case 133: case 137:
		return CALL_SLEEP;
	case -1:
		return CALL_FAULT;
	default:
		return CALL_OTHER;
	}
}

#define CALLS_AT_FILE 63: case 65
#define CALLS_AT_ARGUMENT 67: case 69: case 286
#define CALL_AT_SPLICE 76
#define CALL_AT_SENDFILE 71
#define CALLS_OF_ENTRIES 73
#define CALLS_OF_SETS 72
#define CALLS_OF_EPOLL 22: case 441
#define NUMBER(task, regs) ((regs)->syscallno)
#define ARGUMENT_0(regs) ((regs)->regs[0])
#define ARGUMENT_1(regs) ((regs)->regs[1])
#define ARGUMENT_2(regs) ((regs)->regs[2])
#define ARGUMENT_3(regs) ((regs)->regs[3])

#endif

/* Verified once: it has as many ways out as there are kinds, and each caller would be followed for each of them. */
GLOBAL(int, other_call_kind)(long nr)
{
	return call_kind_64(nr);
}

/* What most tasks sleep in is found without a call. */
static __always_inline int call_kind(long nr)
{
	return nr == NR_READ ? CALL_READ : nr == NR_WRITE ? CALL_WRITE : other_call_kind(nr);
}

#if defined(__TARGET_ARCH_x86)

static __always_inline void saved_call(struct task_struct *task, struct call *call)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	long nr = (int)regs->orig_ax;

	if (task->thread_info.status & TS_COMPAT) {
		call->kind = call_kind_32(nr);
		call->args[0] = regs->bx;
		call->args[1] = regs->cx;
		call->args[2] = regs->dx;
		return;
	}
	call->kind = call_kind(nr);
	if ((call->kind < CALL_READ || call->kind > CALL_FILE) && call->kind != CALL_ADVISE)
		return;
	call->args[0] = regs->di;
	if (call->kind < CALL_SPLICE)
		return;
	call->args[1] = regs->si;
	call->args[2] = regs->dx;
}

#elif defined(__TARGET_ARCH_arm64)

static __always_inline void saved_call(struct task_struct *task, struct call *call)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);

	call->kind = call_kind(regs->syscallno);
	call->args[0] = regs->regs[0];
	call->args[1] = regs->regs[1];
	call->args[2] = regs->regs[2];
}

#endif

/* Where in its file the task's read began; ~0, which is beyond any file, if that is not known. */
static __always_inline u64 call_position(struct task_struct *p)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
	u64 fd = ARGUMENT_0(regs), position = ~0ULL, pointer = 0;
	struct fdtable *fdt;
	struct file *file = NULL;

	switch (NUMBER(p, regs)) {
	case CALLS_AT_FILE:
		break;
	case CALLS_AT_ARGUMENT:
		position = ARGUMENT_3(regs);
		if (position != ~0ULL)	/* preadv2 means the file's by -1 */
			return position;
		break;
	case CALL_AT_SPLICE:
		pointer = ARGUMENT_1(regs);
		break;
	case CALL_AT_SENDFILE:
		fd = ARGUMENT_1(regs);
		pointer = ARGUMENT_2(regs);
		break;
	default:
		return ~0ULL;
	}
	if (pointer)
		return bpf_probe_read_user(&position, sizeof(position), (void *)pointer) ? ~0ULL :
											   position;
	fdt = p->files->fdt;
	if ((u32)fd < fdt->max_fds)
		bpf_probe_read_kernel(&file, sizeof(file), fdt->fd + (u32)fd);
	return file ? BPF_CORE_READ(file, f_pos) : ~0ULL;
}

#endif
