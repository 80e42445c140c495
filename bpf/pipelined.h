/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The layout of the map records that the BPF programs and the daemon share, and the constants in them.
 * daemon/pipelined/kernel/layout.py repeats them; tests/unit/test_layout.py compares both.
 * Fields that are exchanged or tested by atomic operations have 64 bits: the code that LLVM makes for bcc has no
 * such operations on 32 bits.
 */
#ifndef PIPELINED_H
#define PIPELINED_H

/*
 * Records outlive the daemon in a checkpoint (daemon/pipelined/kernel/checkpoint.py), by the names of their fields and
 * of states, levels and classes. Whoever gives a flag or a bit of a word another meaning raises FORMAT there.
 */

/* States of a thread; their nanoseconds add up to its lifetime. */
enum thread_state {
	STATE_CPU,
	STATE_RUNQUEUE,
	STATE_PIPE_EMPTY,
	STATE_PIPE_FULL,
	STATE_DISK,
	STATE_CHILD,
	STATE_LOCK,
	STATE_POLL,
	STATE_NET,
	STATE_SLEEP,
	STATE_STOPPED,
	STATE_OTHER,
	STATES,
};

enum pipe_side { SIDE_READ, SIDE_WRITE };

/* What could not be recorded, by kind; index into the `lost` map. */
enum lost_kind {
	LOST_TASKS,	/* no task storage: a thread was not followed */
	LOST_STAGES,	/* no free stage record */
	LOST_PIPES,	/* pipe map full: an edge may have been missed */
	LOST_ENDS,	/* more stages at one side of a pipe than it has slots */
	LOST_UPDATES,	/* a contended update of the topology was given up */
	LOST_READAHEAD,	/* pages read ahead for which there was no room */
	LOST_INSTANCES,	/* values of variables that had been overwritten before the daemon read them */
	LOST_KINDS,
};

/* Properties of a command name; value in the `commands` map. */
enum command_flag {
	COMMAND_INTERPRETER = 1,	/* a stage even when it reads from its child */
	COMMAND_WRAPPER = 2,		/* its stage takes the name of its child */
	COMMAND_SHELL = 4,		/* holds pipes for its children without using them */
	COMMAND_ALONE = 8,		/* a stage even when it is in no pipeline */
	COMMAND_READS_ANYWHERE = 16,	/* runs the last part of a pipeline itself, not with the pipe as its stdin */
	COMMAND_STARTER = 32,		/* reports what it starts: its descendants are marked with it */
	COMMAND_SCHEDULER = 64,		/* each command that it starts is a job */
	COMMAND_APPLETS = 128,		/* many programs in one: its first argument says which */
	COMMAND_BY_NAME = 256,		/* its name alone says what it is, not the interpreter that runs it */
};

enum stage_flag {
	STAGE_PARTIAL = 1,	/* was running when observation began */
	STAGE_INTERPRETER = 2,
	STAGE_WRAPPER = 4,	/* its namer is still a wrapper */
	STAGE_FROM_NOW = 8,	/* when made: the root's life so far does not count */
	STAGE_ALONE = 16,	/* made for its name: no pipe was found */
	STAGE_RESUMED = 32,	/* known from a checkpoint: nobody watched its pipeline for a while */
	STAGE_LAST_PART = 64,	/* a shell that runs the last part of a pipeline itself */
	STAGE_CONVERSES = 128,	/* its parent is at the other end of both its stdin and its stdout */
	STAGE_SHELL = 256,
	STAGE_SPLICES = 512,	/* was asleep in splice or tee: the kernel's accounting does not see those bytes */
	STAGE_ENCLOSES = 2048,	/* has or had a stage inside it that was made for a pipe */
	STAGE_UNMET = 1024,	/* lived at the checkpoint, and no thread in it has been met since: nobody saw its end */
};

/*
 * stage.flags, changed by atomic operations alone: a process and others that it shares a pipe with, or started, may
 * change them at the same time.
 *   bits  0-31  enum stage_flag
 *   bits 32-63  children of its root that are in its pipeline because it reads from them or feeds them
 */
#define OWN_CHILD (1ULL << 32)

/*
 * pipe_end.side_and_flags, changed as stage.flags are once the end is in its slot:
 *   bits 0-1  enum pipe_side + 1; 0 if the end is borrowed
 *   bit  2    joined: this end makes an edge
 *   bit  3    borrowed: the end belongs to the enclosing stage
 *   bits 4-5  enum pipe_side + 1 of a borrowed end
 *   bit  6    left: the root has exec'd since the stage used this end, and has it at neither 0 nor 1
 *   bit  7    unused: left, and nothing had been read or written before
 *   bit  8    standard: the root's stdin or stdout, or named by its arguments
 *   bit  9    late: the stage had read or written before this end was known
 */
#define END_SIDE_MASK 3
#define END_JOINED 4
#define END_BORROWED 8
#define END_BORROWED_SHIFT 4
#define END_LEFT 64
#define END_UNUSED 128
#define END_STANDARD 256
#define END_LATE 512

#define COMM_LEN 16
#define STAGE_ENDS 8	/* pipe ends remembered per stage */
#define PIPE_SLOTS 8	/* stages remembered per side of a pipe */
#define PIPELINE_DRIVERS 2	/* drivers that leave a pipeline by themselves; more stay to their end */
#define LEVEL_COUNT 9	/* 0 … 7, 8+ */
#define FED_PIPES 4	/* Python's Popen makes one for its own use beside those of stdin, stdout and stderr */

/*
 * The word of a stage: everything that must change together.
 *   bits  0-15  threads on CPU, and inner stages that are on CPU
 *   bits 16-31  threads waiting for disk, and inner stages that do
 *   bits 32-49  enclosing stage, 0 = none
 *   bit  60     a driver: in its pipeline only because it reads from its own child, or feeds it
 *   bit  61     a shell that runs the last part of a pipeline, as STAGE_LAST_PART
 *   bit  62     the stage has retired: its threads no longer count for it, and are about to leave it
 *   bit  63     the stage has ended and no longer holds the enclosing one
 */
#define WORD_CPU 1ULL
#define WORD_CPU_MASK 0xffffULL
#define WORD_DISK (1ULL << 16)
#define WORD_DISK_MASK (0xffffULL << 16)
#define WORD_OUTER_SHIFT 32
#define WORD_DRIVER (1ULL << 60)
#define WORD_LAST_PART (1ULL << 61)
#define WORD_RETIRED (1ULL << 62)
#define WORD_ENDED (1ULL << 63)
#define INDEX_MASK 0x3ffffULL
#define PEER_FAMILY_SHIFT 16	/* of stage.peer, above the port */
#define GENERATION_SHIFT 18	/* a reference is generation << 18 | index; its 46 bits of generation never come again */

/*
 * The moment of a pipeline: how many stages do what, and since when. One word, so that
 * no time is credited to a level that has already ended.
 *   bits  0-43  time of the last change, in ns modulo 4.9 h; every sweep renews it
 *   bits 44-53  stages on CPU
 *   bits 54-63  stages waiting for disk
 */
#define PIPELINE_CLOCK_MASK ((1ULL << 44) - 1)
#define PIPELINE_CPU (1ULL << 44)
#define PIPELINE_DISK (1ULL << 54)
#define PIPELINE_COUNT_MASK 0x3ffULL

/*
 * Which process. A process id comes again while what refers to it lives, so none is ever compared without its start
 * time: `same_process` and `is_process` (tasks.bpf.h) are the only comparisons.
 */
struct process {
	__u64 start_ns;		/* CLOCK_MONOTONIC, of its first thread; exec keeps it */
	__u32 pid;		/* 0 = none */
	__u32 uid;		/* of a starter: the real user id when it forked; 0 of every other process */
};

/* Which pipe. An inode number comes again, at once for a FIFO of a file system, after 2^32 others for other pipes. */
struct pipe_key {
	__u64 inode;
	__u32 device;
	__u32 incarnation;	/* of the inode number: the inode's generation; of an anonymous pipe, where its inode is */
};

struct pipe_end {
	struct pipe_key pipe;	/* an inode of 0: free slot */
	__u64 side_and_flags;	/* see END_SIDE_MASK */
	__u64 sleeps;
	__u64 asleep_ns;
};

#define ONE_STAGE (1ULL << 32)	/* in pipeline.members, above the members */

/*
 * Stages joined by pipes, and the clock that counts how many ran at once. Each stage
 * begins with a pipeline of its own; joined stages use that of the oldest.
 */
struct pipeline {
	__u64 moment;
	__u64 alias;		/* the stage into whose pipeline this one was merged, 0 = none */
	__u64 time_ns[LEVEL_COUNT][2];	/* by level and by "any waiting for disk" */
	__u64 start_ns;
	/* live stages that are no drivers; the last one to end retires the drivers. And ONE_STAGE for each that it has had */
	__u64 members;
	__u64 drivers[PIPELINE_DRIVERS];	/* stages, 0 = none */
};

/* What the text of a job is. */
enum job_source {
	NO_JOB,
	JOB_VARIABLE,	/* the value of a variable of the environment */
	JOB_COMMAND,	/* what a scheduler had a shell run with -c */
	JOB_PROGRAM,	/* the name of a program that a scheduler started */
};

#define JOB_TEXT 120

/* The job that a process belongs to. Descendants inherit it, unless they are of another one. */
struct job {
	__u64 source;	/* enum job_source */
	char text[JOB_TEXT];	/* its begin, up to a zero */
};

#define MAX_INSTANCE_VARIABLES 24	/* that the configuration names, TRACEPARENT and TRACESTATE among them */
#define INSTANCE_VALUES 12	/* that are kept of one environment: the first ones of the configuration */
#define INSTANCE_TEXT 248	/* bytes of a value, with the zero that ends it */
#define INSTANCES 1024	/* environments that are remembered */

/* The value of a variable of the environment. */
struct instance_value {
	__u32 variable;	/* its place in the configuration */
	__u32 length;	/* without the zero; INSTANCE_TEXT if its end was cut off */
	char text[INSTANCE_TEXT];
};

#define CGROUPS 1024	/* that are remembered */
#define CGROUP_NAME 128	/* bytes of a name, with the zero that ends it; the name of a container's has its id: 64 bytes and some */

/* The last name of a cgroup's path. The map `cgroups` has it by the cgroup's id, which is never used again. */
struct cgroup_name {
	__u64 above;	/* id of the cgroup that it is in; 0 = it is the root */
	char name[CGROUP_NAME];
};

/*
 * What identifies the instance of a job that a process belongs to: values of variables of its environment. Equal ones
 * are one record, in the map `instances` under a keyed hash of it, which tasks and stages refer to.
 */
struct instance {
	__u64 count;	/* of `values`; the rest is 0 */
	struct instance_value values[INSTANCE_VALUES];
};

/* How a process has ended: what wait() says of it, in 16 bits, and these. */
#define EXIT_SEEN (1 << 16)
#define EXIT_OOM (1 << 17)	/* it was killed when memory had run out */
#define EXIT_STOPPED_INSIDE (1 << 18)	/* until then: a process of the run sent it or its descendants a stop signal */
#define EXIT_STOPPED_OUTSIDE (1 << 19)	/* somebody else did */

/* One place in a pipeline: a root process and its descendants. */
struct stage {
	__u64 word;
	struct pipeline pipeline;
	__u64 time_ns[STATES];
	__u64 user_ns;		/* from the kernel's tick accounting, unscaled */
	__u64 system_ns;
	__u64 read_bytes;
	__u64 written_bytes;
	__u64 read_calls;
	__u64 write_calls;
	__u64 sleeps_empty;	/* on pipes that are not in `ends` */
	__u64 sleeps_full;
	__u64 forks;
	__u64 execs;
	__u64 exec_failures;
	__u64 exited_children;
	__u64 children_cpu_ns;
	__u64 children_life_ns;
	__u64 start_ns;		/* CLOCK_MONOTONIC; 0: the record is free or being filled */
	__u64 end_ns;		/* 0 while any thread or inner stage lives, unless it has retired */
	__u64 exec_ns;		/* last exec of the root, 0 = none seen */
	struct process root;
	struct process parent;	/* that forked the root */
	struct process namer;	/* that names the stage */
	/* The nearest process above the root that is a COMMAND_STARTER: start_ns is of CLOCK_BOOTTIME, as in /proc. Known
	   after the processes between are gone. */
	struct process starter;
	__u64 cgroup;
	__u64 live;		/* threads and inner stages */
	__u64 generation;	/* how often the record has been given back */
	__u64 flags;		/* see OWN_CHILD */
	__u64 exit_status;	/* of its root: see EXIT_SEEN, without which it has not exited, or nobody saw it */
	__u64 user;		/* effective user id of the namer as of its last exec, plus 1; 0 = not known */
	__u64 instance;		/* of its root as of its last exec: key of the map `instances`, 0 = none */
	__u64 peer;		/* of the network socket waited for last: address family << PEER_FAMILY_SHIFT | port; 0 = none */
	char comm[COMM_LEN];
	struct pipe_end ends[STAGE_ENDS];
	struct job job;	/* of its root, as of its last exec */
};

#define CHILD_NAMES 12

/* Processes of a stage, all but its root, that have one name and have ended; their threads have added their CPU time before. */
struct child {
	__u64 name[COMM_LEN / 8];
	__u64 longest_ns;	/* the longest life; 0 = the place is free */
	__u64 count;
	__u64 cpu_ns;
};

/* What ran inside the stage with the same index. */
struct children {
	struct child named[CHILD_NAMES + 1];	/* the last has no name: for what found no place */
};

#define SIZE_BUCKETS 22	/* up to 1, 2, 4 … bytes to 1 MiB, and more */
#define TIME_FIRST 10
#define TIME_BUCKETS 26	/* up to 2^10, 2^11 … 2^34 ns, and more */
#define FILL_BUCKETS 9	/* up to 0, 1/8 … 8/8 */
#define FILL_SHIFT 16	/* its sum is in 1/65536 */

struct sizes {
	__u64 counts[SIZE_BUCKETS];
	__u64 sum;
};

/* What the `functions` tier counts for the stage with the same index. */
struct functions {
	struct sizes pipe_writes;
	struct sizes pipe_reads;
	struct sizes file_reads;
	struct {
		__u64 counts[TIME_BUCKETS];
		__u64 sum;
	} file_read_time;
	struct {
		__u64 counts[FILL_BUCKETS];
		__u64 sum;
	} pipe_fill;
	__u64 pipe_in_bytes;	/* through ends of the stage that are standard or make an edge */
	__u64 pipe_out_bytes;
	__u64 pipe_slots;	/* pages that the pipe written last can hold */
};

/* How pages that reads of files consumed came to be there. All classes but `wasted` add up to all pages. */
enum page_class {
	PAGE_WARM,	/* in the page cache already, or brought in by another task */
	PAGE_HIT,	/* read ahead by this task in time */
	PAGE_LATE,	/* read ahead by this task, but the read slept for it */
	PAGE_MISS,	/* brought in by the very read that asked for it */
	PAGE_WASTED,	/* read ahead by this task and never consumed */
	PAGE_CLASSES,
};

/* The class of a stall, by the page that ended the wait; and of a fault, by the page it found. */
enum stall_class { STALL_MISS, STALL_LATE, STALL_OTHER, STALL_CLASSES };

/* What the `readahead` tier counts for the stage with the same index. */
struct readahead {
	__u64 pages[PAGE_CLASSES];
	__u64 inserted;		/* pages read ahead, beyond what the reads asked for */
	__u64 direct_bytes;	/* read by direct I/O */
	__u64 faults[STALL_CLASSES];
	__u64 stalls[STALL_CLASSES][2];	/* by "a stage of the pipeline was on CPU for most of it" */
	__u64 stall_ns[STALL_CLASSES][2];	/* by "a stage of the pipeline was on CPU meanwhile" */
	__u64 not_input;	/* of the warm pages: of files that the run wrote, of programs and libraries */
	__u64 files;		/* whose begin a thread read: not again if it is the file that it read last */
};

/* A pipe with the stages seen at its ends; slots hold references, 0 = free. */
struct pipe {
	__u64 stages[2][PIPE_SLOTS];	/* by enum pipe_side */
	struct process endpoint;	/* the process at the other end, if it is no stage */
	char endpoint_comm[COMM_LEN];
	__u32 endpoint_side;
	__u32 self;		/* one stage uses both ends: no edge */
	__u32 named;		/* a FIFO of a file system */
	__u32 zero;
};

/* What a checkpoint keeps of a thread that is in a stage, in a job, or was started by a COMMAND_STARTER. */
struct saved_task {
	__u64 stage;	/* its innermost stage: as written a reference, as restored an index; 0 = none */
	__u64 exec_ns;
	__u64 cpu_ns;
	struct process parent;
	struct process starter;
	struct pipe_key fed_by_parent[FED_PIPES];
	char script[COMM_LEN];
	char applet[COMM_LEN];
	__u32 exec_id;
	__u32 zero;
	__u64 instance;
	struct job job;
};

/* A saved task as the sweep writes it out. */
struct written_task {
	struct process thread;	/* its own id and start */
	struct saved_task task;
};

/* Follow nobody until the first sweep, then the process that swept: in a PID namespace it cannot know its own id. */
#define WATCH_SWEEPER 0xffffffff

/* Shared with the daemon through one mapped page. */
struct control {
	__u64 ended;		/* pipelines and lone stages that ended, ever */
	__u64 wake_at;		/* value of `ended` at which to wake the daemon */
	__u64 began_ns;		/* CLOCK_MONOTONIC: older processes were running before the daemon */
	__u64 missed_switches;	/* switches of stages' threads to a CPU that the kernel did not trace */
	__u32 watch_pid;	/* follow only what this process forks; 0 = the whole host, or
				   WATCH_SWEEPER */
	__u32 alone;		/* every program but shells is a stage, in a pipeline or not */
	__u64 windows;		/* tasks whose pages read ahead are remembered now */
	__u64 max_windows;	/* the most that there may be */
	__u64 units;		/* entries of the map `units` */
	__u64 watched_ns;	/* CLOCK_MONOTONIC: until then the stages that were restored were watched */
	__u32 restored;		/* stages from 1 to here were restored, and are held until their threads are met */
	__u32 resuming;		/* sweeps take up only the threads in `saved_tasks` */
	__u32 saving;		/* sweeps write out the threads that a checkpoint keeps */
	__u32 unused;
	__u64 instances;	/* entered into the map of that name, ever */
	__u64 cgroups;		/* the same */
	__u64 secret[2];	/* key of the hash of instances: random at each start */
};

#endif
