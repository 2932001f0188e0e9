// SPDX-License-Identifier: GPL-2.0
/* host_page SECONDS: a critical section of this length, with exact timers, on CPU 0; and what is refused. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "hpmmap_host.h"

int main(int argc, char **argv)
{
	cpu_set_t first;
	int outer, inner;

	if (argc != 2 || hpmmap_critical_begin() != -1 || errno != ENOTCONN || hpmmap_timer_sensitive(1) != -1)
		return 2;
	CPU_ZERO(&first);
	CPU_SET(0, &first);
	if (sched_setaffinity(0, sizeof(first), &first) || hpmmap_host_open() || hpmmap_host_open()) {
		perror("host_page");
		return 1;
	}
	outer = hpmmap_critical_begin();
	inner = hpmmap_critical_begin();
	hpmmap_critical_end(inner);
	/* What is no section changes nothing. */
	hpmmap_critical_end(-1);
	if (outer != 0 || inner != 0 || hpmmap_timer_sensitive(1))
		return 1;
	puts("inside");
	fflush(stdout);
	sleep((unsigned int)atoi(argv[1]));
	hpmmap_critical_end(outer);
	return hpmmap_timer_sensitive(0) ? 1 : 0;
}
