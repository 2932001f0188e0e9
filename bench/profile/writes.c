// SPDX-License-Identifier: GPL-2.0
/*
 * writes: which cache lines the kernel of a QEMU guest writes to, CPU by CPU.
 *
 * A TCG plugin for guests whose CPUs run at once. From a marker other than 0
 * (bench/alloc/marker.h) until marker 0, each on the CPU that executes it, it counts
 * the kernel's stores of that CPU by cache line and instruction. Stores past the
 * caches and string instructions are left out: they fill and copy pages.
 *
 * The file, given as out=FILE, is an array of elements of three 64-bit words: the
 * address of a line; the lower 48 bits of the address of an instruction, its upper 16 being
 * 1 if it is locked, or 0; and how often it wrote there, or for 0 how many calls did, the upper 16 bits being the number of the
 * CPU and the marker.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QEMU_PLUGIN_API	4
#include "qemu_plugin.h"
#include "recorder.h"

#define LINE		64
#define LONGEST		16
/* A call of the program begins. */
#define MARKER_CALL	128
#define MOST_CPUS	64

EXPORT int qemu_plugin_version = QEMU_PLUGIN_API;

struct entry {
	uint64_t line, what, times;
	uint64_t call;	/* the last that wrote to the line */
};

/* Written to by its own CPU only. */
static struct cpu {
	uint64_t marker, call;
	size_t room, used;
	struct entry *entries;
} __attribute__((aligned(LINE))) cpus[MOST_CPUS];

static FILE *out;
static pthread_mutex_t out_lock = PTHREAD_MUTEX_INITIALIZER;

static struct entry *find(struct cpu *cpu, uint64_t line, uint64_t what)
{
	uint64_t hash = (line ^ what * 31) * UINT64_C(0x9e3779b97f4a7c15);
	size_t i = hash >> 20 & (cpu->room - 1);

	while (cpu->entries[i].times &&
	       (cpu->entries[i].line != line || cpu->entries[i].what != what))
		i = (i + 1) & (cpu->room - 1);
	return &cpu->entries[i];
}

static void grow(struct cpu *cpu)
{
	struct cpu old = *cpu;

	cpu->room = old.room ? 2 * old.room : 1 << 16;
	cpu->entries = calloc(cpu->room, sizeof(*cpu->entries));
	if (!cpu->entries) {
		perror("writes_plugin");
		exit(1);
	}
	for (size_t i = 0; i < old.room; i++)
		if (old.entries[i].times)
			*find(cpu, old.entries[i].line, old.entries[i].what) = old.entries[i];
	free(old.entries);
}

static struct entry *get(struct cpu *cpu, uint64_t line, uint64_t what)
{
	struct entry *entry;

	if (2 * cpu->used >= cpu->room)
		grow(cpu);
	entry = find(cpu, line, what);
	if (!entry->times) {
		cpu->used++;
		entry->line = line;
		entry->what = what;
		entry->call = 0;
	}
	return entry;
}

static void written(unsigned int vcpu, uint32_t info, uint64_t addr, void *what)
{
	struct cpu *cpu = &cpus[vcpu];
	struct entry *entry;

	(void)info;
	/* User addresses are the lower half. */
	if (!cpu->marker || !(addr >> 63))
		return;
	addr &= ~(uint64_t)(LINE - 1);
	get(cpu, addr, (uintptr_t)what)->times++;
	entry = get(cpu, addr, 0);
	entry->times += entry->call != cpu->call;
	entry->call = cpu->call;
}

static void marker_executed(unsigned int vcpu, void *number)
{
	struct cpu *cpu = &cpus[vcpu];
	uint64_t last = cpu->marker;

	if ((uintptr_t)number == MARKER_CALL) {
		cpu->call++;
		return;
	}
	cpu->marker = (uintptr_t)number;
	if (number || !last)
		return;
	pthread_mutex_lock(&out_lock);
	for (size_t i = 0; i < cpu->room; i++) {
		struct entry *entry = &cpu->entries[i];

		if (!entry->times)
			continue;
		entry->times |= (uint64_t)vcpu << 56 | last << 48;
		if (fwrite(entry, offsetof(struct entry, call), 1, out) != 1) {
			perror("writes_plugin: write");
			exit(1);
		}
		entry->times = 0;
	}
	cpu->used = 0;
	fflush(out);
	pthread_mutex_unlock(&out_lock);
}

/* Locked, or xchg; a string instruction, or a store past the caches. */
static void classify(const uint8_t *bytes, size_t size, bool *locked, bool *bulk)
{
	size_t i = 0;
	bool prefix_f3 = false;

	*locked = *bulk = false;
	for (; i < size; i++) {
		if (bytes[i] == 0xf0)
			*locked = true;
		else if (bytes[i] == 0xf3)
			prefix_f3 = true;
		else if (bytes[i] != 0x66 && bytes[i] != 0xf2 && bytes[i] != 0x3e && bytes[i] != 0x65 &&
			 (bytes[i] & 0xf0) != 0x40)
			break;
	}
	if (i == size)
		return;
	if (bytes[i] == 0x86 || bytes[i] == 0x87)
		*locked = true;
	else if (prefix_f3 && (bytes[i] == 0xa4 || bytes[i] == 0xa5 || bytes[i] == 0xaa || bytes[i] == 0xab))
		*bulk = true;
	else if (bytes[i] == 0x0f && i + 1 < size && (bytes[i + 1] == 0xc3 || bytes[i + 1] == 0xe7))
		*bulk = true;
	else if ((bytes[i] == 0xc4 || bytes[i] == 0xc5) && i + 3 < size &&
		 bytes[i + (bytes[i] == 0xc4 ? 3 : 2)] == 0xe7)
		*bulk = true;
}

static void block_translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t n = qemu_plugin_tb_n_insns(tb);

	(void)id;
	for (size_t i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint64_t addr = qemu_plugin_insn_vaddr(insn);
		uint8_t bytes[LONGEST] = {};
		size_t size = qemu_plugin_insn_data(insn, bytes, sizeof(bytes));
		bool locked, bulk;
		uint32_t number;

		if (is_marker(bytes, size, &number))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, marker_executed, QEMU_PLUGIN_CB_NO_REGS,
							       (void *)(uintptr_t)number);
		if (!(addr >> 63))
			continue;
		classify(bytes, size, &locked, &bulk);
		if (!bulk)
			qemu_plugin_register_vcpu_mem_cb(insn, written, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_W,
							 (void *)(uintptr_t)((addr & ADDRESS_MASK) |
									     (uint64_t)locked << 48));
	}
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info_t *info,
			       int argc, char **argv)
{
	(void)info;
	out = recorder_open("writes_plugin", argc, argv);
	if (!out)
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, block_translated);
	return 0;
}
