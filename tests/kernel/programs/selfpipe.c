// SPDX-License-Identifier: Apache-2.0
/*
 * An event loop's self-pipe: one thread wakes the other through a pipe. A child inherits the
 * pipe as its stdin and uses it not. No pipeline.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static int ends[2];

static void *waker(void *unused)
{
	for (int i = 0; i < 20; i++) {
		usleep(1000);
		if (write(ends[1], "w", 1) != 1)
			return NULL;
	}
	close(ends[1]);
	return unused;
}

int main(void)
{
	pthread_t thread;
	char byte;

	if (pipe(ends))
		return 1;
	if (!fork()) {
		close(ends[1]);
		usleep(5000);
		_exit(0);
	}
	if (pthread_create(&thread, NULL, waker, NULL))
		return 1;
	while (read(ends[0], &byte, 1) == 1)
		;
	pthread_join(thread, NULL);
	return wait(NULL) < 0;
}
