/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the layout of the records that the kernel side and the daemon share, as JSON. */
#include <linux/bpf.h>
#include <linux/types.h>
#include <stddef.h>
#include <stdio.h>

#include "../../../bpf/pipelined.h"

int main(void)
{
	printf("{\"stage\": %zu, \"pipeline\": %zu, \"functions\": %zu, "
	       "\"pipe\": %zu, \"pipe_key\": %zu, "
	       "\"control\": %zu, \"stage.start_ns\": %zu, \"stage.generation\": %zu, "
	       "\"stage.comm\": %zu, \"stage.ends\": %zu, \"pipeline.start_ns\": %zu, "
	       "\"pipeline.alias\": %zu, \"control.began_ns\": %zu, \"control.missed_switches\": %zu, "
	       "\"control.watch_pid\": %zu, \"readahead\": %zu, "
	       "\"bpf_prog_info.recursion_misses\": %zu, \"states\": %d, "
	       "\"levels\": %d, \"lost_kinds\": %d}\n",
	       sizeof(struct stage), sizeof(struct pipeline),
	       sizeof(struct functions), sizeof(struct pipe),
	       sizeof(struct pipe_key), sizeof(struct control), offsetof(struct stage, start_ns),
	       offsetof(struct stage, generation), offsetof(struct stage, comm),
	       offsetof(struct stage, ends), offsetof(struct pipeline, start_ns),
	       offsetof(struct pipeline, alias), offsetof(struct control, began_ns),
	       offsetof(struct control, missed_switches),
	       offsetof(struct control, watch_pid), sizeof(struct readahead),
	       offsetof(struct bpf_prog_info, recursion_misses), STATES,
	       LEVEL_COUNT, LOST_KINDS);
	return 0;
}
