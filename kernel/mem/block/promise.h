/* SPDX-License-Identifier: GPL-2.0 */
/* Promises: pool memory that only its payer gets, see account.c for what counts. */
#ifndef _HPMMAP_MEM_BLOCK_PROMISE_H
#define _HPMMAP_MEM_BLOCK_PROMISE_H

struct hpmmap_tally;

int hpmmap_promise_set(struct hpmmap_payer *p, struct hpmmap_promise_set *arg, bool own);
int hpmmap_promise_list(struct hpmmap_promise_entry __user *entries, u32 *nr, bool all);
void hpmmap_promise_end(struct hpmmap_tally *tally);
bool hpmmap_promises_sweep(bool all);

#endif /* _HPMMAP_MEM_BLOCK_PROMISE_H */
