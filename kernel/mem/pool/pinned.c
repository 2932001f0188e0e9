// SPDX-License-Identifier: GPL-2.0
/*
 * Blocks that were given up and still have references (of a device, a pipe). They wait
 * on a list until the last reference is dropped; then their former holder gets them.
 */
#include "hpmmap.h"
#include "mem/block/block.h"
#include "mem/pool/pinned.h"
#include "mem/pool/pool.h"

/* Interval at which pinned blocks are looked at; it grows while none comes free. */
#define PIN_POLL_MS 50
#define PIN_POLL_LAST_MS 1000

/*
 * Pinned blocks that are looked at without a pause. A block of ordinary pages counts as more, since
 * each page is looked at.
 */
#define PIN_POLL_BATCH 64
#define PIN_POLL_LINUX 32

static LIST_HEAD(pinned);
static unsigned long nr_pinned;
static DEFINE_SPINLOCK(pinned_lock);
static unsigned int pinned_ms = PIN_POLL_MS;
/* When an allocation last looked. */
static unsigned long pinned_looked;

static void pinned_work_fn(struct work_struct *work);
static DECLARE_DELAYED_WORK(pinned_work, pinned_work_fn);

/*
 * A block that was given up waits for its pins, in no page table that may still change.
 * @holder gets it then, and must exist until that.
 */
void hpmmap_pinned_add(struct hpmmap_block *block, struct hpmmap_holder *holder)
{
	if (block->folio)
		hpmmap_pool_set_pinned(block);
	spin_lock(&pinned_lock);
	block->holder = holder;
	list_add_tail(&block->link, &pinned);
	nr_pinned++;
	spin_unlock(&pinned_lock);
	queue_delayed_work(hpmmap_wq, &pinned_work, msecs_to_jiffies(PIN_POLL_MS));
}

/*
 * Looks at the next pinned blocks, at most @most and one batch. Those without a pin go to @idle,
 * the others to the end of the list. Returns how many it has looked at.
 */
static unsigned int pinned_look(unsigned long most, struct list_head *idle)
{
	unsigned int nr, looks = 0;
	struct hpmmap_block *block;

	lockdep_assert_held(&pinned_lock);
	for (nr = 0; nr < most && looks < PIN_POLL_BATCH && !list_empty(&pinned); nr++) {
		block = list_first_entry(&pinned, struct hpmmap_block, link);
		looks += block->folio ? 1 : PIN_POLL_LINUX;
		if (hpmmap_block_idle(block)) {
			list_move(&block->link, idle);
			nr_pinned--;
		} else {
			list_move_tail(&block->link, &pinned);
		}
	}
	return nr;
}

static void pinned_take_back(struct list_head *idle)
{
	struct hpmmap_block *block, *tmp;

	list_for_each_entry_safe(block, tmp, idle, link) {
		struct hpmmap_holder *holder = block->holder;

		list_del_init(&block->link);
		block->holder = NULL;
		holder->back(holder, block);
	}
}

/* Takes back the blocks whose pins have gone. May sleep. */
void hpmmap_pinned_poll(void)
{
	unsigned long left = READ_ONCE(nr_pinned);

	while (left) {
		LIST_HEAD(idle);
		unsigned int nr;

		spin_lock(&pinned_lock);
		nr = pinned_look(left, &idle);
		spin_unlock(&pinned_lock);
		if (!list_empty(&idle)) {
			WRITE_ONCE(pinned_ms, PIN_POLL_MS);
			pinned_take_back(&idle);
		}
		if (!nr)
			break;
		left -= nr;
		cond_resched();
	}
}

/*
 * The same for some of them, for an allocation: if there are many, at most once a jiffy; and
 * never while another task does it.
 */
void hpmmap_pinned_poll_some(void)
{
	LIST_HEAD(idle);

	if (!READ_ONCE(nr_pinned) ||
	    (READ_ONCE(nr_pinned) > PIN_POLL_BATCH &&
	     READ_ONCE(pinned_looked) == jiffies) ||
	    !spin_trylock(&pinned_lock))
		return;
	WRITE_ONCE(pinned_looked, jiffies);
	pinned_look(nr_pinned, &idle);
	spin_unlock(&pinned_lock);
	pinned_take_back(&idle);
}

static void pinned_work_fn(struct work_struct *work)
{
	unsigned int ms;

	hpmmap_pinned_poll();
	if (!READ_ONCE(nr_pinned))
		return;
	ms = READ_ONCE(pinned_ms);
	WRITE_ONCE(pinned_ms, min(2 * ms, (unsigned int)PIN_POLL_LAST_MS));
	queue_delayed_work(hpmmap_wq, &pinned_work, msecs_to_jiffies(ms));
}

/* Pinned blocks keep the module loaded, so there are none left here. */
void hpmmap_pinned_exit(void)
{
	cancel_delayed_work_sync(&pinned_work);
}
