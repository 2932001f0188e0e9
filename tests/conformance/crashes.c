// SPDX-License-Identifier: GPL-2.0
/* Leaves a core dump with texts on the heap, in a mapping and on the stack. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

char *heap, *mapping, *read_only, *stack;

int main(void)
{
	const size_t size = 8 << 20;
	char local[64];

	heap = malloc(100000);
	mapping = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!heap || mapping == MAP_FAILED)
		return 1;
	read_only = mapping + size / 2;
	stack = local;
	strcpy(heap + 50000, "on the heap");
	strcpy(mapping + size - 64, "in the mapping");
	strcpy(read_only + 4096, "read only");
	if (mprotect(read_only, size / 4, PROT_READ) != 0)
		return 1;
	strcpy(local, "on the stack");
	abort();
}
