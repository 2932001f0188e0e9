// SPDX-License-Identifier: GPL-2.0
/*
 * A firmware of 64 KB that looks for detours (the benchmark 'selfish'): a round of a loop that reads the time stamp
 * counter is a detour if it takes more than FACTOR times as long as usual. The machine runs nothing else and has no
 * interrupts, so only its host takes time from it.
 *
 * A character C above '0' by the second serial port starts a search of (C - '0') * 2^32 ticks. It then prints a line
 * there, in hexadecimal: ticks, rounds, detours, ticks lost in them, ticks of the longest one, ticks of a usual round.
 */
#define SERIAL		0x2f8
#define SERIAL_STATUS	0x2fd
#define SERIAL_RECEIVED	1
#define SERIAL_EMPTY	32
#define FACTOR		9
/* The usual round is the least mean of TRIES times ROUNDS. */
#define ROUNDS		4096
#define TRIES		16

/* 16 bits after a reset, the segment begins 64 KB below 4 GB. */
asm(".section .start, \"ax\"\n"
    "	.code16\n"
    "start:\n"
    "	cli\n"
    "	lgdtl %cs:(gdt_register - start + 0xf000)\n"
    "	movl %cr0, %eax\n"
    "	orb $1, %al\n"
    "	movl %eax, %cr0\n"
    "	ljmpl $8, $flat\n"
    "	.code32\n"
    "flat:\n"
    "	movw $16, %ax\n"
    "	movw %ax, %ds\n"
    "	movw %ax, %es\n"
    "	movw %ax, %ss\n"
    "	movl $0x8000, %esp\n"
    "	call firmware\n"
    "	.balign 8\n"
    "gdt:\n"
    "	.quad 0\n"
    "	.quad 0x00cf9b000000ffff\n"	/* code, all of 4 GB */
    "	.quad 0x00cf93000000ffff\n"	/* data */
    "gdt_register:\n"
    "	.word . - gdt - 1\n"
    "	.long gdt\n"
    ".section .reset, \"ax\"\n"
    "	.code16\n"
    "	jmp start\n"
    "	.org 16, 0xff\n"
    ".text\n"
    "	.code32\n");

static unsigned char in(unsigned short port)
{
	unsigned char value;

	asm volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
	return value;
}

static void out(unsigned short port, unsigned char value)
{
	asm volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static unsigned char get(void)
{
	while (!(in(SERIAL_STATUS) & SERIAL_RECEIVED))
		__builtin_ia32_pause();
	return in(SERIAL);
}

static void put(unsigned char c)
{
	while (!(in(SERIAL_STATUS) & SERIAL_EMPTY))
		__builtin_ia32_pause();
	out(SERIAL, c);
}

static void print(unsigned long long value, unsigned char end)
{
	for (int shift = 60; shift >= 0; shift -= 4) {
		unsigned char digit = (value >> shift) & 15;

		put(digit < 10 ? '0' + digit : 'a' + digit - 10);
	}
	put(end);
}

static unsigned long long ticks(void)
{
	return __builtin_ia32_rdtsc();
}

static unsigned long long usual_round(void)
{
	unsigned long long least = -1ULL;

	for (int i = 0; i < TRIES; i++) {
		unsigned long long begin = ticks(), taken;

		for (int j = 1; j < ROUNDS; j++)
			ticks();
		taken = ticks() - begin;
		if (taken < least)
			least = taken;
	}
	return least / ROUNDS + 1;
}

static void search(unsigned long long usual, unsigned long long length)
{
	unsigned long long rounds = 0, detours = 0, lost = 0, longest = 0;
	unsigned long long begin = ticks(), last = begin, now;

	do {
		now = ticks();
		rounds++;
		if (now - last > FACTOR * usual) {
			unsigned long long detour = now - last - usual;

			detours++;
			lost += detour;
			if (detour > longest)
				longest = detour;
			now = ticks();
		}
		last = now;
	} while (now - begin < length);
	print(now - begin, ' ');
	print(rounds, ' ');
	print(detours, ' ');
	print(lost, ' ');
	print(longest, ' ');
	print(usual, '\n');
}

void firmware(void)
{
	unsigned long long usual = usual_round();

	for (;;) {
		unsigned char c = get();

		if (c > '0')
			search(usual, (unsigned long long)(c - '0') << 32);
	}
}
