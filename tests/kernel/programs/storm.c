// SPDX-License-Identifier: Apache-2.0
/*
 * Three-stage pipelines as fast as this host can start and end them:
 *   storm exec|fork SECONDS WORKERS LEAST
 * Each worker makes one pipeline after the other, at least LEAST however slow the host is. `exec`: the stages are true(1), which uses no
 * pipe. `fork`: the stages are plain children that pass one byte on. Prints how many were made.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STAGES = 3 };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void pass_on(int stage)
{
	char byte = 'x';

	if (stage > 0 && read(0, &byte, 1) != 1)
		_exit(3);
	if (stage < STAGES - 1 && write(1, &byte, 1) != 1)
		_exit(3);
	_exit(0);
}

/* In a child made by vfork: only calls that leave the parent's memory alone. */
static void become(int stage, int pipes[STAGES - 1][2], int execs)
{
	if (stage > 0)
		dup2(pipes[stage - 1][0], 0);
	if (stage < STAGES - 1)
		dup2(pipes[stage][1], 1);
	if (execs) {
		execl("/bin/true", "true", (char *)NULL);
		_exit(127);
	}
	for (int i = 0; i < STAGES - 1; i++) {
		close(pipes[i][0]);
		close(pipes[i][1]);
	}
	pass_on(stage);
}

static pid_t start(int stage, int pipes[STAGES - 1][2], int execs)
{
	pid_t pid = execs ? vfork() : fork();

	if (!pid)
		become(stage, pipes, execs);
	return pid;
}

static int pipeline(int execs)
{
	int pipes[STAGES - 1][2], status, failed = 0;
	pid_t pids[STAGES];

	for (int i = 0; i < STAGES - 1; i++)
		if (pipe2(pipes[i], O_CLOEXEC))
			return 1;
	for (int i = 0; i < STAGES; i++) {
		pids[i] = start(i, pipes, execs);
		if (pids[i] < 0)
			return 1;
	}
	for (int i = 0; i < STAGES - 1; i++) {
		close(pipes[i][0]);
		close(pipes[i][1]);
	}
	for (int i = 0; i < STAGES; i++)
		failed |= waitpid(pids[i], &status, 0) != pids[i] || status;
	return failed;
}

int main(int argc, char **argv)
{
	int execs = argc == 5 && !strcmp(argv[1], "exec"), status, failed = 0, workers;
	long *made, least, total = 0;
	double end;

	if (argc != 5 || (!execs && strcmp(argv[1], "fork"))) {
		fprintf(stderr, "usage: storm exec|fork SECONDS WORKERS LEAST\n");
		return 2;
	}
	workers = atoi(argv[3]);
	least = atol(argv[4]);
	made = mmap(NULL, workers * sizeof(long), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (made == MAP_FAILED)
		return 1;
	end = now() + atof(argv[2]);
	for (int i = 0; i < workers; i++)
		if (!fork()) {
			while (now() < end || made[i] < least) {
				if (pipeline(execs))
					_exit(1);
				made[i]++;
			}
			_exit(0);
		}
	while (wait(&status) > 0)
		failed |= status;
	for (int i = 0; i < workers; i++)
		total += made[i];
	printf("%ld\n", total);
	return failed != 0;
}
