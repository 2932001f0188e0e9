/* SPDX-License-Identifier: GPL-2.0 */
/* Children with a snapshot, and what is copied beside them. */
#ifndef HPMMAP_TESTS_COPIES_H
#define HPMMAP_TESTS_COPIES_H

#include "common.h"

#include <fcntl.h>
#include <unistd.h>

/* A child that has a snapshot, and looks at it when it is told to. */
struct holder {
	pid_t pid;
	int go[2];
};

static inline void hold(struct holder *h, void (*check)(char *p), char *p)
{
	CHECK_OK(pipe2(h->go, O_CLOEXEC));
	h->pid = fork_child();
	if (h->pid)
		return;
	/* It ends with its parent, whatever that ends by. */
	close(h->go[1]);
	await(h->go[0]);
	check(p);
	_exit(0);
}

/* The child finds what there was when it was made. */
static inline void release(struct holder *h)
{
	tell(h->go[1]);
	expect_success(h->pid);
	await_apart(h->pid);
	close(h->go[0]);
	close(h->go[1]);
}

static inline uint64_t copied(void)
{
	return registered() ? context_value("fork_copied_bytes") : 0;
}

/* A word that stamp() does not write to. */
static inline uint64_t *word(char *p, size_t page)
{
	return (uint64_t *)(p + page * PAGE + 2048);
}

static inline uint64_t held(void)
{
	return registered() ? context_value("held_bytes") : 0;
}

#endif
