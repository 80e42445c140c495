// SPDX-License-Identifier: Apache-2.0
/*
 * Burns CPU time: burn MILLISECONDS [THREADS]. Each thread burns as many milliseconds of its
 * own CPU time. Asks for priority over the rest of the host, so that the host's other work
 * does not blur what is measured. Reads and writes nothing.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static double limit;

static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void *burner(void *unused)
{
	double end = cpu_seconds() + limit;

	while (cpu_seconds() < end)
		for (volatile int i = 0; i < 1000; i++)
			;
	return unused;
}

int main(int argc, char **argv)
{
	int threads = argc > 2 ? atoi(argv[2]) : 1;
	pthread_t ids[64];

	if (argc < 2 || threads < 1 || threads > 64) {
		fprintf(stderr, "usage: burn MILLISECONDS [THREADS]\n");
		return 2;
	}
	limit = atof(argv[1]) / 1000;
	setpriority(PRIO_PROCESS, 0, -20);
	for (int i = 1; i < threads; i++)
		if (pthread_create(&ids[i], NULL, burner, NULL))
			return 1;
	burner(NULL);
	for (int i = 1; i < threads; i++)
		pthread_join(ids[i], NULL);
	return 0;
}
