/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves bytes in known portions, each argument one step:
 *   write:SIZE:COUNT       writes of SIZE to stdout
 *   read:SIZE:COUNT        reads of SIZE from stdin
 *   drain:SIZE             reads of SIZE from stdin until its end
 *   until:SIZE             waits until SIZE bytes are in the pipe at stdin
 *   empty:0                waits until nothing is in the pipe at stdout
 *   file:SIZE:COUNT:PATH   reads of SIZE from a file
 *   pipe:SIZE              makes the pipe at stdout hold SIZE
 *   splice:SIZE:1:PATH     SIZE bytes of a file to stdout, through a pipe of its own
 *   tee:SIZE               SIZE bytes of stdin to stdout, which stay in stdin
 *   vmsplice:SIZE          SIZE bytes of memory to stdout
 * Statically linked (see the Makefile), so that it reads no library.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

static char buffer[4 << 20];

static long must(long result, const char *what)
{
	if (result < 0) {
		perror(what);
		exit(1);
	}
	return result;
}

static void wait_for(int fd, int least, int most)
{
	int there = -1;

	while (there < least || there > most) {
		usleep(1000);
		must(ioctl(fd, FIONREAD, &there), "FIONREAD");
	}
}

static void move_through_pipe(const char *path, long size)
{
	int own[2], file = must(open(path, O_RDONLY), path);

	must(pipe(own), "pipe");
	while (size) {
		long some = must(splice(file, NULL, own[1], NULL, size, 0), "splice");

		if (!some)
			break;
		size -= some;
		while (some)
			some -= must(splice(own[0], NULL, 1, NULL, some, 0), "splice");
	}
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		char step[16] = "", path[256] = "";
		long size = 0, count = 1;

		sscanf(argv[i], "%15[^:]:%ld:%ld:%255s", step, &size, &count, path);
		if (!strcmp(step, "write")) {
			while (count--)
				must(write(1, buffer, size), "write");
		} else if (!strcmp(step, "read")) {
			while (count--)
				must(read(0, buffer, size), "read");
		} else if (!strcmp(step, "drain")) {
			while (must(read(0, buffer, size), "read"))
				;
		} else if (!strcmp(step, "until")) {
			wait_for(0, size, 1 << 30);
		} else if (!strcmp(step, "empty")) {
			wait_for(1, 0, 0);
		} else if (!strcmp(step, "file")) {
			int file = must(open(path, O_RDONLY), path);

			while (count--)
				must(read(file, buffer, size), "read");
		} else if (!strcmp(step, "pipe")) {
			must(fcntl(1, F_SETPIPE_SZ, size), "F_SETPIPE_SZ");
		} else if (!strcmp(step, "splice")) {
			move_through_pipe(path, size);
		} else if (!strcmp(step, "tee")) {
			must(tee(0, 1, size, 0), "tee");
		} else if (!strcmp(step, "vmsplice")) {
			struct iovec memory = { buffer, size };

			must(vmsplice(1, &memory, 1, 0), "vmsplice");
		} else {
			fprintf(stderr, "moves: no such step: %s\n", argv[i]);
			return 2;
		}
	}
	return 0;
}
