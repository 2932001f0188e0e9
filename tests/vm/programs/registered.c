// SPDX-License-Identifier: GPL-2.0
/*
 * Print whether this process is registered, then become the program given as
 * argument, if any.
 */
#include <err.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "hpmmap.h"

/* How many contexts of this process hold memory. */
static int contexts_of_mine(void)
{
	FILE *contexts = fopen(HPMMAP_CONTEXTS_PATH, "r");
	long long value, pid = 0;
	char name[64];
	int found = 0;

	if (!contexts)
		err(1, "%s", HPMMAP_CONTEXTS_PATH);
	while (fscanf(contexts, "%63s %lld", name, &value) == 2) {
		if (!strcmp(name, "id"))
			pid = 0;
		else if (!strcmp(name, "pid"))
			pid = value;
		else if (!strcmp(name, "held_bytes") && pid == getpid() && value)
			found++;
	}
	fclose(contexts);
	return found;
}

int main(int argc, char **argv)
{
	bool found = true;

	/* That of what the process executed before may be there a moment longer. */
	for (int i = 0; i < 15 && found; i++) {
		found = contexts_of_mine();
		usleep(20000);
	}
	puts(found ? "registered" : "native");
	if (argc > 1) {
		fflush(stdout);
		execv(argv[1], argv + 1);
		err(1, "%s", argv[1]);
	}
	return 0;
}
