// SPDX-License-Identifier: Apache-2.0
/*
 * A stage of a made-up pipeline; it goes by the name under which it is linked.
 *   tool                 passes its input on
 *   tool fail CODE       the same, and exits with that code
 *   tool say             writes one line
 *   tool work SECONDS    for so long, every 100 ms: 5 ms on CPU, then a block of 4 KiB
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static int pass_on(void)
{
	static char block[65536];
	ssize_t size;

	while ((size = read(0, block, sizeof(block))) > 0)
		if (write(1, block, size) != size)
			return 1;
	return size < 0;
}

static int work(double length)
{
	static char block[4096];
	double end = seconds(CLOCK_MONOTONIC) + length;

	do {
		double busy = seconds(CLOCK_PROCESS_CPUTIME_ID) + 0.005;

		while (seconds(CLOCK_PROCESS_CPUTIME_ID) < busy)
			;
		if (write(1, block, sizeof(block)) != sizeof(block))
			return 1;
		usleep(95000);
	} while (seconds(CLOCK_MONOTONIC) < end);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "work"))
		return work(atof(argv[2]));
	if (argc == 3 && !strcmp(argv[1], "fail"))
		return pass_on() ? 1 : atoi(argv[2]);
	if (argc == 2 && !strcmp(argv[1], "say"))
		return write(1, "a line\n", 7) != 7;
	return argc == 1 ? pass_on() : 2;
}
