// SPDX-License-Identifier: Apache-2.0
/*
 * A pipeline whose every number is known: forks one child a stage, joined by pipes as a
 * shell joins them, and writes what the kernel and the children say of each to REPORT.
 *
 *   stages [-x] REPORT STAGE STAGE…      -x: each stage execs this program for its role
 *
 * A STAGE is a list of words with numbers, separated by commas, done in this order:
 *   cpu=N       pin to CPU N
 *   failed=N    exec a program that does not exist, N times
 *   forks=N     fork N children that burn 1 ms each, and wait for each
 *   execs=N     fork N children that exec this program to do nothing, and wait for each
 *   threads=N   N threads that burn 50 ms each
 *   burn=US     microseconds of CPU, at the start and for each block
 *   sleep=US    microseconds of sleep, at the start and for each block
 *   write=N     write N bytes to stdout, in blocks      (first stage)
 *   copy=1      copy stdin to stdout, in blocks         (stages between)
 *   read=1      read stdin to its end, in blocks        (last stage)
 *   block=N     bytes a call, 4096
 *
 * Children are left as zombies until /proc/PID/schedstat and /proc/PID/io were read.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_STAGES = 16, MAX_BLOCK = 1 << 20, THREAD_BURN_US = 50000, CHILD_BURN_US = 1000 };

/* What a stage counts itself; shared with the parent, found at descriptor SHARED. */
struct own {
	long read_bytes, written_bytes, read_calls, write_calls;
	double children_cpu;
};

#define SHARED 200

static struct own *own;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static double now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void burn(long us)
{
	double end = now(CLOCK_THREAD_CPUTIME_ID) + us * 1e-6;

	while (us && now(CLOCK_THREAD_CPUTIME_ID) < end)
		for (volatile int i = 0; i < 1000; i++)
			;
}

static void *burner(void *unused)
{
	burn(THREAD_BURN_US);
	return unused;
}

static long number(const char *stage, const char *word, long otherwise)
{
	size_t length = strlen(word);

	for (const char *at = stage; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (!strncmp(at, word, length) && at[length] == '=')
			return atol(at + length + 1);
	return otherwise;
}

static void work(const char *stage)
{
	long us = number(stage, "sleep", 0);

	burn(number(stage, "burn", 0));
	if (us)
		usleep(us);
}

static void put(const char *data, long size)
{
	for (long done = 0; done < size;) {
		ssize_t n = write(1, data + done, size - done);

		if (n < 0)
			fail("write");
		own->write_calls++;
		own->written_bytes += n;
		done += n;
	}
}

static long get(char *data, long size)
{
	ssize_t n = read(0, data, size);

	if (n < 0)
		fail("read");
	own->read_calls++;
	own->read_bytes += n;
	return n;
}

static void child(int execs)
{
	pid_t pid = fork();

	if (pid < 0)
		fail("fork");
	if (!pid) {
		if (execs)
			execl("/proc/self/exe", "stages", "--nothing", NULL);
		burn(CHILD_BURN_US);
		_exit(0);
	}
	if (waitpid(pid, NULL, 0) < 0)
		fail("waitpid");
}

static void children(const char *stage)
{
	struct rusage usage;

	for (long i = number(stage, "failed", 0); i > 0; i--)
		execl("/nonexistent/program", "program", NULL);
	for (long i = number(stage, "forks", 0); i > 0; i--)
		child(0);
	for (long i = number(stage, "execs", 0); i > 0; i--)
		child(1);
	getrusage(RUSAGE_CHILDREN, &usage);
	own->children_cpu = usage.ru_utime.tv_sec + usage.ru_utime.tv_usec * 1e-6 +
			    usage.ru_stime.tv_sec + usage.ru_stime.tv_usec * 1e-6;
}

static void role(const char *stage)
{
	static char data[MAX_BLOCK];
	long block = number(stage, "block", 4096), cpu = number(stage, "cpu", -1), n;
	long threads = number(stage, "threads", 0);
	pthread_t ids[64];
	cpu_set_t set;

	if (cpu >= 0) {
		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
		if (sched_setaffinity(0, sizeof(set), &set))
			fail("sched_setaffinity");
	}
	children(stage);
	for (long i = 0; i < threads; i++)
		if (pthread_create(&ids[i], NULL, burner, NULL))
			fail("pthread_create");
	for (long i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	work(stage);
	for (long left = number(stage, "write", 0); left > 0; left -= block) {
		work(stage);
		put(data, left < block ? left : block);
	}
	if (number(stage, "copy", 0))
		while ((n = get(data, block)) > 0) {
			work(stage);
			put(data, n);
		}
	if (number(stage, "read", 0))
		while (get(data, block) > 0)
			work(stage);
	_exit(0);
}

static void print_file(FILE *report, pid_t pid, const char *name)
{
	char path[64], line[256];
	FILE *file;
	int first = 1;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	file = fopen(path, "r");
	if (!file)
		fail(path);
	fprintf(report, ", \"%s\": [", name);
	while (fgets(line, sizeof(line), file))
		for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n"), first = 0)
			fprintf(report, "%s\"%s\"", first ? "" : ", ", word);
	fprintf(report, "]");
	fclose(file);
}

static double seconds(struct timeval t)
{
	return t.tv_sec + t.tv_usec * 1e-6;
}

int main(int argc, char **argv)
{
	int execs = argc > 1 && !strcmp(argv[1], "-x"), in = 0, shared, count, ends[2];
	pid_t pids[MAX_STAGES];
	double start[MAX_STAGES];
	char **stages;
	FILE *report;

	if (argc == 2 && !strcmp(argv[1], "--nothing"))
		return 0;
	if (argc == 4 && !strcmp(argv[1], "--role")) {
		own = mmap(NULL, MAX_STAGES * sizeof(*own), PROT_READ | PROT_WRITE, MAP_SHARED, SHARED, 0);
		if (own == MAP_FAILED)
			fail("mmap");
		own += atoi(argv[2]);
		role(argv[3]);
	}
	stages = argv + 2 + execs;
	count = argc - 2 - execs;
	if (count < 1 || count > MAX_STAGES) {
		fprintf(stderr, "usage: stages [-x] REPORT STAGE…\n");
		return 2;
	}
	shared = memfd_create("own", 0);
	if (shared < 0 || ftruncate(shared, MAX_STAGES * sizeof(*own)) || dup2(shared, SHARED) < 0)
		fail("memfd");
	close(shared);
	own = mmap(NULL, MAX_STAGES * sizeof(*own), PROT_READ | PROT_WRITE, MAP_SHARED, SHARED, 0);
	if (own == MAP_FAILED)
		fail("mmap");
	for (int i = 0; i < count; i++) {
		int last = i == count - 1;

		if (!last && pipe2(ends, O_CLOEXEC))
			fail("pipe2");
		start[i] = now(CLOCK_MONOTONIC);
		pids[i] = fork();
		if (pids[i] < 0)
			fail("fork");
		if (!pids[i]) {
			char index[16];

			if (in)
				dup2(in, 0);
			if (!last)
				dup2(ends[1], 1);
			if (in)
				close(in);
			if (!last) {
				close(ends[0]);
				close(ends[1]);
			}
			own += i;
			if (!execs)
				role(stages[i]);
			snprintf(index, sizeof(index), "%d", i);
			execl("/proc/self/exe", "stages", "--role", index, stages[i], NULL);
			fail("exec");
		}
		if (in)
			close(in);
		if (!last) {
			close(ends[1]);
			in = ends[0];
		}
	}
	report = fopen(argv[1 + execs], "w");
	if (!report)
		fail(argv[1 + execs]);
	fprintf(report, "[");
	for (int i = 0; i < count; i++) {
		struct rusage usage;
		siginfo_t info;
		int status;

		if (waitid(P_PID, pids[i], &info, WEXITED | WNOWAIT))
			fail("waitid");
		fprintf(report, "%s{\"pid\": %d, \"seconds\": %.9f", i ? ",\n " : "", pids[i],
			now(CLOCK_MONOTONIC) - start[i]);
		print_file(report, pids[i], "schedstat");
		print_file(report, pids[i], "io");
		if (wait4(pids[i], &status, 0, &usage) != pids[i])
			fail("wait4");
		fprintf(report, ", \"status\": %d, \"user\": %.6f, \"system\": %.6f", status,
			seconds(usage.ru_utime), seconds(usage.ru_stime));
		fprintf(report, ", \"read_bytes\": %ld, \"written_bytes\": %ld, \"read_calls\": %ld, "
			"\"write_calls\": %ld, \"children_cpu\": %.6f}",
			own[i].read_bytes, own[i].written_bytes, own[i].read_calls, own[i].write_calls,
			own[i].children_cpu);
	}
	fprintf(report, "]\n");
	return fclose(report) ? 1 : 0;
}
