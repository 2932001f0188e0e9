// SPDX-License-Identifier: GPL-2.0
/*
 * Pages with memory errors: who touches blocks, and who marks their pages bad.
 */
#include <linux/mutex.h>
#include <linux/srcu.h>

#include "hpmmap.h"
#include "mem/poison.h"

DEFINE_STATIC_KEY_FALSE(hpmmap_poison_key);

/* One memory error after the other, while no memory leaves the pools. */
static DEFINE_MUTEX(poison_mutex);

/* Who reads or writes memory of blocks that may turn out to be bad. */
DEFINE_STATIC_SRCU(touch_srcu);

void hpmmap_poison_lock(void)
{
	mutex_lock(&poison_mutex);
}

void hpmmap_poison_unlock(void)
{
	mutex_unlock(&poison_mutex);
}

/**
 * hpmmap_poison_touch() - the caller is about to read or write blocks
 *
 * It looks which pages are bad after the call. The kernel may lose its mapping of
 * a bad page, but not before all who began earlier are done.
 *
 * Return: for hpmmap_poison_untouch().
 */
int hpmmap_poison_touch(void)
{
	return srcu_read_lock(&touch_srcu);
}

void hpmmap_poison_untouch(int cookie)
{
	srcu_read_unlock(&touch_srcu, cookie);
}

/* Who touches blocks by now is done when it returns. */
void hpmmap_poison_wait(void)
{
	synchronize_srcu(&touch_srcu);
}

/* There is a memory error. Takes locks of CPU hotplug. */
void hpmmap_poison_begin(void)
{
	static_branch_enable(&hpmmap_poison_key);
}
