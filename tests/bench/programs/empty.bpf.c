// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs that do nothing, at the hooks of the daemon that are hit most: what calling any program
 * costs there, and what the kernel's own timing of programs does. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("tp_btf/sched_switch")
int bench_empty(void *ctx)
{
	return 0;
}

SEC("tp_btf/sched_wakeup")
int bench_wakeup(void *ctx)
{
	return 0;
}

SEC("tp_btf/mm_filemap_get_pages")
int bench_read(void *ctx)
{
	return 0;
}

SEC("tp_btf/mm_filemap_add_to_page_cache")
int bench_page(void *ctx)
{
	return 0;
}
