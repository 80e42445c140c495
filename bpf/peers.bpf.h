/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a task waits for in poll, select or epoll, if it is the network; and the port at the other end of the network
 * socket that it waits for.
 * Owns no map; writes the peer of `stages`, and changes the state of a sleep from `poll` to `net`.
 * Called at sched_switch when a followed task goes to sleep in such a call or in one on a socket: in its own context,
 * because what poll and select wait for stands in its memory.
 * Costs about 150 ns for a call on a socket, 200 to 350 ns for poll or epoll of two files; other sleeps nothing more.
 * Cannot see more than POLLED entries of poll or epoll, nor descriptors from 64 on in select, nor 32-bit calls.
 */
#ifndef PIPELINED_PEERS_H
#define PIPELINED_PEERS_H

#include "sleep.bpf.h"

#define POLLED 16	/* files of one call that are looked at */
#define POLL_HEIGHT 16	/* of the tree of an epoll's files, which is balanced */
#define PEER_PORT_MASK ((1ULL << PEER_FAMILY_SHIFT) - 1)

/* What is known of the files that a call waits for. */
struct polled {
	u64 peer;	/* as stage.peer: of a network socket among them, 0 = there is none */
	u64 pipes;	/* a pipe that is the stdin, stdout or stderr is among them */
};

/* include/uapi/asm-generic/poll.h, which has the same layout for 32-bit calls */
struct poll_entry {
	s32 fd;
	u16 events, found;
};

/* As stage.peer, of the socket at this address of a file; 0 if it is none of a network. A port of 0 is not known. */
GLOBAL(u64, peer_of)(u64 address)
{
	struct socket *socket;
	struct sock *sk;
	u64 family;
	u16 port;

	if (!address || (BPF_CORE_READ((struct file *)address, f_inode, i_mode) & S_IFMT) != S_IFSOCK)
		return 0;
	socket = BPF_CORE_READ((struct file *)address, private_data);
	sk = BPF_CORE_READ(socket, sk);
	family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (family != AF_INET && family != AF_INET6)
		return 0;
	port = BPF_CORE_READ(sk, __sk_common.skc_dport);
	return family << PEER_FAMILY_SHIFT | (u16)(port << 8 | port >> 8);
}

/* The call waits for this file, at this descriptor, too. */
GLOBAL(int, polls_file)(struct polled *polled, u64 address, u32 fd)
{
	u64 peer;

	if (!polled || !address)
		return 0;
	peer = peer_of(address);
	if (peer && (!polled->peer || peer & PEER_PORT_MASK))
		polled->peer = peer;
	if (fd <= 2 && (BPF_CORE_READ((struct file *)address, f_inode, i_mode) & S_IFMT) == S_IFIFO)
		polled->pipes = 1;
	return 0;
}

/* The file at a descriptor of the current task. */
static __always_inline int polls_fd(struct polled *polled, u32 fd)
{
	return polls_file(polled, (u64)file_at_fd(bpf_get_current_task(), fd), fd);
}

/* The entry of poll at a place. One without events, or with a negative descriptor, is left out by the kernel, too. */
GLOBAL(int, polls_entry)(struct polled *polled, u64 from, u32 count, u32 at)
{
	struct poll_entry entry = {};

	if (at >= count || bpf_probe_read_user(&entry, sizeof(entry), (void *)(from + at * sizeof(entry))))
		return 0;
	return entry.fd < 0 || !entry.events ? 0 : polls_fd(polled, entry.fd);
}

/*
 * poll: an array of entries. This loop and the next have a constant number of turns: of the lesser of two numbers bcc's
 * clang makes one that Linux 6.1 takes for endless.
 */
GLOBAL(int, polls_entries)(struct polled *polled, u64 from, u32 count)
{
	for (u32 at = 0; at < POLLED; at++)
		polls_entry(polled, from, count, at);
	return 0;
}

/* The first 64 descriptors of a set of select, which the kernel reads by whole words. */
static __always_inline u64 first_of_set(u64 address)
{
	u64 set = 0;

	if (address)
		bpf_probe_read_user(&set, sizeof(set), (void *)address);
	return set;
}

GLOBAL(int, polls_if_in_set)(struct polled *polled, u64 set, u32 count, u32 fd)
{
	return fd < count && set >> (fd & 63) & 1 ? polls_fd(polled, fd) : 0;
}

/* select: what is to be read and what is to be written. */
GLOBAL(int, polls_sets)(struct polled *polled, u64 to_read, u64 to_write, u32 count)
{
	u64 set = first_of_set(to_read) | first_of_set(to_write);

	for (u32 fd = 0; fd < 64; fd++)
		polls_if_in_set(polled, set, count, fd);
	return 0;
}

static __always_inline u64 node_above(u64 node)
{
	return BPF_CORE_READ((struct rb_node *)node, __rb_parent_color) & ~3ULL;
}

/* The node that follows this one in the order of its tree; 0 if it is the last. */
GLOBAL(u64, next_node)(u64 node)
{
	u64 next = (u64)BPF_CORE_READ((struct rb_node *)node, rb_right), left;

	if (next) {
		for (int i = 0; i < POLL_HEIGHT; i++) {
			left = (u64)BPF_CORE_READ((struct rb_node *)next, rb_left);
			if (!left)
				return next;
			next = left;
		}
		return 0;
	}
	for (int i = 0; i < POLL_HEIGHT; i++) {
		next = node_above(node);
		if (!next || (u64)BPF_CORE_READ((struct rb_node *)next, rb_right) != node)
			return next;
		node = next;
	}
	return 0;
}

/*
 * One file of an epoll; returns the next one. If its event has come, and was to be reported only once, it has no events.
 */
GLOBAL(u64, polls_item)(struct polled *polled, u64 node)
{
	struct epitem *item = (struct epitem *)node;

	if (BPF_CORE_READ(item, event.events))
		polls_file(polled, (u64)BPF_CORE_READ(item, ffd.file), BPF_CORE_READ(item, ffd.fd));
	return next_node(node);
}

/* epoll: the files in its tree. */
GLOBAL(int, polls_epoll)(struct polled *polled, u32 fd)
{
	struct file *file = file_at_fd(bpf_get_current_task(), fd);
	struct eventpoll *epoll;
	u64 node;

	if (!polled || !file)
		return 0;
	epoll = BPF_CORE_READ(file, private_data);
	node = (u64)BPF_CORE_READ(epoll, rbr.rb_leftmost);
	for (int i = 0; i < POLLED && node; i++)
		node = polls_item(polled, node);
	return 0;
}

/* The peer, as stage.peer, if what the current task polls is the network; else 0. */
GLOBAL(u64, polled_peer)(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	struct polled polled = {};

	switch (NUMBER(task, regs)) {
	case CALLS_OF_ENTRIES:
		polls_entries(&polled, ARGUMENT_0(regs), ARGUMENT_1(regs));
		break;
	case CALLS_OF_SETS:
		polls_sets(&polled, ARGUMENT_1(regs), ARGUMENT_2(regs), ARGUMENT_0(regs));
		break;
	case CALLS_OF_EPOLL:
		polls_epoll(&polled, ARGUMENT_0(regs));
		break;
	}
	return polled.pipes ? 0 : polled.peer;
}

/* The peer, as stage.peer, of the socket in whose call the current task goes to sleep; 0 if it is none of a network. */
GLOBAL(u64, called_peer)(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);

	if (NUMBER(task, regs) < 0)
		return 0;
	return peer_of((u64)file_at_fd(bpf_get_current_task(), ARGUMENT_0(regs)));
}

/*
 * The current task goes to sleep in a call on a socket, or in poll. If that waits for the network, the state is `net`.
 * The port is noted for the stage and those around it.
 */
static __always_inline void sleeps_for_peer(u32 index, struct sleep *sleep)
{
	u64 peer = sleep->state == STATE_POLL ? polled_peer() : called_peer();
	struct stage *stage;

	if (!peer)
		return;
	sleep->state = STATE_NET;
	if (peer & PEER_PORT_MASK)
		for_each_enclosing_stage(stage, index)
			stage->peer = peer;
}

/* The current task goes to sleep for this reason, or for the network if that is it. Verified once, not in on_switch. */
GLOBAL(int, goes_to_sleep)(struct task_state *task, struct sleep *sleep, u64 now)
{
	if (!task || !sleep)
		return 0;
	if (sleep->state == STATE_POLL || sleep->state == STATE_NET)
		sleeps_for_peer(task->stage, sleep);
	transition(task, sleep->state, NULL, now);
	return 0;
}

#endif
