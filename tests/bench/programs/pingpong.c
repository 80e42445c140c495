// SPDX-License-Identifier: Apache-2.0
/*
 * Two processes on one CPU pass one byte to and fro, so that every pass is a sleep and a switch:
 *   pingpong pipe|socket ROUNDS CPU
 * Both are exec'd, with the channel as their stdin and stdout. `pipe`: two pipes, which makes
 * them a pipeline. `socket`: a socket pair, which makes them none. Prints the seconds taken.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static int play(const char *role, long rounds, int result)
{
	int first = !strcmp(role, "first");
	double began = 0;
	char byte = 'x';

	/* one pass before the clock starts: both are there, exec'd, and met */
	for (long i = -1; i < rounds; i++) {
		if (i == 0)
			began = now();
		if (first && write(1, &byte, 1) != 1)
			return 1;
		if (read(0, &byte, 1) != 1)
			return 1;
		if (!first && write(1, &byte, 1) != 1)
			return 1;
	}
	if (first)
		dprintf(result, "%.6f\n", now() - began);
	return 0;
}

static pid_t start(const char *self, const char *role, const char *rounds, int in, int out, int result)
{
	char number[16];
	pid_t pid = fork();

	if (pid)
		return pid;
	snprintf(number, sizeof(number), "%d", result);
	dup2(in, 0);
	dup2(out, 1);
	execl(self, "pingpong", role, rounds, number, (char *)NULL);
	_exit(127);
}

int main(int argc, char **argv)
{
	int to[2], fro[2], result, status, failed = 0;
	cpu_set_t cpus;

	if (argc == 4 && (!strcmp(argv[1], "first") || !strcmp(argv[1], "second")))
		return play(argv[1], atol(argv[2]), atoi(argv[3]));
	if (argc != 4) {
		fprintf(stderr, "usage: pingpong pipe|socket ROUNDS CPU\n");
		return 2;
	}
	CPU_ZERO(&cpus);
	CPU_SET(atoi(argv[3]), &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		return 1;
	if (!strcmp(argv[1], "pipe")) {
		if (pipe2(to, 02000000 /* O_CLOEXEC */) || pipe2(fro, 02000000))
			return 1;
	} else {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, to))
			return 1;
		/* first: reads and writes to[0]; second: to[1] */
		fro[0] = to[0];
		fro[1] = to[1];
		result = dup(1);
		start(argv[0], "first", argv[2], to[0], to[0], result);
		start(argv[0], "second", argv[2], to[1], to[1], result);
		goto wait;
	}
	result = dup(1);
	start(argv[0], "first", argv[2], fro[0], to[1], result);
	start(argv[0], "second", argv[2], to[0], fro[1], result);
wait:
	close(to[0]);
	close(to[1]);
	close(fro[0]);
	close(fro[1]);
	while (wait(&status) > 0)
		failed |= status;
	return failed != 0;
}
