// SPDX-License-Identifier: GPL-2.0
/*
 * Grants: what attachments of a window rest on, and may lose.
 */
#include <linux/slab.h>

#include "hpmmap.h"
#include "as/grant.h"

/**
 * hpmmap_grant_alloc() - something that attachments may rest on
 * @parent: what it rests on itself, or NULL
 *
 * Return: the grant with a reference for hpmmap_grant_put(), or NULL.
 */
struct hpmmap_grant *hpmmap_grant_alloc(struct hpmmap_grant *parent)
{
	struct hpmmap_grant *grant = kzalloc(sizeof(*grant), GFP_KERNEL_ACCOUNT);

	if (!grant)
		return NULL;
	refcount_set(&grant->refs, 1);
	if (parent)
		refcount_inc(&parent->refs);
	grant->parent = parent;
	return grant;
}

void hpmmap_grant_put(struct hpmmap_grant *grant)
{
	struct hpmmap_grant *parent;

	while (grant && refcount_dec_and_test(&grant->refs)) {
		parent = grant->parent;
		kfree(grant);
		grant = parent;
	}
}

/**
 * hpmmap_grant_end() - attachments are not to show anything any more
 * @grant: what they rest on, themselves or by another one
 *
 * Who touches them gets SIGBUS once what is mapped was taken away, which is the caller's to
 * do: by hpmmap_window_revoke(), after which others are mapped again by a fault, or by
 * unmapping them.
 */
void hpmmap_grant_end(struct hpmmap_grant *grant)
{
	WRITE_ONCE(grant->revoked, true);
	/* Pairs with that of recheck(): who maps something now sees it, or is found. */
	smp_mb();
}

/* Is nothing that rests on a grant to show anything? */
bool hpmmap_grant_is_revoked(const struct hpmmap_grant *grant)
{
	for (; grant; grant = grant->parent)
		if (READ_ONCE(grant->revoked))
			return true;
	return false;
}
