/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/xpmem: windows onto the memory of other processes, by the ABI of XPMEM.
 */
#ifndef _UAPI_HPMMAP_XPMEM_H
#define _UAPI_HPMMAP_XPMEM_H

#include <linux/ioctl.h>
#include <linux/types.h>

/**
 * DOC: errors
 *
 * All commands:
 *
 * ENOTTY	unknown command
 * EFAULT	the struct cannot be read or written
 * EINVAL	an argument is impossible, see there; a number below 1
 * ENOMEM	no kernel memory
 * EINTR	the caller is being killed
 */

/* The return value of XPMEM_CMD_VERSION: 2.6.5. */
#define XPMEM_ABI_VERSION	0x26005

#define XPMEM_ABI_MAGIC		'x'

/* Flags of struct xpmem_cmd_get */
#define XPMEM_ABI_RDONLY	1
#define XPMEM_ABI_RDWR		2

/* The only permit type: permit_value of struct xpmem_cmd_make is a mode like that of a file. */
#define XPMEM_ABI_PERMIT_MODE	1

/* Size of a segment: the whole address space from vaddr on. */
#define XPMEM_ABI_MAXADDR_SIZE	(~(__u64)0)

/* Flag of struct xpmem_cmd_attach, only in this implementation: map what exists at once. */
#define XPMEM_ABI_POPULATE	0x8000

/**
 * struct xpmem_cmd_make - XPMEM_CMD_MAKE
 * @vaddr: in: first address, a multiple of 4 KB. The range need not be mapped.
 * @size: in: bytes, a multiple of 4 KB, or XPMEM_ABI_MAXADDR_SIZE. Cut off at the end of
 *	the address space.
 * @permit_type: in: XPMEM_ABI_PERMIT_MODE
 * @permit_value: in: mode; read and write bits of owner, group and others. Users other
 *	than the effective user of the maker also need the administrator's permission (the
 *	module's parameter xpmem_others).
 * @segid: out: number of the segment, greater than 0
 *
 * Publishes a part of the caller's address space. It ends with XPMEM_CMD_REMOVE, with the
 * address space (exit, execve), and when the last reference to the file is closed.
 *
 * EACCES: the caller is not dumpable (prctl(2)); ENOSPC: this file has 65,536 segments and
 * permits.
 */
struct xpmem_cmd_make {
	__u64 vaddr;
	__u64 size;
	__s32 permit_type;
	__u32 __pad;
	__u64 permit_value;
	__s64 segid;
};

/**
 * struct xpmem_cmd_get - XPMEM_CMD_GET
 * @segid: in: number of a segment
 * @flags: in: XPMEM_ABI_RDONLY or XPMEM_ABI_RDWR
 * @permit_type: in: XPMEM_ABI_PERMIT_MODE
 * @permit_value: in: 0
 * @apid: out: number of the permit, greater than 0
 *
 * ENOENT: no such segment, or its process has left the address space; EACCES: its mode forbids it,
 * or the caller may not read the process by ptrace(2); ENOSPC: as above.
 */
struct xpmem_cmd_get {
	__s64 segid;
	__s32 flags;
	__s32 permit_type;
	__u64 permit_value;
	__s64 apid;
};

/**
 * struct xpmem_cmd_attach - XPMEM_CMD_ATTACH
 * @apid: in: number of a permit of the caller's address space
 * @offset: in: into the segment, bytes, a multiple of 4 KB
 * @size: in: bytes; rounded up to a multiple of 4 KB
 * @vaddr: in: address, a multiple of 4 KB, or 0 for any. Out: address
 * @fd: ignored
 * @flags: in: 0 or XPMEM_ABI_POPULATE; other bits are ignored, as by XPMEM
 *
 * Maps a part of the segment. Plain loads and stores access the memory that the other process
 * has mapped there at that moment. SIGBUS: it has none, may not access it like this itself, or
 * has ended.
 *
 * ENOENT: no such permit, or its segment was removed, or its process has ended; EACCES: as
 * above; EINVAL: outside of the segment; EEXIST: something is mapped at @vaddr; and the errors
 * of mmap(2).
 */
struct xpmem_cmd_attach {
	__s64 apid;
	__s64 offset;
	__u64 size;
	__u64 vaddr;
	__s32 fd;
	__s32 flags;
};

#define XPMEM_CMD_VERSION	_IO(XPMEM_ABI_MAGIC, 0)
#define XPMEM_CMD_MAKE		_IO(XPMEM_ABI_MAGIC, 1)
/* Pointer to a segid, whose memory leaves all attachments. ENOENT; EACCES: another process's. */
#define XPMEM_CMD_REMOVE	_IO(XPMEM_ABI_MAGIC, 2)
#define XPMEM_CMD_GET		_IO(XPMEM_ABI_MAGIC, 3)
/* Pointer to an apid; what was attached by it is unmapped. ENOENT; EACCES: another process's. */
#define XPMEM_CMD_RELEASE	_IO(XPMEM_ABI_MAGIC, 4)
#define XPMEM_CMD_ATTACH	_IO(XPMEM_ABI_MAGIC, 5)
/* Pointer to an address in an attachment. 0 if nothing is mapped there, EINVAL: another mapping. */
#define XPMEM_CMD_DETACH	_IO(XPMEM_ABI_MAGIC, 6)
/* Do nothing: a fork needs no preparation. */
#define XPMEM_CMD_FORK_BEGIN	_IO(XPMEM_ABI_MAGIC, 7)
#define XPMEM_CMD_FORK_END	_IO(XPMEM_ABI_MAGIC, 8)

#endif /* _UAPI_HPMMAP_XPMEM_H */
