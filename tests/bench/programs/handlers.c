// SPDX-License-Identifier: Apache-2.0
/*
 * handlers OBJECT DAEMON FILE: runs handlers.bpf.c on the maps of the daemon with that pid, and
 * writes to FILE how many nanoseconds a call takes. As a stage of a pipeline it is a member, and
 * stdout the pipe; stdin has to be a file.
 */
#define _GNU_SOURCE
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../../bpf/pipelined.h"

#define CALLS 2000
#define ROUNDS 301
#define STAGES 16384

/* The daemon's map of this name (the kernel keeps 15 letters of it), or -1. */
static int map_of(const char *daemon, const char *name)
{
	struct bpf_map_info info;
	char path[300], line[200];
	struct dirent *entry;
	__u32 size, id;
	DIR *directory;
	FILE *file;
	int fd;

	snprintf(path, sizeof(path), "/proc/%s/fdinfo", daemon);
	directory = opendir(path);
	while (directory && (entry = readdir(directory))) {
		snprintf(path, sizeof(path), "/proc/%s/fdinfo/%s", daemon, entry->d_name);
		file = fopen(path, "r");
		id = 0;
		while (file && fgets(line, sizeof(line), file))
			sscanf(line, "map_id: %u", &id);
		if (file)
			fclose(file);
		fd = id ? bpf_map_get_fd_by_id(id) : -1;
		size = sizeof(info);
		memset(&info, 0, sizeof(info));
		if (fd >= 0 && !bpf_obj_get_info_by_fd(fd, &info, &size) &&
		    !strncmp(info.name, name, sizeof(info.name) - 1))
			return fd;
		if (fd >= 0)
			close(fd);
	}
	return -1;
}

static int compare(const void *a, const void *b)
{
	double difference = *(const double *)a - *(const double *)b;

	return difference > 0 ? 1 : difference < 0 ? -1 : 0;
}

/* Writes that the handler has counted, of all stages. */
static unsigned long long counted(int map)
{
	struct functions entry;
	unsigned long long sum = 0;

	for (__u32 index = 0; index <= STAGES; index++)
		if (!bpf_map_lookup_elem(map, &index, &entry))
			for (int bucket = 0; bucket < SIZE_BUCKETS; bucket++)
				sum += entry.pipe_writes.counts[bucket];
	return sum;
}

/* Median nanoseconds of one call. */
static double measure(int program)
{
	static double took[ROUNDS];
	LIBBPF_OPTS(bpf_test_run_opts, options);
	struct timespec begin, end;

	for (int i = 0; i < ROUNDS; i++) {
		clock_gettime(CLOCK_MONOTONIC, &begin);
		if (bpf_prog_test_run_opts(program, &options)) {
			perror("BPF_PROG_RUN");
			exit(1);
		}
		clock_gettime(CLOCK_MONOTONIC, &end);
		if (options.retval != CALLS) {
			fprintf(stderr, "%u of %d calls made\n", options.retval, CALLS);
			exit(1);
		}
		took[i] = ((end.tv_sec - begin.tv_sec) * 1e9 + end.tv_nsec - begin.tv_nsec) / CALLS;
	}
	qsort(took, ROUNDS, sizeof(*took), compare);
	return took[ROUNDS / 2];
}

int main(int argc, char **argv)
{
	static const char *const shared[] = { "noted", "tasks", "stages" };
	static const char *const names[] = { "nothing", "pipe_write", "pipe_read", "file_read" };
	int closed = close_range(3, ~0U, 0);
	struct bpf_object *object = argc == 4 && !closed ? bpf_object__open_file(argv[1], NULL) : NULL;
	FILE *out = argc == 4 ? fopen(argv[3], "w") : NULL;
	char name[32];
	int status;

	if (!object || !out)
		return 1;
	/* a process of few descriptors has its table where handlers.bpf.c looks: a new one, here */
	if (fork()) {
		wait(&status);
		return status != 0;
	}
	usleep(300000); /* time enough to be seen to be a stage */
	/* without the tier the daemon's own has one entry */
	bpf_map__set_max_entries(bpf_object__find_map_by_name(object, "functions"), STAGES + 1);
	for (unsigned int i = 0; i < sizeof(shared) / sizeof(*shared); i++) {
		int fd = map_of(argv[2], shared[i]);

		if (fd < 0 || bpf_map__reuse_fd(bpf_object__find_map_by_name(object, shared[i]), fd)) {
			fprintf(stderr, "no map %s\n", shared[i]);
			return 1;
		}
	}
	if (bpf_object__load(object))
		return 1;
	for (unsigned int i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(name, sizeof(name), "run_%s", names[i]);
		fprintf(out, "%s %.1f\n", names[i],
			measure(bpf_program__fd(bpf_object__find_program_by_name(object, name))));
	}
	fprintf(out, "counted %llu\nexpected %d\n",
		counted(bpf_map__fd(bpf_object__find_map_by_name(object, "functions"))),
		ROUNDS * CALLS);
	return fclose(out);
}
