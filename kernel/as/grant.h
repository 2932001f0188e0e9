/* SPDX-License-Identifier: GPL-2.0 */
/* What attachments rest on. */
#ifndef _HPMMAP_AS_GRANT_H
#define _HPMMAP_AS_GRANT_H

#include <linux/refcount.h>
#include <linux/types.h>

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

struct hpmmap_grant *hpmmap_grant_alloc(struct hpmmap_grant *parent);
void hpmmap_grant_put(struct hpmmap_grant *grant);
void hpmmap_grant_end(struct hpmmap_grant *grant);
bool hpmmap_grant_is_revoked(const struct hpmmap_grant *grant);

#endif /* _HPMMAP_AS_GRANT_H */
