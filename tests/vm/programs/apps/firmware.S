/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The firmware of a machine that has nothing else to run: 64 KB that end at 4 GB. Writes to all memory
 * above 1 MB, reads it again, prints a line by the serial port, and stops the machine when it gets a character there:
 * qemu-system-x86_64 -M microvm -bios firmware.bin -serial stdio -no-reboot ...
 */
#define SERIAL		0x3f8
#define SERIAL_STATUS	0x3fd
#define SERIAL_READY	1
#define FW_CFG		0x510
#define FW_CFG_RAM_SIZE	3
#define FIRST		0x100000
#define FACTOR		0x9e3779b1

	.text
base:
	.org 0xf000, 0xff
/* What follows runs where it is after a reset: 16 bits, the segment begins at base. */
	.code16
start:
	cli
	lgdtl %cs:(gdt_register - base)
	movl %cr0, %eax
	orb $1, %al
	movl %eax, %cr0
	ljmpl $8, $flat

	.code32
flat:
	movw $16, %ax
	movw %ax, %ds
	movw %ax, %es
	movw %ax, %ss
	movl $0x8000, %esp

	/* The lower half of a number of 64 bits: %ebp is where memory ends. */
	movw $FW_CFG, %dx
	movw $FW_CFG_RAM_SIZE, %ax
	outw %ax, %dx
	incw %dx
	movl $4, %ecx
1:	inb %dx, %al
	shrdl $8, %eax, %ebp
	loop 1b

	movl $FIRST, %edi
1:	imull $FACTOR, %edi, %eax
	movl %eax, (%edi)
	addl $4, %edi
	cmpl %ebp, %edi
	jb 1b

	/* %ebx: their sum, %ecx: how many are wrong */
	xorl %ebx, %ebx
	xorl %ecx, %ecx
	movl $FIRST, %edi
1:	imull $FACTOR, %edi, %eax
	movl (%edi), %edx
	addl %edx, %ebx
	cmpl %eax, %edx
	je 2f
	incl %ecx
2:	addl $4, %edi
	cmpl %ebp, %edi
	jb 1b

	movl $text_end, %esi
	call print_text
	movl %ebp, %edi
	call print_number
	movl $text_sum, %esi
	call print_text
	movl %ebx, %edi
	call print_number
	movl $text_wrong, %esi
	call print_text
	movl %ecx, %edi
	call print_number
	movl $text_line, %esi
	call print_text

	movw $SERIAL_STATUS, %dx
1:	pause
	inb %dx, %al
	testb $SERIAL_READY, %al
	jz 1b

	/* A fault without a table of handlers resets the machine. */
	lidt no_handlers
	ud2

/* print_text: what %esi points to */
print_text:
	movw $SERIAL, %dx
1:	lodsb
	testb %al, %al
	jz 2f
	outb %al, %dx
	jmp 1b
2:	ret

/* print_number: %edi, in hexadecimal */
print_number:
	movw $SERIAL, %dx
	pushl %ecx
	movl $8, %ecx
1:	roll $4, %edi
	movl %edi, %eax
	andl $15, %eax
	movb digits(%eax), %al
	outb %al, %dx
	loop 1b
	popl %ecx
	ret

digits:		.ascii "0123456789abcdef"
text_end:	.asciz "memory to "
text_sum:	.asciz ", sum "
text_wrong:	.asciz ", wrong "
text_line:	.asciz "\n"

	.balign 8
gdt:
	.quad 0
	.quad 0x00cf9b000000ffff	/* code, all of 4 GB */
	.quad 0x00cf93000000ffff	/* data */
gdt_register:
	.word . - gdt - 1
	.long gdt
no_handlers:
	.word 0
	.long 0

	.org 0xfff0, 0xff
	.code16
	jmp start
	.org 0x10000, 0xff
