/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The page that a guest shares with its host's agent (hpmmap vm agent), through an ivshmem-plain device. Part of
 * libhpmmap; docs/symbiosis.md explains it.
 *
 * All numbers are little-endian. The host writes the first half, the guest the second. A reader of the host's part
 * reads sequence, copies, and reads sequence again: the copy is whole if both are the same even number. Each word of
 * the guest's part stands alone. The host takes no word of the guest on trust. Reserved fields are 0.
 */
#ifndef HPMMAP_HOST_H
#define HPMMAP_HOST_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HPMMAP_HOST_VERSION	1
#define HPMMAP_HOST_RANGES	20
#define HPMMAP_HOST_DEVICES	8
#define HPMMAP_HOST_VCPUS	256

/* flags of struct hpmmap_host_part: the agent runs; it honours critical sections; it honours timer sensitivity. */
#define HPMMAP_HOST_RUNNING	0x1
#define HPMMAP_HOST_CRITICAL	0x2
#define HPMMAP_HOST_TIMER	0x4

/* RAM of the guest. Numbers of 64 bits that are not known are UINT64_MAX. */
struct hpmmap_host_range {
	uint64_t start;		/* guest-physical address */
	uint64_t bytes;
	uint64_t large_bytes;	/* the part that the host maps by entries of 2 MB or more */
	uint64_t entry_bytes;	/* of the entries that map most of it: 4 KB, 2 MB, 1 GB; 0: unknown */
	uint64_t align_bytes;	/* largest nested entry that the addresses allow */
	uint64_t physical;	/* host-physical address of its first byte */
	uint32_t runs;		/* host-physically contiguous runs; 0: unknown */
	int32_t node;		/* NUMA node of the host; -1: unknown, or several */
};

/* A passed-through device. */
struct hpmmap_host_device {
	uint16_t vendor;
	uint16_t device;
	int16_t node;		/* NUMA node of the host, or -1 */
	uint16_t reserved;
};

struct hpmmap_host_part {
	uint64_t magic;		/* the bytes "HPMMAPVM" */
	uint32_t version;
	uint32_t sequence;	/* odd while the host writes */
	uint32_t flags;
	uint32_t deadline_ms;	/* longest critical section that the host honours */
	uint64_t updated;	/* seconds since 1970, by the host's clock */
	uint64_t nested[3];	/* RAM that KVM maps by nested entries of 4 KB, 2 MB and 1 GB */
	uint16_t nr_ranges;
	uint16_t nr_devices;
	uint16_t nr_vcpus;
	uint16_t pool_used;	/* percent of the host's pools that are used; 65535: it has none */
	uint64_t reserved[8];
	struct hpmmap_host_range ranges[HPMMAP_HOST_RANGES];
	struct hpmmap_host_device devices[HPMMAP_HOST_DEVICES];
	uint16_t vcpus[HPMMAP_HOST_VCPUS]; /* the host's CPU that each is bound to; 65535: several */
	uint8_t end[224];
};

struct hpmmap_guest_part {
	uint64_t magic;		/* the bytes "HPMMAPGU" */
	uint32_t version;
	uint32_t timer;		/* programs that are sensitive to timers */
	uint64_t boot;		/* of the guest that has written this: the first 8 bytes of its boot_id */
	uint64_t reserved[5];
	/* For each vCPU: how deep sections are nested (lower 16 bits), and how many have begun (upper 16 bits). */
	uint32_t critical[HPMMAP_HOST_VCPUS];
	uint8_t end[960];
};

struct hpmmap_host_page {
	struct hpmmap_host_part host;
	struct hpmmap_guest_part guest;
};

/*
 * Maps the page of the first ivshmem-plain device that has one, for all threads of the process and for children of
 * fork(2). Returns 0, or -1 with errno set; a second call does nothing. ENODEV: there is none, or no agent has ever
 * written to it; EACCES: the caller may not open its resource2; EPERM: the kernel is locked down; EPROTO: another version.
 */
int hpmmap_host_open(void);

/*
 * Begins a critical section: asks the host not to take the CPU from the vCPU on which the caller runs. Bind the
 * thread to a CPU before. Returns a number for hpmmap_critical_end(), or -1 with ENOTCONN: there is no page; ERANGE:
 * the CPU's number is too high. Sections may be nested. The host looks each few milliseconds, and honours a section
 * for hpmmap_host_part.deadline_ms at most.
 */
int hpmmap_critical_begin(void);

/* Ends it. -1 is ignored, so the result of a failed begin may be passed on. */
void hpmmap_critical_end(int section);

/* Says (1) or takes back (0) that this program is sensitive to timers. -1 with ENOTCONN: there is no page. */
int hpmmap_timer_sensitive(int on);

#ifdef __cplusplus
}
#endif

#endif
