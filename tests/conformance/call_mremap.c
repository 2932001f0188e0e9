// SPDX-License-Identifier: GPL-2.0
/* mremap. */
#include "conf.h"

#include <unistd.h>

#define MAYMOVE	MREMAP_MAYMOVE
#define FIXED	(MREMAP_MAYMOVE | MREMAP_FIXED)
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

static size_t units(struct run *r, double n)
{
	return (size_t)((double)r->unit * n);
}

static void shows(struct run *r, const char *moved, double n)
{
	maps(r, U(r, -1), r->unit * 6);
	content(r, U(r, 0), r->unit * 4);
	if (moved && moved != MAP_FAILED) {
		maps(r, moved, units(r, n));
		content(r, moved, units(r, n));
	}
}

CASE(mremap, same_size, 4, BIG)
{
	at(r, "all", mremap(U(r, 0), r->unit * 4, r->unit * 4, 0));
	at(r, "part", mremap(U(r, 1), r->unit, r->unit, MAYMOVE));
	shows(r, NULL, 0);
}

CASE(mremap, shrink, 4, BIG)
{
	at(r, "mremap", mremap(U(r, 0), r->unit * 4, r->unit * 3, 0));
	shows(r, NULL, 0);
	at(r, "mremap", mremap(U(r, 0), r->unit * 3, PAGE, MAYMOVE));
	shows(r, NULL, 0);
}

CASE(mremap, shrink_the_middle, 4, 0)
{
	at(r, "mremap", mremap(U(r, 1), r->unit * 2, r->unit, 0));
	shows(r, NULL, 0);
}

CASE(mremap, grow_in_place, 4, BIG)
{
	at(r, "mremap", mremap(U(r, 0), r->unit * 4, r->unit * 5, 0));
	shows(r, NULL, 0);
	content(r, U(r, 4), r->unit);
	at(r, "last", mremap(U(r, 4), r->unit, r->unit * 2, 0));
	content(r, U(r, 4), r->unit * 2);
	say("vmas=%d", vma_count(r->base, r->unit * 6));
}

CASE(mremap, shrink_and_grow, 4, BIG)
{
	at(r, "shrink", mremap(U(r, 0), r->unit * 4, r->unit, 0));
	at(r, "grow", mremap(U(r, 0), r->unit, r->unit * 4, 0));
	shows(r, NULL, 0);
}

CASE(mremap, grow_without_room, 4, 0)
{
	char *p;

	at(r, "stay", mremap(U(r, 1), r->unit, r->unit * 2, 0));
	p = at(r, "move", mremap(U(r, 1), r->unit, r->unit * 2, MAYMOVE));
	shows(r, p, 2);
}

CASE(mremap, grow_to_the_next_mapping, 4, 0)
{
	at(r, "next", map(U(r, 5), r->unit, RW, MAP_FIXED_NOREPLACE));
	at(r, "fits", mremap(U(r, 0), r->unit * 4, r->unit * 5, 0));
	at(r, "full", mremap(U(r, 0), r->unit * 5, r->unit * 5 + PAGE, 0));
	shows(r, NULL, 0);
}

CASE(mremap, grow_by_a_page, 4, 0)
{
	at(r, "mremap", mremap(U(r, 0), r->unit * 4, r->unit * 4 + 1, 0));
	shows(r, NULL, 0);
	content(r, U(r, 4), PAGE);
}

CASE(mremap, grow_and_move_all, 4, BIG)
{
	char *p;

	at(r, "wall", map(U(r, 4), r->unit, PROT_NONE, MAP_FIXED_NOREPLACE));
	p = at(r, "mremap", mremap(U(r, 0), r->unit * 4, r->unit * 5,
				   MAYMOVE));
	shows(r, p, 5);
}

CASE(mremap, fixed_to_a_free_place, 4, BIG)
{
	at(r, "all", mremap(U(r, 0), r->unit * 4, r->unit * 4, FIXED,
			    spot(r, 0)));
	shows(r, spot(r, 0), 4);
}

CASE(mremap, fixed_from_the_middle, 4, BIG)
{
	at(r, "middle", mremap(U(r, 1), r->unit * 2, r->unit * 2, FIXED,
			       spot(r, 0)));
	shows(r, spot(r, 0), 2);
}

CASE(mremap, fixed_shifted, 4, 0)
{
	char *to = spot(r, 0) + (r->unit > PAGE ? 37 * PAGE : PAGE);

	at(r, "shift", mremap(U(r, 0), r->unit * 4, r->unit * 4, FIXED, to));
	shows(r, to, 4);
	at(r, "back", mremap(to, r->unit * 4, r->unit * 4, FIXED, U(r, 0)));
	shows(r, to, 4);
}

CASE(mremap, fixed_and_growing, 4, 0)
{
	at(r, "grow", mremap(U(r, 1), r->unit * 2, r->unit * 3, FIXED,
			     spot(r, 0)));
	shows(r, spot(r, 0), 4);
}

CASE(mremap, fixed_and_shrinking, 4, 0)
{
	at(r, "shrink", mremap(U(r, 0), r->unit * 3, r->unit, FIXED,
			       spot(r, 0)));
	shows(r, spot(r, 0), 3);
}

/* What is cut off may be other mappings, what moves may not. */
CASE(mremap, fixed_and_shrinking_across, 4, 0)
{
	ret("mprotect", mprotect(U(r, 2), r->unit, PROT_READ));
	at(r, "shrink", mremap(U(r, 1), r->unit * 3, r->unit, FIXED,
			       spot(r, 0)));
	shows(r, spot(r, 0), 3);
}

CASE(mremap, fixed_over_its_neighbour, 4, BIG)
{
	at(r, "over", mremap(U(r, 0), r->unit, r->unit, FIXED, U(r, 2)));
	shows(r, NULL, 0);
}

CASE(mremap, fixed_over_other_mappings, 4, 0)
{
	at(r, "file", mmap(spot(r, 0), r->unit, RW, MAP_PRIVATE | MAP_FIXED,
			   memfd(r, r->unit, 500), 0));
	at(r, "none", map(spot(r, 0) + r->unit, r->unit, PROT_NONE,
			  MAP_FIXED));
	at(r, "over", mremap(U(r, 1), r->unit * 2, r->unit * 2, FIXED,
			     spot(r, 0)));
	shows(r, spot(r, 0), 3);
}

CASE(mremap, fixed_overlapping, 4, 0)
{
	at(r, "up", mremap(U(r, 0), r->unit * 2, r->unit * 2, FIXED, U(r, 1)));
	at(r, "down", mremap(U(r, 1), r->unit * 2, r->unit * 2, FIXED,
			     U(r, 0)));
	at(r, "same", mremap(U(r, 1), r->unit, r->unit, FIXED, U(r, 1)));
	at(r, "within", mremap(U(r, 0), r->unit * 4, r->unit, FIXED, U(r, 2)));
	shows(r, NULL, 0);
}

CASE(mremap, dontunmap, 4, BIG)
{
	int flags = MAYMOVE | MREMAP_DONTUNMAP;
	char *p = at(r, "mremap", mremap(U(r, 1), r->unit, r->unit, flags, 0));

	shows(r, p, 1);
	fill_pages(r, U(r, 1), r->unit, 300);
	shows(r, p, 1);
}

CASE(mremap, dontunmap_fixed, 4, 0)
{
	at(r, "mremap", mremap(U(r, 0), r->unit * 2, r->unit * 2,
			       FIXED | MREMAP_DONTUNMAP, spot(r, 0)));
	shows(r, spot(r, 0), 2);
	at(r, "over", mremap(U(r, 3), r->unit, r->unit,
			     FIXED | MREMAP_DONTUNMAP, U(r, 0)));
	shows(r, spot(r, 0), 2);
}

CASE(mremap, dontunmap_errors, 4, ONCE)
{
	int flags = MAYMOVE | MREMAP_DONTUNMAP;

	at(r, "grow", mremap(U(r, 0), r->unit, r->unit * 2, flags, 0));
	at(r, "shrink", mremap(U(r, 0), r->unit * 2, r->unit, flags, 0));
	at(r, "stay", mremap(U(r, 0), r->unit, r->unit, MREMAP_DONTUNMAP, 0));
	at(r, "zero", mremap(U(r, 0), 0, 0, flags, 0));
	at(r, "hole", mremap(U(r, 4), r->unit, r->unit, flags, 0));
	shows(r, NULL, 0);
}

CASE(mremap, old_size_zero, 4, 0)
{
	at(r, "move", mremap(U(r, 0), 0, r->unit, MAYMOVE));
	at(r, "fixed", mremap(U(r, 0), 0, r->unit, FIXED, spot(r, 0)));
	at(r, "stay", mremap(U(r, 0), 0, r->unit, 0));
	shows(r, NULL, 0);
}

CASE(mremap, old_size_zero_of_shared, 4, 0)
{
	char *p;

	at(r, "shared", mmap(U(r, 1), r->unit, RW, MAP_SHARED | MAP_ANONYMOUS |
			     MAP_FIXED, -1, 0));
	fill_pages(r, U(r, 1), r->unit, 300);
	p = at(r, "copy", mremap(U(r, 1), 0, r->unit, MAYMOVE));
	shows(r, p, 1);
}

CASE(mremap, errors, 4, ONCE)
{
	at(r, "unaligned", mremap(U(r, 0) + 1, r->unit, r->unit, MAYMOVE));
	at(r, "to", mremap(U(r, 0), r->unit, r->unit, FIXED, U(r, 9) + 1));
	at(r, "no_size", mremap(U(r, 0), r->unit, 0, MAYMOVE));
	at(r, "flags", mremap(U(r, 0), r->unit, r->unit, 8));
	at(r, "fixed_only", mremap(U(r, 0), r->unit, r->unit, MREMAP_FIXED,
				   U(r, 9)));
	at(r, "hole", mremap(U(r, 9), r->unit, r->unit * 2, MAYMOVE));
	at(r, "hole_same", mremap(U(r, 9), r->unit, r->unit, 0));
	at(r, "hole_shrink", mremap(U(r, 9), r->unit * 2, r->unit, 0));
	at(r, "too_old", mremap(U(r, 0), r->unit * 5, r->unit * 6, MAYMOVE));
	at(r, "wraps", mremap(U(r, 0), -PAGE, r->unit, 0));
	at(r, "too_new", mremap(U(r, 0), r->unit, 1UL << 47, MAYMOVE));
	at(r, "new_wraps", mremap(U(r, 0), r->unit, -PAGE, MAYMOVE));
	at(r, "far", mremap(U(r, 0), r->unit, r->unit, FIXED,
			    (void *)(1UL << 47)));
	at(r, "kernel", mremap(U(r, 0), r->unit, r->unit, FIXED,
			       (void *)-PAGE));
	shows(r, NULL, 0);
}

CASE(mremap, across_protections, 4, 0)
{
	ret("mprotect", mprotect(U(r, 2), r->unit, PROT_READ));
	at(r, "grow", mremap(U(r, 1), r->unit * 2, r->unit * 3, MAYMOVE));
	at(r, "move", mremap(U(r, 1), r->unit * 2, r->unit * 2, FIXED,
			     spot(r, 0)));
	at(r, "shrink", mremap(U(r, 1), r->unit * 3, r->unit, 0));
	shows(r, NULL, 0);
}

CASE(mremap, across_a_hole, 4, 0)
{
	ret("munmap", munmap(U(r, 2), r->unit));
	at(r, "move", mremap(U(r, 1), r->unit * 3, r->unit * 3, FIXED,
			     spot(r, 0)));
	at(r, "shrink", mremap(U(r, 0), r->unit * 4, r->unit, 0));
	shows(r, NULL, 0);
}

CASE(mremap, keeps_protection, 4, 0)
{
	static const int prots[] = {
		PROT_NONE, PROT_READ, PROT_READ | PROT_EXEC, RW | PROT_EXEC,
	};

	for (int i = 0; i < 4; i++) {
		ret("mprotect", mprotect(U(r, i), r->unit, prots[i]));
		at(r, "mremap", mremap(U(r, i), r->unit, r->unit * 2, FIXED,
				       spot(r, i)));
		maps(r, spot(r, i), r->unit * 2);
		ret("back", mprotect(spot(r, i), r->unit * 2, RW));
		content(r, spot(r, i), r->unit * 2);
	}
}

CASE(mremap, keeps_advice, 4, 0)
{
	static const int advice[] = {
		MADV_DONTFORK, MADV_DONTDUMP, MADV_NOHUGEPAGE, MADV_SEQUENTIAL,
	};

	for (int i = 0; i < 4; i++) {
		ret("madvise", madvise(U(r, i), r->unit, advice[i]));
		at(r, "mremap", mremap(U(r, i), r->unit, r->unit * 2, FIXED,
				       spot(r, i)));
		vm_flags(spot(r, i), "dc dd nh sr");
		vm_flags(spot(r, i) + r->unit, "dc dd nh sr");
	}
}

CASE(mremap, keeps_locks, 4, 0)
{
	ret("mlock", mlock(U(r, 1), r->unit));
	at(r, "mremap", mremap(U(r, 1), r->unit, r->unit * 2, FIXED,
			       spot(r, 0)));
	vm_flags(spot(r, 0), "lo");
	say("locked=%s", in_units(r, (long)smaps_locked(spot(r, 0),
							r->unit * 2)));
	shows(r, spot(r, 0), 2);
}

CASE(mremap, reservation, 4, BARE)
{
	at(r, "mmap", map(U(r, 0), r->unit * 4, PROT_NONE, MAP_NORESERVE |
			  MAP_FIXED_NOREPLACE));
	ret("commit", mprotect(U(r, 1), r->unit, RW));
	fill_pages(r, U(r, 1), r->unit, 1);
	ret("close", mprotect(U(r, 1), r->unit, PROT_NONE));
	at(r, "mremap", mremap(U(r, 0), r->unit * 4, r->unit * 8, FIXED,
			       spot(r, 0)));
	shows(r, spot(r, 0), 8);
	ret("open", mprotect(spot(r, 0), r->unit * 8, RW));
	content(r, spot(r, 0), r->unit * 8);
}

CASE(mremap, there_and_back_in_pieces, 4, 0)
{
	for (int i = 0; i < 4; i++)
		at(r, "away", mremap(U(r, i), r->unit, r->unit, FIXED,
				     spot(r, 0) + (size_t)(3 - i) * r->unit));
	shows(r, spot(r, 0), 4);
	say("vmas=%d", vma_count(spot(r, 0), r->unit * 4));
	for (int i = 0; i < 4; i++)
		at(r, "back", mremap(spot(r, 0) + (size_t)(3 - i) * r->unit,
				     r->unit, r->unit, FIXED, U(r, i)));
	shows(r, NULL, 0);
}

CASE(mremap, of_a_file_over_arena, 4, 0)
{
	at(r, "file", mmap(spot(r, 0), r->unit, RW, MAP_SHARED | MAP_FIXED,
			   memfd(r, r->unit, 500), 0));
	at(r, "over", mremap(spot(r, 0), r->unit, r->unit, FIXED, U(r, 1)));
	shows(r, NULL, 0);
	maps(r, spot(r, 0), r->unit);
}
