/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Declarations that the files of libhpmmap share. */
#ifndef HPMMAP_LIB_INTERNAL_H
#define HPMMAP_LIB_INTERNAL_H

#include "hpmmap_window.h"

#define PUBLIC	__attribute__((visibility("default")))

/* hpmmap_attach() at an address, or anywhere if at is NULL. EEXIST: the address is not free. */
void *attach_at(int64_t id, size_t offset, size_t bytes, unsigned int flags, void *at);

/* A peer: declared here so that hpmmap_remote_ptr() is one call. */
struct hpmmap_peer {
	struct {
		uintptr_t start;
		uintptr_t bytes;
		/* Added to an address of the peer it gives the caller's. */
		uintptr_t delta;
	} zone[HPMMAP_ZONES];
	/* Added to the address of a variable of the caller it gives that of the peer's. */
	uintptr_t image_delta;
};

static inline void *peer_ptr(const struct hpmmap_peer *peer, const void *ptr)
{
	for (int i = 0; i < HPMMAP_ZONES; i++)
		if ((uintptr_t)ptr - peer->zone[i].start < peer->zone[i].bytes)
			return (void *)((uintptr_t)ptr + peer->zone[i].delta);
	return NULL;
}

#endif
