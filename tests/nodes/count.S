/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A boot sector that writes 1, 2, 3, ... to the first serial port, a line for each second of the BIOS's clock
 * of 18.2 ticks.
 */
	.code16
	.globl _start
_start:
	xorw %ax, %ax
	movw %ax, %ds
	movw %ax, %ss
	movw $0x7c00, %sp
	sti
	xorl %esi, %esi
next:
	incl %esi
	movl %esi, %eax
	movl $10, %ebx
	xorw %cx, %cx
digit:
	xorl %edx, %edx
	divl %ebx
	pushw %dx
	incw %cx
	testl %eax, %eax
	jnz digit
print:
	popw %ax
	addb $'0', %al
	call put
	loop print
	movb $'\n', %al
	call put
	/* The count of ticks since midnight. */
	movl 0x46c, %edi
wait:
	hlt
	movl 0x46c, %eax
	subl %edi, %eax
	cmpl $18, %eax
	jb wait
	jmp next

put:
	movb %al, %ah
	movw $0x3fd, %dx
busy:
	inb %dx, %al
	testb $0x20, %al
	jz busy
	movb %ah, %al
	movw $0x3f8, %dx
	outb %al, %dx
	ret

	.org 510
	.word 0xaa55
