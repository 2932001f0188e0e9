/* SPDX-License-Identifier: GPL-2.0 */
/* Moving contents. */
#ifndef _HPMMAP_AS_STORE_MOVE_H
#define _HPMMAP_AS_STORE_MOVE_H

int hpmmap_store_move(struct hpmmap_ctx *ctx, unsigned long from,
		      unsigned long to, unsigned long len,
		      struct list_head *blocks);

#endif /* _HPMMAP_AS_STORE_MOVE_H */
