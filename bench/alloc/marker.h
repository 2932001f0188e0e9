/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A marker is a long no-operation with a number in it. It costs one
 * instruction and means something only to profile/plugin.c: from a number
 * other than 0 on it writes down what is executed, until number 0.
 */
#ifndef MARKER_H
#define MARKER_H

#define MARKER_MAGIC	0x48504d00u
#define MARKER_NUMBER	0xffu
#define MARKER_BYTES	8

/* nopl MAGIC+number(%rax,%rax,1) */
#define MARKER(number)							\
	__asm__ volatile(".byte 0x0f, 0x1f, 0x84, 0x00\n\t.long %c0"	\
			 : : "i"(MARKER_MAGIC + (number)) : "memory")

#endif
