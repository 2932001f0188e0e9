/* SPDX-License-Identifier: GPL-2.0 */
/* The one place where a change of an address space is sequenced. */
#ifndef _HPMMAP_AS_CHANGE_CHANGE_H
#define _HPMMAP_AS_CHANGE_CHANGE_H

/* The slots that a range begins and ends in. */
#define HPMMAP_END_FIRST	BIT(0)
#define HPMMAP_END_LAST		BIT(1)
#define HPMMAP_END_BOTH		(HPMMAP_END_FIRST | HPMMAP_END_LAST)

/**
 * struct hpmmap_change - a range of an address space is being changed
 * @ctx: its context
 * @start: first address, page aligned
 * @end: its end, page aligned
 * @intact: HPMMAP_END_*: in that slot the core leaves alone what is beside the
 *	range, so that nothing there has to be mapped again
 * @lazy: what gets accessible there has memory only from a fault on
 * @reuse: of a new mapping: it may see old contents of the process, and is kept
 * @few: of a new mapping: where slots have a few pages, so it may be; seen to by
 *	hpmmap_few_begin() and its like, or it is inaccessible
 * @replaces: of a new mapping: there may have been others, which it has cut
 * @empty: of a new mapping: nothing has contents there, nor gets them before it is mapped
 * @renewed: of a new mapping: hpmmap_change_renew() was called
 * @blank: by hpmmap_change_begin_new(): nothing had contents there
 * @ours: by hpmmap_change_begin_new(), if it @replaces, and hpmmap_change_begin_apart():
 *	there was memory of ours
 * @vain: a task reads the address space all the time: what would need mmap_lock for
 *	writing, and need not be, is left out. May be kept from one change to the next.
 *
 * The caller sets @ctx, @start, @end, and what else it knows; then comes one of
 *
 *	hpmmap_change_begin()		a call that changes mappings of ours
 *	hpmmap_change_begin_new()	a new mapping of ours
 *	hpmmap_change_begin_move()	the old place of one that moves
 *	hpmmap_change_begin_apart()	a call of Linux's, without ctx->ops
 *
 * then what is done to the mappings, and then hpmmap_change_settle(), or
 * hpmmap_change_settle_apart(), with what has become of them. The first may be
 * left out where it would find nothing.
 */
struct hpmmap_change {
	struct hpmmap_ctx *ctx;
	unsigned long start;
	unsigned long end;
	unsigned int intact;
	bool lazy;
	bool reuse;
	bool few;
	bool replaces;
	bool empty;
	bool renewed;
	bool blank;
	bool ours;
	bool vain;
};

/* The change of a range, and what else is known: .lazy = true, say. */
#define HPMMAP_CHANGE(_ctx, _start, _end, ...) \
	{ .ctx = (_ctx), .start = (_start), .end = (_end), ##__VA_ARGS__ }

/* What has become of a range. */
enum hpmmap_outcome {
	/* Nothing in it has to be mapped; beside it the core may have dropped an entry of 2 MB. */
	HPMMAP_NOTHING,
	HPMMAP_KEPT,	/* it is mapped, with the contents it had */
	HPMMAP_GONE,	/* nothing of ours is mapped in it */
	HPMMAP_CUT,	/* some of it may be gone, or Linux's */
	/* It was to be replaced, which failed: some of it may be gone, the rest is kept. */
	HPMMAP_FAILED,
	HPMMAP_FRESH,	/* a new mapping of ours: zeros */
};

void hpmmap_change_begin(struct hpmmap_change *c);
int hpmmap_change_begin_new(struct hpmmap_change *c);
int hpmmap_change_begin_move(struct hpmmap_change *c);
void hpmmap_change_renew(struct hpmmap_change *c);
bool hpmmap_change_settle(struct hpmmap_change *c, enum hpmmap_outcome outcome,
			  struct list_head *blocks);
long hpmmap_change_begin_apart(struct hpmmap_change *c);
void hpmmap_change_settle_apart(struct hpmmap_change *c,
				enum hpmmap_outcome outcome);

#endif /* _HPMMAP_AS_CHANGE_CHANGE_H */
