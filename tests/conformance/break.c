// SPDX-License-Identifier: GPL-2.0
/*
 * The break of a new program: built as programs of several kinds, with and without random
 * addresses.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/personality.h>
#include <unistd.h>

extern char end[];

/* Of the image, as programs that dump themselves have it. */
static char bss[3 << 12];

int main(void)
{
	uintptr_t image = ((uintptr_t)end + 4095) & ~4095UL, at[64] = { 0 };
	char line[4096], *word;
	FILE *stat = fopen("/proc/self/stat", "r");
	uintptr_t first;
	int i;

	if (!stat || !fgets(line, sizeof(line), stat))
		return 1;
	fclose(stat);
	memset(bss, 1, sizeof(bss));
	/* Behind the name: the third field and those that follow. */
	word = strrchr(line, ')') + 1;
	for (i = 3; i < 64 && (word = strtok(i == 3 ? word : NULL, " \n")); i++)
		sscanf(word, "%lu", &at[i]);
	first = at[47];
	if (personality(0xffffffff) & ADDR_NO_RANDOMIZE)
		printf("break=%#lx image=%#lx ", first, image);
	else
		printf("behind=%d near=%d ", first >= image, first - image <= 1030UL << 20);
	/* What grows it is one range with what is there, and is zero. */
	word = sbrk(0);
	if (sbrk(5 << 20) != word)
		return 1;
	for (i = 0; i < 5 << 20; i++)
		if (word[i])
			return 1;
	memset(word, 2, 5 << 20);
	for (i = 0; i < (int)sizeof(bss); i++)
		if (bss[i] != 1)
			return 1;
	printf("grown=%d\n", sbrk(-(5 << 20)) == word + (5 << 20));
	return 0;
}
