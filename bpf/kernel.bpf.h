/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel types that the programs read, reduced to the fields that they read.
 * Owns no map; nothing here is called.
 * libbpf relocates every access to the running kernel (CO-RE), so the object builds without kernel headers and without
 * the BTF of any one kernel. Under bcc the types are those of the running kernel: its BTF, written as C.
 */
#ifndef PIPELINED_KERNEL_H
#define PIPELINED_KERNEL_H

#ifndef PIPELINED_BCC

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef __u16 __sum16;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __s32 s32;
typedef __s64 s64;
typedef __u64 u64;
typedef _Bool bool;
enum { false = 0, true = 1 };

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_STACK = 23,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum { BPF_NOEXIST = 1 };
enum { BPF_F_NO_PREALLOC = 1, BPF_F_MMAPABLE = 1 << 10 };
enum { BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

#if defined(__TARGET_ARCH_x86)
struct thread_info {
	u32 status;
};
struct pt_regs {
	unsigned long r10, r9, r8, dx, si, di, orig_ax, bx, cx, bp;
};
#elif defined(__TARGET_ARCH_arm64)
struct thread_info {
	unsigned long flags;
};
struct user_pt_regs {
	u64 regs[31];
};
struct pt_regs {
	u64 regs[31];
	u64 orig_x0;
	s32 syscallno;
};
#else
#error "x86-64 and arm64 only"
#endif

struct super_block {
	u32 s_dev;
	unsigned long s_magic;
};
struct pipe_inode_info {
	unsigned int head, tail;
	unsigned int max_usage;
	unsigned int readers, writers;
};
struct inode {
	u16 i_mode;
	s64 i_size;
	struct super_block *i_sb;
	unsigned long i_ino;
	u32 i_generation;
	struct pipe_inode_info *i_pipe;
};
struct rb_node {
	unsigned long __rb_parent_color;	/* the parent's address, and flags in the last two bits */
	struct rb_node *rb_right, *rb_left;
};
struct rb_root {
	struct rb_node *rb_node;
};
struct rb_root_cached {
	struct rb_root rb_root;
	struct rb_node *rb_leftmost;
};
struct address_space {
	struct inode *host;
	struct rb_root_cached i_mmap;
};
struct qstr {
	const unsigned char *name;
};
struct dentry {
	struct qstr d_name;
};
struct path {
	struct dentry *dentry;
};
struct file {
	unsigned int f_mode;
	unsigned int f_flags;
	s64 f_pos;
	struct path f_path;
	struct inode *f_inode;
	struct address_space *f_mapping;
	void *private_data;	/* of a socket: struct socket; of an epoll: struct eventpoll */
};
struct sock_common {
	u16 skc_family;
	__be16 skc_dport;
};
struct sock {
	struct sock_common __sk_common;
};
struct socket {
	struct sock *sk;
};
struct epoll_filefd {
	struct file *file;
	int fd;
};
struct epoll_event {
	u32 events;
};
struct epitem {
	struct rb_node rbn;	/* its first member, for one */
	struct epoll_filefd ffd;
	struct epoll_event event;
};
struct eventpoll {
	struct rb_root_cached rbr;
};
struct folio {
	struct address_space *mapping;
	unsigned long index;
};
/* 6.15 (4996fc547f5b) renamed it */
struct folio___before {
	unsigned int _folio_nr_pages;
};
struct folio___since {
	unsigned int _nr_pages;
};
enum pageflags { PG_head = 6 };
struct vm_area_struct {
	struct file *vm_file;
};
struct vm_fault {
	struct vm_area_struct *vma;
	unsigned long pgoff;
};
struct kiocb {
	struct file *ki_filp;
	s64 ki_pos;
	int ki_flags;
	void (*ki_complete)(struct kiocb *iocb, long result);	/* NULL: it is waited for (is_sync_kiocb) */
};
struct iov_iter {
	unsigned long count;
};
/* count: f_ref - 1 … since 6.13 (90ee6ed776c0), f_count before */
struct file___ref {
	struct {
		struct {
			s64 counter;
		} refcnt;
	} f_ref;
};
struct file___count {
	struct {
		s64 counter;
	} f_count;
};
struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};
struct files_struct {
	struct fdtable *fdt;
	struct file *fd_array[64];
};
struct task_struct;
struct rq {
	struct task_struct *curr;
	u64 clock;
	unsigned int nr_running;
	int cpu;
};
struct cfs_rq {
	struct rq *rq;
};
struct sched_entity {
	u64 sum_exec_runtime;
	struct cfs_rq *cfs_rq;
};
struct sched_info {
	unsigned long long run_delay;
	unsigned long long last_queued;
};
struct task_io_accounting {
	u64 rchar, wchar, syscr, syscw;
};
typedef struct {
	int counter;
} atomic_t;
struct signal_struct {
	atomic_t live;
	int group_exit_code;
	unsigned int flags;
	struct mm_struct *oom_mm;
	unsigned long long sum_sched_runtime;
};
struct kernfs_node {
	u64 id;
	const char *name;
};
struct cgroup;
struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};
struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};
struct css_set {
	struct cgroup *dfl_cgrp;
};
struct mm_struct {
	unsigned long arg_start, arg_end, env_start, env_end;
	struct file *exe_file;
};
typedef struct {
	unsigned int val;
} kuid_t;
struct cred {
	kuid_t uid, euid;
};
struct task_struct {
	struct mm_struct *mm;
	struct thread_info thread_info;
	unsigned int __state;
	unsigned int flags;
	unsigned long jobctl;
	struct sched_entity se;
	struct sched_info sched_info;
	unsigned in_iowait : 1;
	unsigned in_execve : 1;
	int exit_code;
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	u64 utime;
	u64 stime;
	u64 start_time;
	u64 start_boottime;
	u32 self_exec_id;
	const struct cred *real_cred;
	char comm[16];
	struct files_struct *files;
	struct signal_struct *signal;
	struct task_io_accounting ioac;
	struct css_set *cgroups;
};
struct linux_binprm {
	const char *filename, *interp;
};
struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
};
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

#endif

#define NULL ((void *)0)
#define NR_OPEN_DEFAULT 64	/* BITS_PER_LONG: descriptors of a table that never grew */

/* include/linux/sched.h; stable since 4.14 but for TASK_FREEZABLE and TASK_FROZEN (6.1, f5d39b020809) */
#define TASK_INTERRUPTIBLE 0x01
#define TASK_UNINTERRUPTIBLE 0x02
#define TASK_STOPPED_OR_TRACED (0x04 | 0x08)
#define TASK_DEAD 0x80
#define TASK_FREEZABLE 0x2000
#define TASK_FROZEN 0x8000
/* include/linux/sched/jobctl.h, since 5.2 (76f969e8948d) */
#define JOBCTL_TRAP_FREEZE (1 << 23)
#define PF_FORKNOEXEC 0x40	/* threads have it too: test the group leader, which exec'd */
#define PF_KTHREAD 0x200000
#define SIGNAL_GROUP_EXIT 0x4	/* of signal_struct.flags: all threads exit, with its group_exit_code */
#define SIGKILL 9

/* include/trace/events/signal.h: TRACE_SIGNAL_… */
#define SIGNAL_IGNORED 1
#define SIGNAL_ALREADY_PENDING 2

/* include/uapi/linux/stat.h */
#define S_IFMT 0170000
#define S_IFIFO 0010000
#define S_IFREG 0100000
#define S_IFBLK 0060000
#define S_IFSOCK 0140000

/* include/linux/socket.h */
#define AF_INET 2
#define AF_INET6 10

/* include/linux/fs.h */
#define FMODE_READ 1
#define FMODE_WRITE 2

#define IOCB_WRITE (1 << 6)

/* include/uapi/asm-generic/fcntl.h, arch/arm64/include/uapi/asm/fcntl.h */
#if defined(__TARGET_ARCH_arm64)
#define O_DIRECT 0200000
#else
#define O_DIRECT 040000
#endif

#define PIPEFS_MAGIC 0x50495045	/* include/uapi/linux/magic.h */

#define NS_PER_S 1000000000ULL

#endif
