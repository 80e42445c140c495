// SPDX-License-Identifier: Apache-2.0
/*
 * many N: N live pipelines, `sleep 60 | cat | cat`, until SIGTERM; then ends what it started.
 * Prints "ready" when all run.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STAGES = 3 };

static pid_t start(int stage, int in, int out, const sigset_t *mask)
{
	pid_t pid = vfork();

	if (pid)
		return pid;
	sigprocmask(SIG_SETMASK, mask, NULL);
	dup2(in, 0);
	dup2(out, 1);
	if (stage == 0)
		execlp("sleep", "sleep", "60", (char *)NULL);
	else
		execlp("cat", "cat", (char *)NULL);
	_exit(127);
}

int main(int argc, char **argv)
{
	int count = argc == 2 ? atoi(argv[1]) : 0, started = 0, signal_number;
	pid_t *pids = calloc(count * STAGES + 1, sizeof(*pids));
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	sigset_t stop, before;

	if (count < 1 || !pids || null < 0)
		return 2;
	sigemptyset(&stop);
	sigaddset(&stop, SIGTERM);
	sigprocmask(SIG_BLOCK, &stop, &before);
	for (int i = 0; i < count; i++) {
		int in = null, pipes[2];

		for (int stage = 0; stage < STAGES; stage++) {
			int last = stage == STAGES - 1;

			if (!last && pipe2(pipes, O_CLOEXEC))
				goto end;
			pids[started] = start(stage, in, last ? null : pipes[1], &before);
			if (pids[started] < 0)
				goto end;
			started++;
			if (in != null)
				close(in);
			if (!last) {
				close(pipes[1]);
				in = pipes[0];
			}
		}
	}
	puts("ready");
	fflush(stdout);
	sigwait(&stop, &signal_number);
end:
	for (int i = 0; i < started; i++)
		kill(pids[i], SIGKILL);
	for (int i = 0; i < started; i++)
		waitpid(pids[i], NULL, 0);
	return started != count * STAGES;
}
