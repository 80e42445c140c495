// SPDX-License-Identifier: Apache-2.0
/*
 * Burns CPU time: burn MILLISECONDS [THREADS]. Each thread burns as many milliseconds of its own
 * CPU time, before the rest of the host, so that the host's other work does not blur what is
 * measured; burners on one CPU take turns of 100 ms. Sleeps 100 ms first, so that all burners
 * of a pipeline are there when they start. Reads and writes nothing.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { START_US = 100000 };

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
	struct sched_param priority = { .sched_priority = 1 };
	pthread_t ids[64];

	if (argc < 2 || threads < 1 || threads > 64) {
		fprintf(stderr, "usage: burn MILLISECONDS [THREADS]\n");
		return 2;
	}
	limit = atof(argv[1]) / 1000;
	if (sched_setscheduler(0, SCHED_RR, &priority))
		perror("burn: no priority");
	usleep(START_US);
	for (int i = 1; i < threads; i++)
		if (pthread_create(&ids[i], NULL, burner, NULL))
			return 1;
	burner(NULL);
	for (int i = 1; i < threads; i++)
		pthread_join(ids[i], NULL);
	return 0;
}
