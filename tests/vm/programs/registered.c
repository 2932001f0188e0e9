// SPDX-License-Identifier: GPL-2.0
/*
 * Print whether this process is registered, then become the program given as
 * argument, if any.
 */
#include <dirent.h>
#include <err.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "hpmmap.h"

static bool is_me(const char *id)
{
	char path[512];
	long pid = 0;
	FILE *file;

	snprintf(path, sizeof(path), HPMMAP_SYSFS_PATH "/contexts/%s/pid", id);
	file = fopen(path, "r");
	/* Others come and go. */
	if (!file)
		return false;
	if (fscanf(file, "%ld", &pid) != 1)
		pid = 0;
	fclose(file);
	return pid == getpid();
}

int main(int argc, char **argv)
{
	DIR *dir = opendir(HPMMAP_SYSFS_PATH "/contexts");
	struct dirent *entry;
	bool found = false;

	if (!dir)
		err(1, "%s/contexts", HPMMAP_SYSFS_PATH);
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.' && is_me(entry->d_name))
			found = true;
	closedir(dir);
	puts(found ? "registered" : "native");
	if (argc > 1) {
		fflush(stdout);
		execv(argv[1], argv + 1);
		err(1, "%s", argv[1]);
	}
	return 0;
}
