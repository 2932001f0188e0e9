/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Pages of text, constants and data for sem_image.c and image_lib.c: FILLER
 * pages each. Every page of text is a function that returns; every page of
 * the others begins with a number of its own.
 */
	.section .text.filler, "ax", @progbits
	.globl filler_text
	.hidden filler_text
	.balign 4096
filler_text:
	.rept FILLER
	endbr64
	ret
	.balign 4096, 0xcc
	.endr

	.macro numbers
	.set page, 0
	.rept FILLER
	.quad page * 1000003 + 7
	.zero 4088
	.set page, page + 1
	.endr
	.endm

	.section .rodata.filler, "a", @progbits
	.globl filler_rodata
	.hidden filler_rodata
	.balign 4096
filler_rodata:
	numbers

	.data
	.globl filler_data
	.hidden filler_data
	.balign 4096
filler_data:
	numbers

	.section .note.GNU-stack, "", @progbits
