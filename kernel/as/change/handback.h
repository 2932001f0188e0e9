/* SPDX-License-Identifier: GPL-2.0 */
/* Memory that Linux gets back. */
#ifndef _HPMMAP_AS_CHANGE_HANDBACK_H
#define _HPMMAP_AS_CHANGE_HANDBACK_H

#include "as/own/ctx.h"

long hpmmap_handback(struct hpmmap_ctx *ctx, unsigned long start,
		     unsigned long end, bool skip_sealed, bool zeros);
long hpmmap_handback_bound(struct hpmmap_ctx *ctx, unsigned long start,
			   unsigned long end, const struct pt_regs *mbind,
			   bool skip_sealed, bool zeros);
int hpmmap_handback_read(struct hpmmap_ctx *ctx, unsigned long addr, void *buf);

#endif /* _HPMMAP_AS_CHANGE_HANDBACK_H */
