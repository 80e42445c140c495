// SPDX-License-Identifier: Apache-2.0
/*
 * `again PID N COMMAND...` runs the commands, each a program and its arguments with blanks between them, joined by
 * pipes as a shell joins them, and waits for all. The N-th one (from 1) gets the process id PID, which must be free,
 * or become so within 10 s. Needs CAP_CHECKPOINT_RESTORE, and to be in the host's own PID namespace: in another one the
 * kernel side's ids are not these.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRIES 1000
#define MOST_WORDS 16

static pid_t fork_as(pid_t pid)
{
	struct clone_args args = {
		.exit_signal = SIGCHLD,
		.set_tid = (uint64_t)(uintptr_t)&pid,
		.set_tid_size = 1,
	};
	pid_t child = -1;

	for (int i = 0; i < TRIES; i++) {
		child = syscall(SYS_clone3, &args, sizeof(args));
		if (child >= 0 || errno != EEXIST)
			break;
		usleep(10000);
	}
	return child;
}

static void become(char *command)
{
	char *words[MOST_WORDS + 1] = { NULL };
	int count = 0;

	for (char *word = strtok(command, " "); word && count < MOST_WORDS; word = strtok(NULL, " "))
		words[count++] = word;
	execvp(words[0], words);
	err(127, "%s", words[0]);
}

int main(int argc, char **argv)
{
	int before = 0, failed = 0, status;

	if (argc < 4)
		errx(2, "usage: again PID N COMMAND...");
	for (int at = 3; at < argc; at++) {
		int ends[2] = { -1, 1 };
		pid_t child;

		if (at + 1 < argc && pipe2(ends, O_CLOEXEC))
			err(1, "pipe");
		child = at - 2 == atoi(argv[2]) ? fork_as(atoi(argv[1])) : fork();
		if (child < 0)
			err(1, "process %s", argv[1]);
		if (!child) {
			if (before != 0)
				dup2(before, 0);
			if (ends[1] != 1)
				dup2(ends[1], 1);
			become(argv[at]);
		}
		if (before != 0)
			close(before);
		if (ends[1] != 1)
			close(ends[1]);
		before = ends[0];
	}
	while (wait(&status) > 0)
		failed |= status;
	return failed ? 1 : 0;
}
