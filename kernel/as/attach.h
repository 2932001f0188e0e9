/* SPDX-License-Identifier: GPL-2.0 */
/* Attachments: mappings of another address space's memory. */
#ifndef _HPMMAP_AS_ATTACH_H
#define _HPMMAP_AS_ATTACH_H

#include <linux/refcount.h>
#include <linux/types.h>

struct hpmmap_window;

/**
 * struct hpmmap_grant - what attachments rest on
 * @refs: who has it, and attachments
 * @parent: what it rests on itself, or NULL; holds a reference
 * @revoked: it is not given any more; set once, by hpmmap_grant_end()
 */
struct hpmmap_grant {
	refcount_t refs;
	struct hpmmap_grant *parent;
	bool revoked;
};

/* Of hpmmap_attach() */
#define HPMMAP_ATTACH_READONLY	(1U << 0)
#define HPMMAP_ATTACH_POPULATE	(1U << 1)

struct hpmmap_grant *hpmmap_grant_alloc(struct hpmmap_grant *parent);
void hpmmap_grant_put(struct hpmmap_grant *grant);
void hpmmap_grant_end(struct hpmmap_grant *grant);
unsigned long hpmmap_attach(struct hpmmap_window *win, struct hpmmap_grant *grant,
			    unsigned long start, unsigned long len,
			    unsigned long at, unsigned int flags);
int hpmmap_detach(unsigned long addr);
int hpmmap_detach_grant(const struct hpmmap_grant *grant);

#endif /* _HPMMAP_AS_ATTACH_H */
