/* SPDX-License-Identifier: GPL-2.0 */
/* The life of a context. */
#ifndef _HPMMAP_AS_LIFE_LIFE_H
#define _HPMMAP_AS_LIFE_LIFE_H

/*
 * Blocks that a task in exit or execve zeroes itself, of those that it gives up: what small
 * programs have, and some ten milliseconds at most.
 */
#define HPMMAP_EXIT_ZEROES 16

int hpmmap_life_init(void);
void hpmmap_life_exit(void);
struct hpmmap_ctx *hpmmap_ctx_alloc(struct hpmmap_job *job);
void hpmmap_ctx_put_now(struct hpmmap_ctx *ctx);
void hpmmap_ctx_publish(struct hpmmap_ctx *ctx, struct mm_struct *mm);
void hpmmap_ctx_join(struct hpmmap_ctx *ctx);
void hpmmap_ctx_leave(struct hpmmap_ctx *ctx);
void hpmmap_reap(void);
void hpmmap_reap_soon(void);

#endif /* _HPMMAP_AS_LIFE_LIFE_H */
