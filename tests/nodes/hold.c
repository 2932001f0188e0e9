// SPDX-License-Identifier: GPL-2.0
/* hold MIB SECONDS: hold this much memory for this time; hold MIB: repeatedly. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char *have(size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		perror("hold");
		exit(1);
	}
	memset(p, 7, bytes);
	return p;
}

int main(int argc, char **argv)
{
	size_t bytes = atol(argv[1]) << 20;
	char *p = have(bytes);

	puts("held");
	fflush(stdout);
	for (int i = 0; argc < 3 || i < atoi(argv[2]); i++) {
		if (argc < 3) {
			munmap(p, bytes);
			p = have(bytes);
		} else
			sleep(1);
		for (size_t at = 0; at < bytes; at += 4096)
			if (p[at] != 7)
				abort();
	}
	return 0;
}
