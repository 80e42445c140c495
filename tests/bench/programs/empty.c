// SPDX-License-Identifier: Apache-2.0
/*
 * empty OBJECT HOOKS: attach programs that do nothing until it is killed. Prints "ready".
 *   sched      where the scheduler tier is called at each switch and each wake-up
 *   readahead  where the readahead tier is called at each read and each page
 *   timed      one of each kind, of which the kernel's timing tells what that takes itself
 * Before 6.12 there is nothing that bench_read could be attached to.
 */
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *hooks_of[][4] = {
	{"sched", "bench_empty", "bench_wakeup"},
	{"readahead", "bench_read", "bench_page"},
	{"timed", "bench_empty", "bench_read", "bench_page"},
};

static bool is_chosen(const char *hooks, const char *program)
{
	for (size_t i = 0; i < sizeof(hooks_of) / sizeof(*hooks_of); i++)
		for (size_t n = 1; n < 4; n++)
			if (!strcmp(hooks_of[i][0], hooks) && hooks_of[i][n] &&
			    !strcmp(hooks_of[i][n], program))
				return true;
	return false;
}

int main(int argc, char **argv)
{
	struct bpf_object *object = argc == 3 ? bpf_object__open_file(argv[1], NULL) : NULL;
	struct btf *kernel = btf__load_vmlinux_btf();
	struct bpf_program *program;

	if (!object || !kernel)
		return 1;
	bpf_object__for_each_program(program, object)
		if (!is_chosen(argv[2], bpf_program__name(program)))
			bpf_program__set_autoload(program, false);
	if (btf__find_by_name(kernel, "btf_trace_mm_filemap_get_pages") < 0)
		bpf_program__set_autoload(
			bpf_object__find_program_by_name(object, "bench_read"), false);
	if (bpf_object__load(object))
		return 1;
	bpf_object__for_each_program(program, object)
		if (bpf_program__autoload(program) && !bpf_program__attach(program))
			return 1;
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}
