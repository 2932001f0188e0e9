// SPDX-License-Identifier: GPL-2.0
/* Something to debug: a list in the heap, a large mapping, a thread, a child. */
#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGE (8UL << 20)

struct item {
	struct item *next;
	char name[16];
	int value;
};

static char *large;
/* Set from outside. */
static volatile int changed;

/* Stopped at by name: it must be a function of its own. */
__attribute__((noinline)) static int check(const struct item *list)
{
	int sum = 0;

	for (; list; list = list->next)
		sum += list->value;
	return sum;
}

__attribute__((noinline)) static int descend(int depth, const struct item *list)
{
	char local[4096];

	memset(local, depth, sizeof(local));
	if (depth)
		return descend(depth - 1, list) + local[10] - depth;
	return check(list);
}

static void *thread(void *arg)
{
	large[LARGE / 2] = 't';
	return arg;
}

int main(void)
{
	struct item *list = NULL;
	pthread_t other;
	int i, status;

	large = mmap(NULL, LARGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (large == MAP_FAILED)
		err(1, "mmap");
	strcpy(large + LARGE - 32, "the end of it");
	for (i = 0; i < 5; i++) {
		struct item *item = malloc(sizeof(*item));

		if (!item)
			err(1, "malloc");
		snprintf(item->name, sizeof(item->name), "item-%d", i);
		item->value = i * 11;
		item->next = list;
		list = item;
	}
	printf("sum %d\n", descend(3, list));
	printf("large '%s', changed %d\n", large + LARGE - 32, changed);
	fflush(stdout);

	if (pthread_create(&other, NULL, thread, NULL))
		errx(1, "no thread");
	pthread_join(other, NULL);
	printf("thread '%c'\n", large[LARGE / 2]);
	fflush(stdout);

	i = fork();
	if (i < 0)
		err(1, "fork");
	if (!i)
		_exit(check(list));
	waitpid(i, &status, 0);
	printf("child %d\n", WEXITSTATUS(status));
	return changed;
}
