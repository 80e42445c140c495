// SPDX-License-Identifier: Apache-2.0
/* empty OBJECT: attach the program that does nothing until it is killed. Prints "ready". */
#include <bpf/libbpf.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct bpf_object *object = argc == 2 ? bpf_object__open_file(argv[1], NULL) : NULL;
	struct bpf_program *program;

	if (!object || bpf_object__load(object))
		return 1;
	program = bpf_object__find_program_by_name(object, "bench_empty");
	if (!program || !bpf_program__attach(program))
		return 1;
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}
