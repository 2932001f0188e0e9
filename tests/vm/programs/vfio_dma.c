// SPDX-License-Identifier: GPL-2.0
/*
 * vfio_dma GROUP DEVICE BYTES MEMORY [measure]: map memory for DMA by a device that vfio-pci has, QEMU's edu,
 * which copies half a page from memory or to memory a tenth of a second after it is told to. MEMORY is "private",
 * "small" (pages of 4 KB), "thp", "hugetlb-2M", "hugetlb-1G", or the name of a new file.
 *
 * With "measure" it prints the time of the start as a VMM has it: mmap, the map for DMA (which gives the memory its
 * contents), the end of both. Otherwise it does as told, one word a line on standard input, and answers on
 * standard output:
 *
 *   map      map memory, write to it and map it for DMA    (done once at start)
 *   unmap    munmap; it stays mapped for DMA
 *   cut      the file becomes empty; it stays mapped for DMA
 *   punch    all of the file becomes a hole; it stays mapped for DMA
 *   fork     a child that has the memory too, and does not touch it, stays
 *   touch    the process writes new contents to its first, a middle and the last page
 *   write    the device does
 *   verify   the device reads these pages: they have what was written last
 *   zeros    the same, or zeros
 *   release  end the map for DMA
 *   busy     the device writes to one page after the other, until the process is killed
 */
#include <err.h>
#include <fcntl.h>
#include <linux/mman.h>
#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define PAGE	4096UL
/* What the device calls the memory, and the page that it copies to and from for verify and write. */
#define IOVA		(4ULL << 30)
#define LANDING_IOVA	(1ULL << 24)
/* Of edu: its registers, and its own page. */
#define DMA_FROM	0x80
#define DMA_TO		0x88
#define DMA_BYTES	0x90
#define DMA_COMMAND	0x98
#define DMA_TO_MEMORY	3
#define DMA_TO_DEVICE	1
#define DEVICE_PAGE	0x40000
/* QEMU ends where a copy reaches the last byte of its page. */
#define COPIED		(PAGE / 2)

static int container, device, file = -1;
static volatile char *registers;
static unsigned char *landing;
static char *memory;
static size_t length;
static const char *kind;
/* Of what was written last. */
static unsigned char round_nr;

static void say(const char *word)
{
	puts(word);
	fflush(stdout);
}

static long now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec * 1000000000L + at.tv_nsec;
}

static unsigned char content(size_t offset)
{
	return (offset >> 12) * 31 + 7 + round_nr;
}

static void open_device(const char *number, const char *name)
{
	struct vfio_group_status status = { .argsz = sizeof(status) };
	struct vfio_region_info config = { .argsz = sizeof(config), .index = VFIO_PCI_CONFIG_REGION_INDEX };
	struct vfio_region_info bar = { .argsz = sizeof(bar), .index = VFIO_PCI_BAR0_REGION_INDEX };
	uint16_t command;
	char path[64];
	int group;

	container = open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC);
	snprintf(path, sizeof(path), "/dev/vfio/%s", number);
	group = open(path, O_RDWR | O_CLOEXEC);
	if (container < 0 || group < 0)
		err(1, "%s", container < 0 ? "/dev/vfio/vfio" : path);
	if (ioctl(group, VFIO_GROUP_GET_STATUS, &status) || !(status.flags & VFIO_GROUP_FLAGS_VIABLE))
		errx(1, "%s: not all devices of this group are bound to vfio-pci", path);
	if (ioctl(group, VFIO_GROUP_SET_CONTAINER, &container) || ioctl(container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU))
		err(1, "%s: VFIO_SET_IOMMU", path);
	device = ioctl(group, VFIO_GROUP_GET_DEVICE_FD, name);
	if (device < 0 || ioctl(device, VFIO_DEVICE_GET_REGION_INFO, &config) ||
	    ioctl(device, VFIO_DEVICE_GET_REGION_INFO, &bar))
		err(1, "%s", name);
	/* It may reach memory. */
	if (pread(device, &command, 2, (off_t)config.offset + PCI_COMMAND) != 2)
		err(1, "%s: configuration", name);
	command |= PCI_COMMAND_MASTER | PCI_COMMAND_MEMORY;
	if (pwrite(device, &command, 2, (off_t)config.offset + PCI_COMMAND) != 2)
		err(1, "%s: configuration", name);
	registers = mmap(NULL, bar.size, PROT_READ | PROT_WRITE, MAP_SHARED, device, (off_t)bar.offset);
	if (registers == MAP_FAILED)
		err(1, "%s: registers", name);
}

static void map_dma(void *at, uint64_t iova, size_t len)
{
	struct vfio_iommu_type1_dma_map map = {
		.argsz = sizeof(map), .flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE,
		.vaddr = (uintptr_t)at, .iova = iova, .size = len,
	};

	if (ioctl(container, VFIO_IOMMU_MAP_DMA, &map))
		err(1, "VFIO_IOMMU_MAP_DMA of %zu bytes", len);
}

static void release(void)
{
	struct vfio_iommu_type1_dma_unmap unmap = { .argsz = sizeof(unmap), .iova = IOVA, .size = length };

	if (ioctl(container, VFIO_IOMMU_UNMAP_DMA, &unmap) || unmap.size != length)
		err(1, "VFIO_IOMMU_UNMAP_DMA");
}

static uint64_t reg(unsigned int offset)
{
	return *(volatile uint64_t *)(registers + offset);
}

static void set_reg(unsigned int offset, uint64_t value)
{
	*(volatile uint64_t *)(registers + offset) = value;
}

static void copy(uint64_t from, uint64_t to, uint64_t command)
{
	set_reg(DMA_FROM, from);
	set_reg(DMA_TO, to);
	set_reg(DMA_BYTES, COPIED);
	set_reg(DMA_COMMAND, command);
	while (reg(DMA_COMMAND) & 1)
		usleep(5000);
}

/* The pages that the device is asked about. */
static size_t offset_of(int page)
{
	return page * (length / 2) - (page == 2 ? PAGE : 0);
}

static void do_verify(bool may_be_zero)
{
	for (int page = 0; page < 3; page++) {
		unsigned char want = content(offset_of(page));

		memset(landing, ~want, COPIED);
		copy(IOVA + offset_of(page), DEVICE_PAGE, DMA_TO_DEVICE);
		copy(DEVICE_PAGE, LANDING_IOVA, DMA_TO_MEMORY);
		if (may_be_zero && !landing[0])
			want = 0;
		for (size_t i = 0; i < COPIED; i++)
			if (landing[i] != want)
				errx(1, "the device finds %#x instead of %#x at %#zx", landing[i], want, offset_of(page) + i);
	}
	say("intact");
}

static void do_write(void)
{
	round_nr++;
	for (int page = 0; page < 3; page++) {
		memset(landing, content(offset_of(page)), COPIED);
		copy(LANDING_IOVA, DEVICE_PAGE, DMA_TO_DEVICE);
		copy(DEVICE_PAGE, IOVA + offset_of(page), DMA_TO_MEMORY);
	}
	say("written");
}

static void touch(void)
{
	for (int page = 0; page < 3; page++)
		memset(memory + offset_of(page), content(offset_of(page)), COPIED);
}

static void do_busy(void)
{
	memset(landing, 0xb5, COPIED);
	copy(LANDING_IOVA, DEVICE_PAGE, DMA_TO_DEVICE);
	say("busy");
	for (size_t offset = 0; ; offset = (offset + (2 << 20)) % length)
		copy(DEVICE_PAGE, IOVA + offset, DMA_TO_MEMORY);
}

static void map_memory(void)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS, advice = 0;
	char *range;

	if (!strcmp(kind, "small")) {
		advice = MADV_NOHUGEPAGE;
	} else if (!strcmp(kind, "thp")) {
		advice = MADV_HUGEPAGE;
	} else if (!strcmp(kind, "hugetlb-2M")) {
		flags |= MAP_HUGETLB | MAP_HUGE_2MB;
	} else if (!strcmp(kind, "hugetlb-1G")) {
		flags |= MAP_HUGETLB | MAP_HUGE_1GB;
	} else if (strcmp(kind, "private")) {
		flags = MAP_SHARED;
		file = open(kind, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (file < 0 || ftruncate(file, (off_t)length))
			err(1, "%s", kind);
	}
	if (advice) {
		/* At a multiple of 1 GB, as the device's addresses are. */
		range = mmap(NULL, length + (1 << 30), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (range == MAP_FAILED)
			err(1, "mmap");
		range = (char *)(((uintptr_t)range + (1 << 30) - 1) & ~((1UL << 30) - 1));
		memory = mmap(range, length, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0);
	} else {
		memory = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, file, 0);
	}
	if (memory == MAP_FAILED || (advice && madvise(memory, length, advice)))
		err(1, "mmap of %zu bytes, %s", length, kind);
}

static void do_map(void)
{
	map_memory();
	round_nr = 0;
	for (size_t offset = 0; offset < length; offset += PAGE)
		memory[offset] = 1;
	touch();
	map_dma(memory, IOVA, length);
	say("mapped");
}

static void measure(void)
{
	long start = now(), mapped, for_dma, released, end;

	map_memory();
	mapped = now();
	map_dma(memory, IOVA, length);
	for_dma = now();
	release();
	released = now();
	munmap(memory, length);
	if (file >= 0 && ftruncate(file, 0))
		err(1, "%s", kind);
	end = now();
	printf("%s: mmap %ld, map for DMA %ld, unmap for DMA %ld, munmap %ld\n", kind, mapped - start, for_dma - mapped,
	       released - for_dma, end - released);
}

static void do_fork(void)
{
	pid_t pid = fork();

	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* Its parent alone has the device. */
		close(device);
		close(container);
		for (;;)
			pause();
	}
	say("forked");
}

int main(int argc, char **argv)
{
	char order[64];

	if (argc < 5)
		errx(2, "usage: vfio_dma GROUP DEVICE BYTES MEMORY [measure]");
	length = strtoull(argv[3], NULL, 0);
	kind = argv[4];
	if (!length || length % (2 << 20))
		errx(2, "%s: not a multiple of 2 MB", argv[3]);
	open_device(argv[1], argv[2]);
	landing = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (landing == MAP_FAILED)
		err(1, "mmap");
	map_dma(landing, LANDING_IOVA, PAGE);
	if (argc > 5) {
		measure();
		return 0;
	}
	do_map();
	while (scanf("%63s", order) == 1) {
		if (!strcmp(order, "map")) {
			do_map();
		} else if (!strcmp(order, "unmap")) {
			if (munmap(memory, length))
				err(1, "munmap");
			say("unmapped");
		} else if (!strcmp(order, "cut")) {
			if (ftruncate(file, 0))
				err(1, "%s", kind);
			say("empty");
		} else if (!strcmp(order, "punch")) {
			if (fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)length))
				err(1, "%s", kind);
			say("punched");
		} else if (!strcmp(order, "fork")) {
			do_fork();
		} else if (!strcmp(order, "touch")) {
			round_nr++;
			touch();
			say("touched");
		} else if (!strcmp(order, "write")) {
			do_write();
		} else if (!strcmp(order, "verify")) {
			do_verify(false);
		} else if (!strcmp(order, "zeros")) {
			do_verify(true);
		} else if (!strcmp(order, "release")) {
			release();
			say("released");
		} else if (!strcmp(order, "busy")) {
			do_busy();
		} else {
			errx(2, "unknown order %s", order);
		}
	}
	return 0;
}
