/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libxpmem: windows onto the memory of other processes, with XPMEM's interface.
 *
 * A process makes a segment of a part of its address space. Another process gets the right to
 * the segment and attaches it. It then loads from and stores to the memory of the first. All
 * sizes and offsets are in bytes. Every function returns -1 and sets errno if it fails.
 */
#ifndef _XPMEM_H
#define _XPMEM_H

#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A segment; positive. */
typedef int64_t xpmem_segid_t;
/* The right of one process to attach a segment; positive. */
typedef int64_t xpmem_apid_t;

/* A place in a segment: multiples of a page. */
struct xpmem_addr {
	xpmem_apid_t apid;
	off_t offset;
};

/* As size of xpmem_make(): all of the address space from vaddr on. */
#define XPMEM_MAXADDR_SIZE	((size_t)-1)

/* flags of xpmem_get(); a window got with XPMEM_RDONLY cannot be written to. */
#define XPMEM_RDONLY	0x1
#define XPMEM_RDWR	0x2

/*
 * The only permit_type. For xpmem_make(), permit_value is (void *)MODE, the bits of chmod(2);
 * xpmem_get() ignores it.
 */
#define XPMEM_PERMIT_MODE	0x1

/* Returns the version of the device's interface. ENOENT, ENODEV: there is no device. */
int xpmem_version(void);

/*
 * Makes a segment of [vaddr, vaddr + size), both multiples of a page. The range need not be mapped:
 * a window shows what is mapped at the moment of the access. EINVAL: misaligned or empty, or a
 * wrong permit; EACCES: this process is not dumpable; ENOMEM.
 */
xpmem_segid_t xpmem_make(void *vaddr, size_t size, int permit_type, void *permit_value);

/*
 * Ends a segment of this process and takes its memory out of all windows. EINVAL, ENOENT: no such
 * segment; EACCES: another process's.
 */
int xpmem_remove(xpmem_segid_t segid);

/*
 * Gets the right to attach a segment. EINVAL: an unknown flag or permit_type; ENOENT: no such
 * segment; EACCES: its process may not be traced (ptrace(2)), or its mode forbids it; ENOSPC: the
 * process has 65,536 segments and rights; ENOMEM.
 */
xpmem_apid_t xpmem_get(xpmem_segid_t segid, int flags, int permit_type, void *permit_value);

/*
 * Gives a right back and detaches all that was attached by it. EINVAL, ENOENT: no such right;
 * EACCES: another process's.
 */
int xpmem_release(xpmem_apid_t apid);

/*
 * Maps size bytes of the segment, rounded up to a page: at vaddr, or at any address if that is
 * NULL. EINVAL: outside of the segment, or not a multiple of a page; EEXIST: something is mapped at
 * vaddr; ENOENT: the segment or its process has ended; EACCES: the right belongs to another
 * process; ENOMEM.
 *
 * An access to memory that the other process has not mapped, or not for this access, gives SIGBUS.
 * A child does not inherit the window.
 */
void *xpmem_attach(struct xpmem_addr addr, size_t size, void *vaddr);

/*
 * Unmaps the whole attachment that contains this address. Returns 0 if nothing is mapped there.
 * EINVAL: another kind of mapping is.
 */
int xpmem_detach(void *vaddr);

#ifdef __cplusplus
}
#endif

#endif
