// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Teams, active sets and contexts. A team is every so-many-th PE of the job, and a slot in shared memory.
 *
 * An active set has no handle, and its PEs have not agreed on anything: they find a slot by the set's numbers.
 */
#include <stdlib.h>

#include "internal.h"

static struct team world, shared_team;
/* Guards the lists of contexts and active_sets. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Any active set of this PE alone. */
static struct slot own_slot;
static struct team active_sets[NR_SLOTS - FIRST_SET + 1];
static int nr_active_sets;

void teams_init(void)
{
	world = (struct team){ .stride = 1, .size = (int)self.npes, .me = self.me, .slot = &self.shared->slot[0] };
	shared_team = world;
	shared_team.slot++;
	nr_active_sets = 0;
}

struct team *team_of(shmem_team_t handle)
{
	if (handle == SHMEM_TEAM_WORLD)
		return &world;
	return handle == SHMEM_TEAM_SHARED ? &shared_team : (struct team *)handle;
}

static shmem_team_t handle_of(struct team *team)
{
	if (team == &world)
		return SHMEM_TEAM_WORLD;
	return team == &shared_team ? SHMEM_TEAM_SHARED : (shmem_team_t)team;
}

void team_barrier(struct team *team)
{
	struct table *table = &self.shared->table;
	struct barrier *barrier = team == &world ? &table->all : &team->slot->barrier;

	if (team->size == 1) {
		__builtin_ia32_mfence();
		return;
	}
	if (barrier_wait(table, barrier, (uint32_t)team->size, self.spins) != 0)
		die_with(table_missing(table));
}

/* Returns the number of a slot that was free, or -1. */
static int take_slot(void)
{
	for (int i = FIRST_TEAM; i < FIRST_SET; i++) {
		uint64_t key = 0;

		if (atomic_compare_exchange_strong(&self.shared->slot[i].key, &key, 1))
			return i;
	}
	return -1;
}

/* ---- Active sets ------------------------------------------------------------------ */

/* The set's slot: the one with its key, or else the first without any. They are never given back. */
static struct slot *slot_of(uint64_t key)
{
	for (int i = FIRST_SET; i < NR_SLOTS; i++) {
		struct slot *slot = &self.shared->slot[i];
		uint64_t found = 0;

		if (atomic_compare_exchange_strong(&slot->key, &found, key) || found == key)
			return slot;
	}
	return NULL;
}

struct team *active_set(const char *what, int start, int log_stride, int size)
{
	struct team set = { .start = start, .size = size };
	struct team *found = NULL;

	need_init(what);
	if (log_stride < 0 || log_stride > 30 || size < 1 || start < 0 ||
	    start + ((int64_t)(size - 1) << log_stride) >= self.npes)
		die(what, "active set of %d PEs from %d on, log of the stride %d: there are PEs 0 to %u", size, start,
		    log_stride, self.npes - 1);
	set.stride = 1 << log_stride;
	if (set.start == 0 && set.stride == 1 && set.size == (int)self.npes)
		return &world;
	if (self.me < start || (self.me - start) % set.stride || (self.me - start) / set.stride >= size)
		die(what, "this PE is not in the active set");
	set.me = (self.me - start) / set.stride;
	/* Of one PE there is one set. */
	if (size == 1)
		set.stride = 1;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < nr_active_sets && !found; i++)
		if (active_sets[i].start == set.start && active_sets[i].stride == set.stride &&
		    active_sets[i].size == set.size)
			found = &active_sets[i];
	if (!found) {
		set.slot = size == 1 ? &own_slot : slot_of((uint64_t)start << 40 | (uint64_t)log_stride << 32 | (uint64_t)size);
		if (!set.slot)
			die(what, "too many active sets: at most %d", NR_SLOTS - FIRST_SET);
		active_sets[nr_active_sets] = set;
		found = &active_sets[nr_active_sets++];
	}
	pthread_mutex_unlock(&lock);
	return found;
}

/* ---- Teams ------------------------------------------------------------------------- */

/*
 * All PEs of the parent call it. Each names the part that it wants to know of: the first PE of a part
 * takes a slot and tells the others; a part of one PE has memory of its own. Returns 0 if the part has one; *new is a
 * team at its members.
 */
static int split(struct team *parent, int start, int stride, int size, const shmem_team_config_t *config, long mask,
		 shmem_team_t *new)
{
	int off = parent->me - start, index = stride ? off / stride : 0, slot;
	bool is_member = stride ? off % stride == 0 && index >= 0 && index < size : off == 0;
	uint64_t *words = parent->slot->word;
	struct team *team = is_member ? calloc(1, sizeof(*team)) : NULL;

	if (is_member && !team)
		die("shmem_team_split", "no memory");
	if (is_member && size == 1)
		team->slot = aligned_alloc(_Alignof(struct slot), sizeof(*team->slot));
	if (is_member && index == 0)
		words[parent->me] = size == 1 ? (team->slot ? 0 : UINT64_MAX) : (uint64_t)take_slot();
	team_barrier(parent);
	slot = (int)words[start];
	/* Before the word is another split's. */
	team_barrier(parent);
	if (slot < 0 || !is_member) {
		if (team)
			free(team->slot);
		free(team);
		return slot < 0;
	}
	team->start = world_pe(parent, start);
	team->stride = parent->stride * stride;
	team->size = size;
	team->me = index;
	if (size > 1)
		team->slot = &self.shared->slot[slot];
	if (config && mask & SHMEM_TEAM_NUM_CONTEXTS)
		team->config = *config;
	*new = (shmem_team_t)team;
	return 0;
}

API(int, team_split_strided,
    (shmem_team_t parent_team, int start, int stride, int size, const shmem_team_config_t *config, long config_mask,
     shmem_team_t *new_team))
{
	struct team *parent = team_of(parent_team);
	int64_t last = start + (int64_t)stride * (size - 1);

	need_init(__func__);
	*new_team = SHMEM_TEAM_INVALID;
	if (!parent || size < 1 || (stride == 0 && size != 1) || start < 0 || start >= parent->size || last < 0 ||
	    last >= parent->size)
		return -1;
	return split(parent, start, stride, size, config, config_mask, new_team);
}

API(int, team_split_2d,
    (shmem_team_t parent_team, int xrange, const shmem_team_config_t *xaxis_config, long xaxis_mask,
     shmem_team_t *xaxis_team, const shmem_team_config_t *yaxis_config, long yaxis_mask, shmem_team_t *yaxis_team))
{
	struct team *parent = team_of(parent_team);
	uint64_t *words;
	int x, y, failed;

	need_init(__func__);
	*xaxis_team = SHMEM_TEAM_INVALID;
	*yaxis_team = SHMEM_TEAM_INVALID;
	if (!parent || xrange < 1)
		return -1;
	if (xrange > parent->size)
		xrange = parent->size;
	words = parent->slot->word;
	x = parent->me % xrange;
	y = parent->me - x;
	failed = split(parent, y, 1, xrange < parent->size - y ? xrange : parent->size - y, xaxis_config, xaxis_mask,
		       xaxis_team);
	failed |= split(parent, x, xrange, (parent->size - x + xrange - 1) / xrange, yaxis_config, yaxis_mask,
			yaxis_team);
	/* All PEs have both teams, or none has any. */
	words[parent->me] = (uint64_t)failed;
	team_barrier(parent);
	for (int i = 0; i < parent->size; i++)
		failed |= (int)words[i];
	/* Before the words are another split's. */
	team_barrier(parent);
	if (failed) {
		pshmem_team_destroy(*xaxis_team);
		pshmem_team_destroy(*yaxis_team);
		*xaxis_team = SHMEM_TEAM_INVALID;
		*yaxis_team = SHMEM_TEAM_INVALID;
	}
	return failed;
}

API(void, team_destroy, (shmem_team_t handle))
{
	struct team *team = team_of(handle);

	need_init(__func__);
	if (!team)
		return;
	if (team == &world || team == &shared_team)
		die(__func__, "a predefined team cannot be destroyed");
	team_barrier(team);
	while (team->contexts)
		pshmem_ctx_destroy((shmem_ctx_t)team->contexts);
	if (team->size == 1)
		free(team->slot);
	else if (team->me == 0)
		team->slot->key = 0;
	free(team);
}

API(int, team_my_pe, (shmem_team_t handle))
{
	struct team *team = team_of(handle);

	return team ? team->me : -1;
}

API(int, team_n_pes, (shmem_team_t handle))
{
	struct team *team = team_of(handle);

	return team ? team->size : -1;
}

API(int, team_get_config, (shmem_team_t handle, long config_mask, shmem_team_config_t *config))
{
	struct team *team = team_of(handle);

	if (!team)
		return -1;
	if (config_mask & SHMEM_TEAM_NUM_CONTEXTS)
		*config = team->config;
	return 0;
}

API(int, team_translate_pe, (shmem_team_t src_team, int src_pe, shmem_team_t dest_team))
{
	struct team *from = team_of(src_team), *to = team_of(dest_team);
	int off;

	if (!from || !to || src_pe < 0 || src_pe >= from->size)
		return -1;
	off = world_pe(from, src_pe) - to->start;
	if (!to->stride)
		return off ? -1 : 0;
	return off % to->stride == 0 && off / to->stride >= 0 && off / to->stride < to->size ? off / to->stride : -1;
}

/* ---- Contexts ------------------------------------------------------------------------ */

API(int, team_create_ctx, (shmem_team_t handle, long options, shmem_ctx_t *ctx))
{
	struct team *team = team_of(handle);
	struct ctx *new;

	(void)options;
	need_init(__func__);
	*ctx = SHMEM_CTX_INVALID;
	if (!team)
		return -1;
	new = malloc(sizeof(*new));
	if (!new)
		return -1;
	new->team = team;
	pthread_mutex_lock(&lock);
	new->next = team->contexts;
	team->contexts = new;
	pthread_mutex_unlock(&lock);
	*ctx = (shmem_ctx_t)new;
	return 0;
}

API(int, ctx_create, (long options, shmem_ctx_t *ctx))
{
	return pshmem_team_create_ctx(SHMEM_TEAM_WORLD, options, ctx);
}

API(void, ctx_destroy, (shmem_ctx_t ctx))
{
	struct ctx *old = (struct ctx *)ctx, **at;

	need_init(__func__);
	if (ctx == SHMEM_CTX_INVALID)
		return;
	if (ctx == SHMEM_CTX_DEFAULT)
		die(__func__, "the default context cannot be destroyed");
	__builtin_ia32_mfence();
	pthread_mutex_lock(&lock);
	for (at = &old->team->contexts; *at && *at != old;)
		at = &(*at)->next;
	if (*at)
		*at = old->next;
	pthread_mutex_unlock(&lock);
	free(old);
}

API(int, ctx_get_team, (shmem_ctx_t ctx, shmem_team_t *team))
{
	*team = SHMEM_TEAM_INVALID;
	if (ctx == SHMEM_CTX_INVALID)
		return -1;
	*team = ctx == SHMEM_CTX_DEFAULT ? SHMEM_TEAM_WORLD : handle_of(((struct ctx *)ctx)->team);
	return 0;
}

int pe_of_context(const char *what, shmem_ctx_t ctx, int pe)
{
	struct team *team;

	if (ctx == SHMEM_CTX_INVALID)
		die(what, "the context is SHMEM_CTX_INVALID");
	team = ((struct ctx *)ctx)->team;
	if (pe < 0 || pe >= team->size)
		die(what, "there is no PE %d in the context's team: it has PEs 0 to %d", pe, team->size - 1);
	return world_pe(team, pe);
}
