// SPDX-License-Identifier: LGPL-2.1-or-later
/* Where memory lies, for devices: HPMMAP_IOC_RUNS. */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "hpmmap.h"
#include "internal.h"

_Static_assert(sizeof(struct hpmmap_physical) == sizeof(struct hpmmap_run), "both are two numbers");

PUBLIC int hpmmap_runs(void *start, size_t bytes, struct hpmmap_physical *runs, size_t *nr)
{
	struct hpmmap_runs arg = {
		.size = sizeof(arg),
		.start = (uintptr_t)start,
		.length = bytes,
		.runs = (uintptr_t)runs,
		.nr = *nr > UINT32_MAX ? UINT32_MAX : (uint32_t)*nr,
	};
	int fd = open(HPMMAP_DEVICE_PATH, O_RDWR | O_CLOEXEC), err = 0;

	if (fd < 0)
		return -1;
	if (ioctl(fd, HPMMAP_IOC_RUNS, &arg) != 0)
		err = errno;
	if (!err || err == EMSGSIZE)
		*nr = arg.nr;
	if (!err)
		return fd;
	close(fd);
	errno = err;
	return -1;
}
