/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A firmware of 64 KB that writes 1, 2, 3, ... to the first serial port, a line for each 2^30 ticks of the time
 * stamp counter. It needs no interrupt, no disk and no other firmware.
 */
	.code16
	.globl _start
_start:
	xorw %ax, %ax
	movw %ax, %ss
	movw $0x7c00, %sp
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
	rdtsc
	movl %eax, %edi
wait:
	pause
	rdtsc
	subl %edi, %eax
	cmpl $1 << 30, %eax
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

	/* Where a CPU begins. */
	.org 0xfff0
	ljmp $0xf000, $0
	.org 0x10000
