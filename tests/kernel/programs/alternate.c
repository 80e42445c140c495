// SPDX-License-Identifier: Apache-2.0
/*
 * Two stages that never compute at the same time: alternate ROUNDS MILLISECONDS. They hand a
 * token to and fro, through a pipe and back through a socket (two pipes would be a conversation);
 * only the one that has it burns CPU, before the rest of the host.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void burn(double seconds)
{
	double end = cpu_seconds() + seconds;

	while (cpu_seconds() < end)
		for (volatile int i = 0; i < 1000; i++)
			;
}

static int stage(int cpu, int in, int out, int first, int rounds, double seconds)
{
	struct sched_param priority = { .sched_priority = 1 };
	cpu_set_t set;
	char token = 't';

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
	sched_setscheduler(0, SCHED_RR, &priority);
	dup2(in, 0);
	dup2(out, 1);
	for (int fd = 3; fd < 16; fd++)
		close(fd);
	for (int i = 0; i < rounds; i++) {
		if (!(first && !i) && read(0, &token, 1) != 1)
			return 1;
		burn(seconds);
		if (!(!first && i == rounds - 1) && write(1, &token, 1) != 1)
			return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	int there[2], back[2], status, failed = 0;

	if (argc != 3) {
		fprintf(stderr, "usage: alternate ROUNDS MILLISECONDS\n");
		return 2;
	}
	if (pipe(there) || socketpair(AF_UNIX, SOCK_STREAM, 0, back))
		return 1;
	if (!fork())
		_exit(stage(0, back[0], there[1], 1, atoi(argv[1]), atof(argv[2]) / 1000));
	if (!fork())
		_exit(stage(1, there[0], back[1], 0, atoi(argv[1]), atof(argv[2]) / 1000));
	for (int fd = 3; fd < 16; fd++)
		close(fd);
	while (wait(&status) > 0)
		failed |= status;
	return failed != 0;
}
