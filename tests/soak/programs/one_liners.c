// SPDX-License-Identifier: Apache-2.0
/*
 * Short pipelines at a steady rate, many of them different, until SIGTERM:
 *   one_liners RATE PIPELINES WORKERS COUNTS DIRECTORY NAME...
 * RATE is runs per second of all WORKERS. Stages are the programs NAME of DIRECTORY. Until there
 * are PIPELINES, every tenth run is of a pipeline that never ran before; the others are of earlier
 * ones, of the oldest most often.
 * COUNTS is a file that holds two 64-bit numbers: runs that have ended, and different pipelines.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_STAGES = 3, NEW = 10, THREE_STAGES = 4 };

struct counts {
	uint64_t runs, pipelines;
};

static volatile sig_atomic_t stopping;
static char **names;
static uint64_t name_count, most_pipelines;
static struct counts *counts;
static int null;

static void stop(int number)
{
	(void)number;
	stopping = 1;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static double fraction(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (*state >> 11) / (double)(1ULL << 53);
}

static uint64_t choose(uint64_t *state)
{
	uint64_t known = __atomic_load_n(&counts->pipelines, __ATOMIC_RELAXED);
	double place = fraction(state);

	if (!known || (known < most_pipelines && fraction(state) < 1.0 / NEW))
		return __atomic_fetch_add(&counts->pipelines, 1, __ATOMIC_RELAXED);
	return known * place * place * place;
}

static pid_t start(char *name, char *argument, int in, int out)
{
	char *arguments[] = {name, argument, NULL};
	pid_t pid = vfork();

	if (pid)
		return pid;
	signal(SIGTERM, SIG_DFL);
	dup2(in, 0);
	dup2(out, 1);
	execv(name, arguments);
	_exit(127);
}

/* Pipelines of different numbers below the square of `name_count` differ. */
static int run(uint64_t number)
{
	uint64_t first = number % name_count, second = (number / name_count + first) % name_count;
	uint64_t stage_names[MOST_STAGES] = {first, second, (first + second) % name_count};
	int stages = number % THREE_STAGES ? 2 : 3, in = null, failed = 0, pipes[2] = {-1, -1};
	pid_t pids[MOST_STAGES];

	for (int i = 0; i < stages; i++) {
		int last = i == stages - 1;

		if (!last && pipe2(pipes, O_CLOEXEC))
			return 1;
		pids[i] = start(names[stage_names[i]], i ? NULL : "say", in, last ? null : pipes[1]);
		if (pids[i] < 0)
			return 1;
		if (in != null)
			close(in);
		if (!last)
			close(pipes[1]);
		in = pipes[0];
	}
	for (int i = 0; i < stages; i++) {
		int status;

		failed |= waitpid(pids[i], &status, 0) != pids[i] || status;
	}
	return failed;
}

static int work(int worker, double rate)
{
	uint64_t state = 88172645463325252ULL + worker * 7919;
	double next = now();

	while (!stopping) {
		double early = next - now();

		if (early > 0)
			usleep(early * 1e6);
		else if (early < -1)
			next = now();	/* the host is too slow: runs that are late are left out */
		if (stopping)
			break;
		if (run(choose(&state)))
			return 1;
		__atomic_fetch_add(&counts->runs, 1, __ATOMIC_RELAXED);
		next += 1 / rate;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART};
	int workers = argc > 3 ? atoi(argv[3]) : 0, file, failed = 0, status, number;
	pid_t pids[64], parent = getpid();
	sigset_t awaited, before;

	if (argc < 7 || workers < 1 || workers > 64) {
		fprintf(stderr, "usage: one_liners RATE PIPELINES WORKERS COUNTS DIRECTORY NAME...\n");
		return 2;
	}
	most_pipelines = strtoull(argv[2], NULL, 10);
	names = argv + 6;
	name_count = argc - 6;
	file = open(argv[4], O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (file < 0 || null < 0 || ftruncate(file, sizeof(*counts)) || chdir(argv[5])) {
		perror("one_liners");
		return 1;
	}
	counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (counts == MAP_FAILED)
		return 1;
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	sigemptyset(&awaited);
	sigaddset(&awaited, SIGTERM);
	sigaddset(&awaited, SIGCHLD);
	sigprocmask(SIG_BLOCK, &awaited, &before);
	for (int i = 0; i < workers; i++) {
		pids[i] = fork();
		if (!pids[i]) {
			sigaction(SIGTERM, &action, NULL);
			sigprocmask(SIG_SETMASK, &before, NULL);
			prctl(PR_SET_PDEATHSIG, SIGTERM);
			_exit(getppid() != parent || work(i, atof(argv[1]) / workers));
		}
	}
	sigwait(&awaited, &number);	/* no worker ends before it is asked to */
	failed = number == SIGCHLD;
	for (int i = 0; i < workers; i++)
		kill(pids[i], SIGTERM);
	while (wait(&status) > 0)
		failed |= status != 0;
	return failed;
}
