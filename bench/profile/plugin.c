// SPDX-License-Identifier: GPL-2.0
/*
 * plugin: writes down what a QEMU guest executes between two markers.
 *
 * A TCG plugin. A marker is a no-operation that a program in the guest
 * executes (bench/alloc/marker.h); its number goes into the file, and from a marker
 * other than 0 until marker 0 so does every block of instructions executed, in
 * kernel and user mode. Nothing in the guest runs differently for it.
 *
 * The file, given as out=FILE, is an array of pairs of 64-bit words: the
 * lower 48 bits of the first are the address of a block, the upper 16 its
 * number of instructions, or 0xffff where the lower bits are a marker; the
 * second word says how often it was executed in a row.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qemu_plugin.h"
#include "recorder.h"

#define IS_MARKER	(UINT64_C(0xffff) << 48)

EXPORT int qemu_plugin_version = QEMU_PLUGIN_API;

static FILE *out;
static bool recording;
static uint64_t last, times;

static void write_last(void)
{
	uint64_t record[2] = { last, times };

	if (times && fwrite(record, sizeof(record), 1, out) != 1) {
		perror("profile_plugin: write");
		exit(1);
	}
	times = 0;
}

static void note(uint64_t what)
{
	if (what != last || !times) {
		write_last();
		last = what;
	}
	times++;
}

static void block_executed(unsigned int vcpu, void *block)
{
	(void)vcpu;
	if (recording)
		note((uintptr_t)block);
}

static void marker_executed(unsigned int vcpu, void *number)
{
	(void)vcpu;
	recording = number;
	note(IS_MARKER | (uintptr_t)number);
	if (!recording) {
		write_last();
		fflush(out);
	}
}

static void block_translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	uint64_t n = qemu_plugin_tb_n_insns(tb);
	uint64_t block = n << 48 | (qemu_plugin_tb_vaddr(tb) & ADDRESS_MASK);

	(void)id;
	qemu_plugin_register_vcpu_tb_exec_cb(tb, block_executed, QEMU_PLUGIN_CB_NO_REGS,
					     (void *)(uintptr_t)block);
	for (size_t i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint32_t number;

		if (!is_marker(qemu_plugin_insn_data(insn), qemu_plugin_insn_size(insn), &number))
			continue;
		qemu_plugin_register_vcpu_insn_exec_cb(insn, marker_executed,
						       QEMU_PLUGIN_CB_NO_REGS,
						       (void *)(uintptr_t)number);
	}
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info_t *info,
			       int argc, char **argv)
{
	(void)info;
	out = recorder_open("profile_plugin", argc, argv);
	if (!out)
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, block_translated);
	return 0;
}
