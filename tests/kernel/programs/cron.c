// SPDX-License-Identifier: Apache-2.0
/*
 * Starts jobs as Vixie cron does: `cron TIMES JOB`. For each, the daemon forks a process that forks
 * `sh -c JOB` with stdout and stderr on a pipe, and reads the pipe to its end. Then the daemon
 * lives on until the FIFO `gate` has been opened and closed by a writer.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void read_to_end(int fd)
{
	char bytes[4096];

	while (read(fd, bytes, sizeof(bytes)) > 0)
		;
}

static int wait_for(pid_t child)
{
	int status;

	return child < 0 || waitpid(child, &status, 0) != child || status;
}

static int run(const char *job)
{
	int ends[2];
	pid_t child;

	if (pipe2(ends, O_CLOEXEC))
		err(1, "pipe");
	child = fork();
	if (!child) {
		dup2(ends[1], 1);
		dup2(ends[1], 2);
		execl("/bin/sh", "sh", "-c", job, NULL);
		_exit(127);
	}
	close(ends[1]);
	read_to_end(ends[0]);
	return wait_for(child);
}

int main(int count, char **words)
{
	int gate;

	if (count != 3)
		errx(1, "usage: cron TIMES JOB");
	for (int left = atoi(words[1]); left > 0; left--) {
		pid_t child = fork();

		if (!child)
			_exit(run(words[2]));
		if (wait_for(child))
			errx(1, "the job failed");
	}
	gate = open("gate", O_RDONLY);
	if (gate < 0)
		err(1, "gate");
	read_to_end(gate);
	return 0;
}
