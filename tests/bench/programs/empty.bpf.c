// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A program that does nothing: what the kernel's own timing of programs costs. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("tp_btf/sched_switch")
int bench_empty(void *ctx)
{
	return 0;
}
