// SPDX-License-Identifier: Apache-2.0
/*
 * Process 1 of an arm64 guest: loads /pipelined.bpf.o and attaches it, runs a pipeline of two,
 * and compares what the records say with what these two did. `fentry` or `kprobe` on the
 * kernel's command line asks for the `functions` tier by that means; with kprobe, so is the
 * `readahead` tier, else by tracepoints. /brd.ko makes the disk. The last line is the result.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <linux/reboot.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../bpf/pipelined.h"

#define STAGES 64
#define NAP_NS 300000000L	/* each makes the other wait this long */
#define DISK "/dev/ram0"
#define DISK_BYTES (1 << 20)	/* that the writer reads first, by pages */
#define PAGE 4096
#define BYTES (3 * 65536)	/* more than a pipe holds */
#define LEAST_NS (NAP_NS * 8 / 10)	/* emulated time is warped */

static int failures;

static void check(int holds, const char *what)
{
	printf("arm64: %s %s\n", holds ? "ok    " : "FAILED", what);
	failures += !holds;
}

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
}

/* The reader waits for the first byte, the writer for room. */
static int act(const char *role)
{
	static char buffer[65536];
	long size, sum = 0;

	if (!strcmp(role, "write")) {
		int disk = open(DISK, O_RDONLY);

		while (sum < DISK_BYTES && (size = read(disk, buffer, PAGE)) > 0)
			sum += size;
		if (sum != DISK_BYTES)
			return 1;
		sum = 0;
		nap();
		for (; sum < BYTES; sum += size)
			if ((size = write(1, buffer, sizeof(buffer))) <= 0)
				return 1;
		return 0;
	}
	size = read(0, buffer, 1);
	nap();
	for (sum = size; (size = read(0, buffer, sizeof(buffer))) > 0; sum += size)
		;
	return sum != BYTES;
}

static int start(const char *role, int in, int out, int other)
{
	int pid = fork();

	if (!pid) {
		dup2(in, 0);
		dup2(out, 1);
		if (other >= 0)
			close(other);
		if (in > 2)
			close(in);
		if (out > 2)
			close(out);
		execl("/init", role, NULL);
		_exit(127);
	}
	return pid;
}

static void compare_pages(const struct readahead *found)
{
	const __u64 *pages = found->pages;

	/* and up to two of the program itself */
	check(pages[PAGE_HIT] + pages[PAGE_LATE] + pages[PAGE_MISS] + pages[PAGE_WARM] >=
			      DISK_BYTES / PAGE &&
		      pages[PAGE_WARM] <= 2,
	      "every page that was read is told");
	check(pages[PAGE_MISS] >= 1 && pages[PAGE_HIT] + pages[PAGE_LATE] >= DISK_BYTES / PAGE / 2,
	      "most were read ahead (system call number, descriptor)");
	check(found->inserted == pages[PAGE_HIT] + pages[PAGE_LATE] + pages[PAGE_WASTED],
	      "what was read ahead was used or wasted");
}

static void compare(struct stage *stages, struct functions *functions,
		    struct readahead *readahead, int kprobe, int writer, int reader)
{
	struct stage *w = NULL, *r = NULL;
	__u64 sum;

	for (int i = 1; i < STAGES; i++) {
		if (stages[i].root.pid == (__u32)writer)
			w = &stages[i];
		if (stages[i].root.pid == (__u32)reader)
			r = &stages[i];
	}
	check(w && r, "both are stages");
	if (!w || !r)
		return;
	check(w->pipeline.alias || r->pipeline.alias, "they are one pipeline");
	/* what the kernel reads of the program for its exec is the same for both */
	check(w->written_bytes == BYTES &&
		      r->read_bytes == BYTES + w->read_bytes - DISK_BYTES,
	      "bytes are exact");
	compare_pages(&readahead[w - stages]);
	check(w->time_ns[STATE_SLEEP] > LEAST_NS, "the writer slept (argument registers, nanosleep)");
	check(w->time_ns[STATE_PIPE_FULL] > LEAST_NS, "the writer waited for room (write)");
	check(r->time_ns[STATE_PIPE_EMPTY] > LEAST_NS, "the reader waited for data (read)");
	check(w->end_ns && r->end_ns, "both are over");
	sum = 0;
	for (int i = 0; i < STATES; i++)
		sum += w->time_ns[i];
	check(sum > (w->end_ns - w->start_ns) * 99 / 100 && sum <= w->end_ns - w->start_ns,
	      "states add up to the lifetime");
	check(functions[w - stages].pipe_writes.counts[16] == BYTES / 65536 &&
		      functions[w - stages].pipe_writes.sum == BYTES,
	      kprobe ? "every write of the pipe is in its bucket (kprobe)" :
		       "every write of the pipe is in its bucket (fentry)");
	if (!kprobe)
		check(functions[r - stages].pipe_reads.sum == BYTES,
		      "the pipe's reads add up to what was written (fexit)");
}

/* A program, and the kernel's functions that it may be for: the first one that there is. */
struct wanted {
	const char *name, *functions[2];
};

static void want(struct bpf_object *object, const struct wanted *wanted, int count)
{
	for (int i = 0; i < count; i++) {
		struct bpf_program *program =
			bpf_object__find_program_by_name(object, wanted[i].name);

		bpf_program__set_autoload(program, true);
	}
}

static const struct wanted by_kprobe[] = {
	{ "on_pipe_write_kprobe", { "anon_pipe_write", "pipe_write" } },
	{ "on_get_pages_kprobe", { "filemap_get_pages" } },
	{ "on_filemap_fault_kprobe", { "filemap_fault" } },
};
static const struct wanted by_tracepoint[] = {
	{ .name = "on_pages_got" },
	{ .name = "on_file_fault" },
};
static const struct wanted always[] = {
	{ .name = "on_page_added" },
	{ .name = "on_reader_exit" },
};

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static void want_readahead(struct bpf_object *object, int kprobe)
{
	bpf_map__set_max_entries(bpf_object__find_map_by_name(object, "readahead"), STAGES);
	want(object, always, COUNT(always));
	if (!kprobe)
		want(object, by_tracepoint, COUNT(by_tracepoint));
}

/* Chooses the programs of the `functions` tier that see pipes. */
static void want_functions(struct bpf_object *object, int kprobe)
{
	static const char *const wanted[][3] = {
		{ "on_pipe_write", "anon_pipe_write", "pipe_write" },
		{ "on_pipe_read", "anon_pipe_read", "pipe_read" },
	};
	struct bpf_program *program;

	bpf_map__set_max_entries(bpf_object__find_map_by_name(object, "functions"), STAGES);
	if (kprobe) {
		want(object, by_kprobe, COUNT(by_kprobe));
		return;
	}
	for (int i = 0; i < 2; i++) {
		program = bpf_object__find_program_by_name(object, wanted[i][0]);
		bpf_program__set_autoload(program, true);
		if (bpf_program__set_attach_target(program, 0, wanted[i][1]))
			bpf_program__set_attach_target(program, 0, wanted[i][2]);
	}
}

static int attach(struct bpf_program *program)
{
	for (unsigned i = 0; i < COUNT(by_kprobe); i++) {
		const struct wanted *wanted = &by_kprobe[i];

		if (strcmp(bpf_program__name(program), wanted->name))
			continue;
		for (unsigned j = 0; j < COUNT(wanted->functions) && wanted->functions[j]; j++)
			if (bpf_program__attach_kprobe(program, false, wanted->functions[j]))
				return 1;
		return 0;
	}
	return bpf_program__attach(program) != NULL;
}

static struct bpf_object *load(int kprobe)
{
	struct bpf_object *object = bpf_object__open_file("/pipelined.bpf.o", NULL);
	struct bpf_program *program;
	struct control control = { .max_windows = STAGES };
	__u32 zero = 0;

	if (!object)
		return NULL;
	bpf_map__set_max_entries(bpf_object__find_map_by_name(object, "stages"), STAGES);
	bpf_map__set_max_entries(bpf_object__find_map_by_name(object, "free_stages"), STAGES);
	want_functions(object, kprobe);
	want_readahead(object, kprobe);
	if (bpf_object__load(object))
		return NULL;
	for (__u32 index = STAGES - 1; index; index--)
		bpf_map_update_elem(bpf_object__find_map_fd_by_name(object, "free_stages"), NULL,
				    &index, 0);
	bpf_map_update_elem(bpf_object__find_map_fd_by_name(object, "control"), &zero, &control, 0);
	bpf_object__for_each_program(program, object)
		if (bpf_program__autoload(program) && !attach(program))
			return NULL;
	return object;
}

int main(int argc, char **argv)
{
	static struct functions functions[STAGES];
	static struct readahead readahead[STAGES];
	static struct stage stages[STAGES];
	int kprobe = argc > 1 && !strcmp(argv[1], "kprobe");
	struct bpf_object *object;
	int ends[2], writer, reader, status[2];

	if (strcmp(argv[0], "/init"))
		return act(argv[0]);
	mount("proc", "/proc", "proc", 0, NULL);
	mount("sysfs", "/sys", "sysfs", 0, NULL);
	mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	check(!syscall(SYS_finit_module, open("/brd.ko", O_RDONLY), "rd_nr=1 rd_size=4096", 0),
	      "there is a disk");
	object = load(kprobe);
	check(object != NULL, "the object loads and attaches");
	if (object) {
		if (pipe(ends))
			return 1;
		writer = start("write", 0, ends[1], ends[0]);
		reader = start("read", ends[0], 1, ends[1]);
		close(ends[0]);
		close(ends[1]);
		waitpid(writer, &status[0], 0);
		waitpid(reader, &status[1], 0);
		check(!status[0] && !status[1], "the pipeline moved its bytes");
		sleep(1);
		for (__u32 i = 1; i < STAGES; i++)
			bpf_map_lookup_elem(bpf_object__find_map_fd_by_name(object, "stages"), &i,
					    &stages[i]);
		for (__u32 i = 1; i < STAGES; i++)
			bpf_map_lookup_elem(bpf_object__find_map_fd_by_name(object, "functions"),
					    &i, &functions[i]);
		for (__u32 i = 1; i < STAGES; i++)
			bpf_map_lookup_elem(bpf_object__find_map_fd_by_name(object, "readahead"),
					    &i, &readahead[i]);
		compare(stages, functions, readahead, kprobe, writer, reader);
	}
	printf("guest: result failures=%d\n", failures);
	sync();
	reboot(LINUX_REBOOT_CMD_POWER_OFF);
	return 0;
}
