/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What identifies the instance of a job that a process belongs to: values of variables of its environment.
 * Owns the maps `instances` and `entered_instances`; jobs.bpf.h writes what it returns to tasks and stages.
 * Called at exec, after the environment has been read.
 * Costs nothing if no such variable is set, else a copy and a hash of the values and a look-up: docs/BENCHMARKS.md.
 * Cannot see more than INSTANCE_VALUES values, nor what is longer than INSTANCE_TEXT. Of INSTANCES records the oldest
 * gives way; if the daemon had not read it, that is counted in `lost` by the daemon.
 */
#ifndef PIPELINED_INSTANCES_H
#define PIPELINED_INSTANCES_H

#include "environment.bpf.h"

MAP_HASH(instances, u64, struct instance, INSTANCES);
MAP_ARRAY(entered_instances, u64, INSTANCES);	/* their keys, by the order in which they were entered, modulo INSTANCES */

#define ROTATED(value, bits) ((value) << (bits) | (value) >> (64 - (bits)))

/*
 * A round of SipHash (Aumasson and Bernstein, 2012). With a secret key nobody can make values that have the hash of
 * another user's; of a chain of multiplications that is not true, whatever the key: differences in the top bits of two
 * words cancel out.
 */
static __always_inline void mix(u64 *hash)
{
	u64 a = hash[0], b = hash[1], c = hash[2], d = hash[3];

	a += b;
	b = ROTATED(b, 13) ^ a;
	a = ROTATED(a, 32);
	c += d;
	d = ROTATED(d, 16) ^ c;
	a += d;
	d = ROTATED(d, 21) ^ a;
	c += b;
	b = ROTATED(b, 17) ^ c;
	hash[0] = a;
	hash[1] = b;
	hash[2] = ROTATED(c, 32);
	hash[3] = d;
}

static __always_inline void begin_hash(struct scratch *page)
{
	struct control *control = control_page();
	u64 low = control ? control->secret[0] : 0, high = control ? control->secret[1] : 0;

	page->hash[0] = low ^ 0x736f6d6570736575;
	page->hash[1] = high ^ 0x646f72616e646f6d;
	page->hash[2] = low ^ 0x6c7967656e657261;
	page->hash[3] = high ^ 0x7465646279746573;
}

static __always_inline void hash_word(struct scratch *page, u64 word)
{
	page->hash[3] ^= word;
	mix(page->hash);
	page->hash[0] ^= word;
}

/* Never 0. */
static __always_inline u64 end_hash(struct scratch *page)
{
	u64 key;

	hash_word(page, page->instance.count);
	page->hash[2] ^= 0xff;
	for (int i = 0; i < 3; i++)
		mix(page->hash);
	key = page->hash[0] ^ page->hash[1] ^ page->hash[2] ^ page->hash[3];
	return key + !key;
}

/* Adds a value that is on the page to the hash, as far as it goes: behind its text there are zeros. */
GLOBAL(int, hash_value)(u32 scratch, u64 at)
{
	struct scratch *page = scratch_at(scratch);
	struct instance_value *value;
	u64 *words;

	OPAQUE(at);
	if (!page || at >= INSTANCE_VALUES)
		return 0;
	value = &page->instance.values[at];
	words = (u64 *)value;
	for (u32 i = 0; i < sizeof(*value) / sizeof(u64); i++) {
		if (i * sizeof(u64) > sizeof(*value) - INSTANCE_TEXT + value->length)
			break;
		hash_word(page, words[i]);
	}
	return 0;
}

/* Keeps the value of the variable at this place of the configuration, if it is set, is not empty, and there is room. */
GLOBAL(int, keep_value)(u32 scratch, u64 place)
{
	struct scratch *page = scratch_at(scratch);
	struct instance_value *value;
	u64 at, from;
	char more = 0;
	long size;

	OPAQUE(place);
	if (!page || place >= MAX_INSTANCE_VARIABLES || !page->instances_at[place])
		return 0;
	at = page->instance.count;
	OPAQUE(at);
	if (at >= INSTANCE_VALUES)
		return 0;
	from = page->instances_at[place];
	value = &page->instance.values[at];
	__builtin_memset(value, 0, sizeof(*value));
	size = bpf_probe_read_user_str(value->text, INSTANCE_TEXT, (void *)from);
	if (size <= 1)
		return 0;
	if (size == INSTANCE_TEXT)
		bpf_probe_read_user(&more, sizeof(more), (void *)(from + INSTANCE_TEXT - 1));
	value->variable = place;
	value->length = more ? INSTANCE_TEXT : size - 1;
	page->instance.count = at + 1;
	return hash_value(scratch, at);
}

/* What the values of another program have left on the page. */
GLOBAL(int, clear_value)(u32 scratch, u64 at)
{
	struct scratch *page = scratch_at(scratch);

	OPAQUE(at);
	if (page && at < INSTANCE_VALUES)
		__builtin_memset(&page->instance.values[at], 0, sizeof(struct instance_value));
	return 0;
}

/* Enters the record on the page, unless it is there. */
GLOBAL(int, enter_instance)(u32 scratch, u64 key)
{
	struct scratch *page = scratch_at(scratch);
	struct control *control = control_page();

	if (!page || !control || bpf_map_lookup_elem(MAP(instances), &key))
		return 0;
	for (u32 at = 0; at < INSTANCE_VALUES; at++)
		if (at >= page->instance.count)
			clear_value(scratch, at);
	enter(MAP(instances), MAP(entered_instances), INSTANCES, &control->instances, key, &page->instance);
	return 0;
}

/* The instance by the environment that has been read; 0 = none. */
GLOBAL(u64, instance_of_variables)(u32 scratch)
{
	struct scratch *page = scratch_at(scratch);
	u64 key;

	if (!page)
		return 0;
	page->instance.count = 0;
	begin_hash(page);
	for (u32 place = 0; place < MAX_INSTANCE_VARIABLES; place++)
		keep_value(scratch, place);
	if (!page->instance.count)
		return 0;
	key = end_hash(page);
	enter_instance(scratch, key);
	return key;
}

#endif
