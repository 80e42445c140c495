// SPDX-License-Identifier: Apache-2.0
/*
 * empty OBJECT: attach the programs that do nothing until it is killed. Prints "ready". Before
 * 6.12 there is nothing that bench_read could be attached to.
 */
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct bpf_object *object = argc == 2 ? bpf_object__open_file(argv[1], NULL) : NULL;
	struct btf *kernel = btf__load_vmlinux_btf();
	struct bpf_program *program;

	if (!object || !kernel)
		return 1;
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
