// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * libxpmem: XPMEM's functions, each an ioctl of /dev/xpmem.
 *
 * Segments and rights of a process belong to the device file that it opened. The kernel cleans
 * up when the file is closed. So a child opens its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hpmmap_xpmem.h"
#include "xpmem.h"

#define DEVICE	"/dev/xpmem"
#define PUBLIC	__attribute__((visibility("default")))

/* The device file and the process that opened it: fd + 1 in the lower half, so 0 is none. */
static _Atomic uint64_t opened;
/* The device number of that file. */
static _Atomic dev_t device;

static bool is_device(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == device;
}

/*
 * Programs may close files that they did not open, and the number may then belong to another file.
 */
static int device_fd(void)
{
	uint64_t old = opened, new;
	int fd, had = (int)(uint32_t)old - 1;
	pid_t pid = getpid();
	struct stat st;

	if (had >= 0 && !is_device(had))
		had = -1;
	if (had >= 0 && (pid_t)(old >> 32) == pid)
		return had;
	fd = open(DEVICE, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) == 0)
		device = st.st_rdev;
	new = (uint64_t)pid << 32 | (uint32_t)(fd + 1);
	if (!atomic_compare_exchange_strong(&opened, &old, new)) {
		/* Another thread has opened it first. */
		close(fd);
		return (int)(uint32_t)old - 1;
	}
	/* This is the parent's file. */
	if (had >= 0)
		close(had);
	return fd;
}

static int command(unsigned long cmd, void *arg)
{
	int fd = device_fd();

	return fd < 0 ? -1 : ioctl(fd, cmd, arg);
}

PUBLIC int xpmem_version(void)
{
	return command(XPMEM_CMD_VERSION, NULL);
}

PUBLIC xpmem_segid_t xpmem_make(void *vaddr, size_t size, int permit_type, void *permit_value)
{
	struct xpmem_cmd_make cmd = {
		.vaddr = (uintptr_t)vaddr,
		.size = size,
		.permit_type = permit_type,
		.permit_value = (uintptr_t)permit_value,
	};

	return command(XPMEM_CMD_MAKE, &cmd) == -1 ? -1 : cmd.segid;
}

PUBLIC int xpmem_remove(xpmem_segid_t segid)
{
	return command(XPMEM_CMD_REMOVE, &segid);
}

/*
 * Callers such as Open MPI pass a mode as permit_value. It has no meaning here, and the device
 * accepts only 0.
 */
PUBLIC xpmem_apid_t xpmem_get(xpmem_segid_t segid, int flags, int permit_type, void *permit_value)
{
	struct xpmem_cmd_get cmd = {
		.segid = segid,
		.flags = flags,
		.permit_type = permit_type,
	};

	(void)permit_value;
	return command(XPMEM_CMD_GET, &cmd) == -1 ? -1 : cmd.apid;
}

PUBLIC int xpmem_release(xpmem_apid_t apid)
{
	return command(XPMEM_CMD_RELEASE, &apid);
}

PUBLIC void *xpmem_attach(struct xpmem_addr addr, size_t size, void *vaddr)
{
	struct xpmem_cmd_attach cmd = {
		.apid = addr.apid,
		.offset = addr.offset,
		.size = size,
		.vaddr = (uintptr_t)vaddr,
		.fd = -1,
	};

	return command(XPMEM_CMD_ATTACH, &cmd) == -1 ? (void *)-1 : (void *)(uintptr_t)cmd.vaddr;
}

PUBLIC int xpmem_detach(void *vaddr)
{
	uint64_t address = (uintptr_t)vaddr;

	return command(XPMEM_CMD_DETACH, &address);
}
