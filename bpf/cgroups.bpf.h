/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the cgroups of stages are called. A service, or a container, may be gone with its cgroup before the daemon reads
 * that directory.
 * Owns the maps `cgroups` and `entered_cgroups`.
 * Called when a stage is made.
 * Costs one look-up for a cgroup that is known, else a copy of the names up to one that is.
 * Cannot see what a cgroup is called later (cgroup v2 has no renaming), nor the cgroups of v1.
 */
#ifndef PIPELINED_CGROUPS_H
#define PIPELINED_CGROUPS_H

#include "maps.bpf.h"

MAP_HASH(cgroups, u64, struct cgroup_name, CGROUPS);
MAP_ARRAY(entered_cgroups, u64, CGROUPS);	/* their keys, as of `entered_instances` */

#define CGROUP_DEPTH 16	/* names of a path that are kept, the last ones */

/* Enters the cgroup that the look on this page has come to, and goes on to the one around it; 0: that is not needed. */
GLOBAL(int, enter_cgroup)(u32 scratch)
{
	struct scratch *page = scratch_at(scratch);
	struct control *control = control_page();
	struct cgroup *cgroup;
	u64 id;

	if (!page || !control)
		return 0;
	cgroup = (struct cgroup *)page->at;
	id = BPF_CORE_READ(cgroup, kn, id);
	if (!id || bpf_map_lookup_elem(MAP(cgroups), &id))
		return 0;
	__builtin_memset(page->name.name, 0, CGROUP_NAME);
	bpf_probe_read_kernel_str(page->name.name, CGROUP_NAME, BPF_CORE_READ(cgroup, kn, name));
	cgroup = BPF_CORE_READ(cgroup, self.parent, cgroup);
	page->at = (u64)cgroup;
	page->name.above = BPF_CORE_READ(cgroup, kn, id);
	enter(MAP(cgroups), MAP(entered_cgroups), CGROUPS, &control->cgroups, id, &page->name);
	return cgroup != NULL;
}

/* The id of a process's cgroup, the name of which is kept. */
GLOBAL(u64, cgroup_of)(u64 p)
{
	struct cgroup *cgroup = BPF_CORE_READ(TASK(p), cgroups, dfl_cgrp);
	u64 id = BPF_CORE_READ(cgroup, kn, id);
	struct scratch *page;
	u32 scratch;

	if (bpf_map_lookup_elem(MAP(cgroups), &id))
		return id;
	scratch = take_scratch();
	page = scratch_at(scratch);
	if (page)
		page->at = (u64)cgroup;
	for (int i = 0; i < CGROUP_DEPTH && enter_cgroup(scratch); i++)
		;
	give_scratch(scratch);
	return id;
}

#endif
