/* SPDX-License-Identifier: GPL-2.0 */
/* Threads that write to a place as soon as they may, while a call makes it accessible. */
#ifndef AT_ONCE_H
#define AT_ONCE_H

#include "common.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/uio.h>
#include <unistd.h>

#define AT_ONCE_THREADS 6

/* No word of fill() is even. */
#define AT_ONCE_WORD 2UL

static char *_Atomic at_once_place;
static atomic_int at_once_ready;

/* One word of a page each. As long as nobody may write there that is an error, no signal. */
static void *at_once_write(void *arg)
{
	static const uint64_t word = AT_ONCE_WORD;
	size_t nr = (size_t)arg;
	struct iovec from = { (void *)&word, sizeof(word) }, to;
	ssize_t n;

	at_once_ready++;
	while (!at_once_place)
		;
	to = (struct iovec){ at_once_place + nr * PAGE, sizeof(word) };
	do {
		n = process_vm_writev(getpid(), &from, 1, &to, 1, 0);
	} while (n < 0 && errno == EFAULT && at_once_place);
	CHECK(n == sizeof(word) || !at_once_place);
	return NULL;
}

static inline void at_once_start(pthread_t *threads)
{
	at_once_place = NULL;
	at_once_ready = 0;
	for (size_t i = 0; i < AT_ONCE_THREADS; i++)
		threads[i] = start_thread(at_once_write, (void *)i);
	while (at_once_ready < AT_ONCE_THREADS)
		;
}

/* What was written is there: nobody could before, so it was after the call. */
static inline void at_once_check(pthread_t *threads, const char *place)
{
	for (size_t i = 0; i < AT_ONCE_THREADS; i++)
		join_thread(threads[i]);
	for (size_t i = 0; i < AT_ONCE_THREADS; i++)
		CHECK_EQ(*(const uint64_t *)(place + i * PAGE), AT_ONCE_WORD);
}

#endif
