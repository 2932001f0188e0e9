// SPDX-License-Identifier: GPL-2.0
/*
 * One block: its struct pages, its contents, and who still refers to it.
 *
 * A pool block is an order-9 folio of which the module holds one reference.
 * Page-table entries and pins (devices, ptrace, pipes) hold one each, so the
 * block is nobody else's exactly when the count is back to one. It must never
 * reach zero: that would free offlined memory into Linux's allocator.
 */
#include <linux/highmem.h>
#include <linux/page-flags.h>
#include <linux/pagemap.h>
#include <asm/fpu/api.h>

#include "hpmmap.h"
#include "mem/block/block.h"
#include "mem/block/linux_page.h"

DEFINE_MUTEX(hpmmap_poison_mutex);
DEFINE_SRCU(hpmmap_touch_srcu);

/* Cleared at once, in bytes: some 10 us. */
#define CLEAR_PIECE (128UL << 10)

/* So many pages are zeroed one by one rather than with all the block. */
#define CLEAN_MOST (SLOT_PAGES / 4)

static void page_init(struct page *page, unsigned long pfn, int nid)
{
	memset(page, 0, sizeof(*page));
	/*
	 * ZONE_NORMAL whatever it was: with ZONE_MOVABLE a long-term pin tries
	 * to migrate the page first, for ever.
	 */
	set_page_links(page, ZONE_NORMAL, nid, pfn);
	atomic_set(&page->_mapcount, -1);
	page_cpupid_reset_last(page);
	INIT_LIST_HEAD(&page->lru);
}

/**
 * hpmmap_block_prepare() - make a folio of 2 MB of offline memory
 * @block: the block, zeroed
 * @pfn: first page frame, aligned to 2 MB; every page of it is offline
 * @nid: its node
 *
 * The struct pages of offline memory mean nothing to Linux, and it
 * initialises them again when the memory is set online.
 */
void hpmmap_block_prepare(struct hpmmap_block *block, unsigned long pfn,
			  int nid)
{
	struct page *page = pfn_to_page(pfn);
	unsigned int i;

	for (i = 0; i < SLOT_PAGES; i++)
		page_init(page + i, pfn + i, nid);
	compat_pageblock_init(page);
	set_page_count(page, 1);
	compat_prep_compound_page(page, SLOT_ORDER);
	compat_kasan_unpoison(page_address(page), SLOT_SIZE);
	block->folio = page_folio(page);
	__folio_mark_uptodate(block->folio);
	block->nid = nid;
	atomic_set(&block->users, 0);
	INIT_LIST_HEAD(&block->link);
}

/**
 * hpmmap_block_attach() - say which file offset a block stands for
 * @block: the block
 * @mapping: of the context's file
 * @slot: its slot
 *
 * Shared futexes and core dumps look at a page's mapping and index.
 */
void hpmmap_block_attach(struct hpmmap_block *block,
			 struct address_space *mapping, unsigned long slot)
{
	pgoff_t index = slot << SLOT_ORDER;
	struct page *page;
	unsigned int i;

	block->slot = slot;
	if (block->folio) {
		block->folio->mapping = mapping;
		block->folio->index = index;
		return;
	}
	hpmmap_for_each_linux_page(block, i, page) {
		page_folio(page)->mapping = mapping;
		page_folio(page)->index = index + i;
	}
}

/**
 * hpmmap_block_detach() - a pool block stands for no file offset any more
 * @block: the block; nobody but the module refers to it
 */
void hpmmap_block_detach(struct hpmmap_block *block)
{
	hpmmap_folio_detach(block->folio);
}

/* Its own memory, even where that has no contents yet. */
static struct page *own_page(struct hpmmap_block *block, unsigned int i)
{
	return block->folio ? folio_page(block->folio, i) : block->pages[i];
}

/**
 * hpmmap_block_page() - one page of a block
 * @block: the block
 * @i: which, below SLOT_PAGES
 *
 * Return: the page, of a draft the one that has the contents; NULL where a block of
 * Linux's memory has none yet.
 */
struct page *hpmmap_block_page(struct hpmmap_block *block, unsigned int i)
{
	if (unlikely(block->draft) && test_bit(i, block->draft->left))
		block = block->draft->behind;
	return own_page(block, i);
}

/*
 * Clears with stores that bypass the caches: a block is as large as many a
 * second-level cache, and what is in there is of more use than zeros. bench/clear
 * compares the ways there are.
 */
static void clear_streaming(void *addr, size_t len)
{
	void *end = addr + len;

	kernel_fpu_begin();
	asm volatile("	pxor	%%xmm0, %%xmm0\n"
		     "1:	movntdq	%%xmm0, (%0)\n"
		     "	movntdq	%%xmm0, 16(%0)\n"
		     "	movntdq	%%xmm0, 32(%0)\n"
		     "	movntdq	%%xmm0, 48(%0)\n"
		     "	movntdq	%%xmm0, 64(%0)\n"
		     "	movntdq	%%xmm0, 80(%0)\n"
		     "	movntdq	%%xmm0, 96(%0)\n"
		     "	movntdq	%%xmm0, 112(%0)\n"
		     "	add	$128, %0\n"
		     "	cmp	%1, %0\n"
		     "	jne	1b\n"
		     "	sfence"
		     : "+r" (addr) : "r" (end) : "memory", "cc");
	kernel_fpu_end();
}

/* The same with stores twice as wide. */
static void clear_streaming_avx(void *addr, size_t len)
{
	void *end = addr + len;

	kernel_fpu_begin();
	asm volatile("	vpxor	%%xmm0, %%xmm0, %%xmm0\n"
		     "1:	vmovntdq %%ymm0, (%0)\n"
		     "	vmovntdq %%ymm0, 32(%0)\n"
		     "	vmovntdq %%ymm0, 64(%0)\n"
		     "	vmovntdq %%ymm0, 96(%0)\n"
		     "	vmovntdq %%ymm0, 128(%0)\n"
		     "	vmovntdq %%ymm0, 160(%0)\n"
		     "	vmovntdq %%ymm0, 192(%0)\n"
		     "	vmovntdq %%ymm0, 224(%0)\n"
		     "	add	$256, %0\n"
		     "	cmp	%1, %0\n"
		     "	jne	1b\n"
		     "	sfence"
		     : "+r" (addr) : "r" (end) : "memory", "cc");
	kernel_fpu_end();
}

/* The addresses at which a memory error ends an instruction, and where it goes on. */
#define MCE_SAFE(_label, _to) _ASM_EXTABLE_TYPE(_label, _to, EX_TYPE_DEFAULT_MCE_SAFE)

/* Copies in the same way; false after a memory error in what was to be read. */
static bool copy_streaming_avx(void *to, const void *from, size_t len)
{
	const void *end = from + len;
	bool done = false;

	kernel_fpu_begin();
	asm volatile("1:	vmovdqa	(%1), %%ymm0\n"
		     "2:	vmovdqa	32(%1), %%ymm1\n"
		     "3:	vmovdqa	64(%1), %%ymm2\n"
		     "4:	vmovdqa	96(%1), %%ymm3\n"
		     "	vmovntdq %%ymm0, (%2)\n"
		     "	vmovntdq %%ymm1, 32(%2)\n"
		     "	vmovntdq %%ymm2, 64(%2)\n"
		     "	vmovntdq %%ymm3, 96(%2)\n"
		     "	add	$128, %1\n"
		     "	add	$128, %2\n"
		     "	cmp	%3, %1\n"
		     "	jne	1b\n"
		     "	mov	$1, %0\n"
		     "5:	sfence\n"
		     MCE_SAFE(1b, 5b) MCE_SAFE(2b, 5b) MCE_SAFE(3b, 5b) MCE_SAFE(4b, 5b)
		     : "+q" (done), "+r" (from), "+r" (to) : "r" (end) : "memory", "cc");
	kernel_fpu_end();
	return done;
}

static bool has_avx(void)
{
	return boot_cpu_has(X86_FEATURE_AVX) &&
	       cpu_has_xfeatures(XFEATURE_MASK_SSE | XFEATURE_MASK_YMM, NULL);
}

/* One that is not too long: the FPU cannot be preempted. */
static void zero_piece(struct hpmmap_block *block, size_t at)
{
	if (likely(!folio_test_has_hwpoisoned(block->folio)))
		(has_avx() ? clear_streaming_avx : clear_streaming)(folio_address(block->folio) + at,
								    CLEAR_PIECE);
}

/**
 * hpmmap_block_zero_unless() - write zeros to all of a pool block, if it is good
 * @block: nobody else can see it; its stale bits are the caller's business
 * @lock: NULL, or what is held while a piece is zeroed, for some 10 us
 * @stop: protected by @lock: end before the next piece, and do not look at @block again
 *
 * Return: whether all of it is zero.
 */
noinline bool hpmmap_block_zero_unless(struct hpmmap_block *block, spinlock_t *lock,
				       const bool *stop)
{
	int cookie = srcu_read_lock(&hpmmap_touch_srcu);
	bool done = false;
	size_t at;

	for (at = 0; at < SLOT_SIZE && !done; at += CLEAR_PIECE) {
		if (lock) {
			spin_lock(lock);
			done = *stop;
		}
		if (!done)
			zero_piece(block, at);
		if (lock)
			spin_unlock(lock);
	}
	srcu_read_unlock(&hpmmap_touch_srcu, cookie);
	cond_resched();
	return !done;
}

/* The same for a caller that nobody stops. */
void hpmmap_block_zero(struct hpmmap_block *block)
{
	hpmmap_block_zero_unless(block, NULL, NULL);
}

/**
 * hpmmap_block_clean() - a pool block is given up: zero the few pages that are not
 * @block: nobody else can see it
 *
 * Return: whether all of it is zero now, and stale; otherwise nothing was done, since
 * that is no cheaper than to zero the block.
 */
bool hpmmap_block_clean(struct hpmmap_block *block)
{
	unsigned int fresh = SLOT_PAGES - bitmap_weight(block->stale, SLOT_PAGES);
	unsigned int i;
	int cookie;
	bool good;

	if (!block->zeroed || !fresh || fresh > CLEAN_MOST)
		return false;
	cookie = srcu_read_lock(&hpmmap_touch_srcu);
	good = !hpmmap_block_is_hurt(block);
	if (good) {
		for_each_clear_bit(i, block->stale, SLOT_PAGES)
			clear_page(page_address(folio_page(block->folio, i)));
		bitmap_fill(block->stale, SLOT_PAGES);
	}
	srcu_read_unlock(&hpmmap_touch_srcu, cookie);
	return good;
}

/**
 * hpmmap_block_clear() - zero all of a pool block, if it is not
 * @owner: who needs it
 * @block: nobody else can see it
 */
void hpmmap_block_clear(struct hpmmap_owner *owner, struct hpmmap_block *block)
{
	if (!block->zeroed) {
		hpmmap_block_zero(block);
		atomic_long_add(SLOT_PAGES, &owner->nr_cleared);
	}
	hpmmap_block_show(block);
}

/**
 * hpmmap_block_set_stale() - pages of a block mean nothing any more
 * @block: the block
 * @first: first page
 * @nr: number of pages
 */
void hpmmap_block_set_stale(struct hpmmap_block *block, unsigned int first,
			    unsigned int nr)
{
	if (find_next_zero_bit(block->stale, first + nr, first) >= first + nr)
		return;
	block->zeroed = false;
	if (nr == SLOT_PAGES)
		bitmap_fill(block->stale, SLOT_PAGES);
	else
		bitmap_set(block->stale, first, nr);
}

/**
 * hpmmap_block_fill() - make pages of a block readable as zero
 * @owner: whose store it is in, locked; or who alone knows it
 * @block: the block
 * @first: first page
 * @nr: number of pages
 *
 * Pages that are not stale are left alone, and so is a block of the pools with a memory
 * error.
 *
 * Return: 0, or -ENOMEM where Linux has no page to give.
 */
int hpmmap_block_fill(struct hpmmap_owner *owner, struct hpmmap_block *block,
		      unsigned int first, unsigned int nr)
{
	int cookie = srcu_read_lock(&hpmmap_touch_srcu), ret = 0;
	unsigned int end = first + nr;
	unsigned int i = first;

	if (block->folio && unlikely(hpmmap_block_is_hurt(block)))
		goto out;
	if (block->folio && nr == SLOT_PAGES &&
	    bitmap_full(block->stale, SLOT_PAGES)) {
		hpmmap_block_clear(owner, block);
		goto out;
	}
	for_each_set_bit_from(i, block->stale, end) {
		struct page *page = hpmmap_block_page(block, i);

		if (!page) {
			if (!hpmmap_linux_page_alloc(owner, block, i)) {
				ret = -ENOMEM;
				break;
			}
		} else if (!block->zeroed) {
			/* It may be mapped. */
			hpmmap_clear_words(page_address(page), PAGE_SIZE / sizeof(u64));
			atomic_long_inc(&owner->nr_cleared);
		}
		clear_bit(i, block->stale);
	}
out:
	srcu_read_unlock(&hpmmap_touch_srcu, cookie);
	return ret;
}

/**
 * hpmmap_block_write() - give a fresh page of a block contents
 * @block: the block; nobody else uses the page yet
 * @i: which page
 * @from: a page of the kernel's memory
 *
 * Return: 0, or -EIO where a memory error is in the block.
 */
int hpmmap_block_write(struct hpmmap_block *block, unsigned int i,
		       const void *from)
{
	int cookie = srcu_read_lock(&hpmmap_touch_srcu);
	bool lost = hpmmap_block_is_lost(block);

	if (!lost)
		memcpy(page_address(hpmmap_block_page(block, i)), from,
		       PAGE_SIZE);
	srcu_read_unlock(&hpmmap_touch_srcu, cookie);
	return lost ? -EIO : 0;
}

/* False if there is a memory error in what was to be read. */
static bool page_copy(struct page *to, struct page *from)
{
	if (!copy_mc_to_kernel(page_address(to), page_address(from), PAGE_SIZE))
		return true;
	/* Not at once: who copies holds locks. */
	memory_failure_queue(page_to_pfn(from), 0);
	return false;
}

/*
 * Copies a block as a whole, without a look at each page. False where something is out of the
 * ordinary, and nothing is said of what @to has.
 */
static bool whole_copy(struct hpmmap_block *to, const struct hpmmap_block *from)
{
	size_t at = 0;

	if (!to->folio || !from->folio || from->draft || !has_avx() ||
	    !bitmap_empty(from->stale, SLOT_PAGES) || hpmmap_block_is_hurt(to) ||
	    hpmmap_block_is_hurt(from))
		return false;
	while (at < SLOT_SIZE && copy_streaming_avx(folio_address(to->folio) + at,
						    folio_address(from->folio) + at, CLEAR_PIECE)) {
		at += CLEAR_PIECE;
		cond_resched();
	}
	return at == SLOT_SIZE;
}

/**
 * hpmmap_block_copy() - copy pages from one block to another
 * @owner: of @to; its store is locked, as is that of the owner of @from
 * @to: where to
 * @to_page: first page there
 * @from: where from
 * @from_page: first page there
 * @nr: number of pages
 *
 * Stale pages are not copied. If a memory error is in @from, all of @to is lost, too: an
 * access to it is answered by SIGBUS.
 *
 * Return: 0, or -ENOMEM where Linux has no page to give.
 */
int hpmmap_block_copy(struct hpmmap_owner *owner, struct hpmmap_block *to,
		       unsigned int to_page, struct hpmmap_block *from,
		       unsigned int from_page, unsigned int nr)
{
	int cookie = srcu_read_lock(&hpmmap_touch_srcu), ret = 0;
	bool lost = hpmmap_block_is_lost(from) || hpmmap_block_is_hurt(to);
	unsigned int i = 0;

	if (nr == SLOT_PAGES && whole_copy(to, from)) {
		bitmap_zero(to->stale, SLOT_PAGES);
		i = nr;
	}
	for (; i < nr; i++) {
		struct page *src = hpmmap_block_page(from, from_page + i);
		struct page *dst = own_page(to, to_page + i);

		if (test_bit(from_page + i, from->stale))
			continue;
		if (!dst)
			dst = hpmmap_linux_page_alloc(owner, to, to_page + i);
		if (!dst) {
			ret = -ENOMEM;
			break;
		}
		if (unlikely(lost || !page_copy(dst, src)))
			to->lost = true;
		clear_bit(to_page + i, to->stale);
	}
	srcu_read_unlock(&hpmmap_touch_srcu, cookie);
	return ret;
}

/* All of a page, as far as no memory error is found in it. */
static bool page_is_zero(struct page *page)
{
	u64 *p = page_address(page), *end = p + PAGE_SIZE / sizeof(*p), word;
	bool zero = false;

	asm volatile("1:	mov	(%1), %2\n"
		     "2:	or	8(%1), %2\n"
		     "3:	or	16(%1), %2\n"
		     "4:	or	24(%1), %2\n"
		     "	jnz	5f\n"
		     "	add	$32, %1\n"
		     "	cmp	%3, %1\n"
		     "	jne	1b\n"
		     "	mov	$1, %0\n"
		     "5:\n"
		     MCE_SAFE(1b, 5b) MCE_SAFE(2b, 5b) MCE_SAFE(3b, 5b) MCE_SAFE(4b, 5b)
		     : "+q" (zero), "+r" (p), "=&r" (word) : "r" (end) : "memory", "cc");
	return zero;
}

/* Is a page zero, or means nothing? Not where a memory error is in it. */
bool hpmmap_block_is_zero(struct hpmmap_block *block, unsigned int i)
{
	int cookie = srcu_read_lock(&hpmmap_touch_srcu);
	bool ret = test_bit(i, block->stale) ||
		   (!hpmmap_block_is_lost(block) && page_is_zero(hpmmap_block_page(block, i)));

	srcu_read_unlock(&hpmmap_touch_srcu, cookie);
	return ret;
}

/**
 * hpmmap_block_read() - what a page has
 * @block: its block, of which nothing changes meanwhile
 * @i: which
 * @buf: a page
 *
 * Return: 1 if it has contents, now in @buf, 0 if it is zero, or not there, or -EFAULT after a
 * memory error.
 */
int hpmmap_block_read(struct hpmmap_block *block, unsigned int i, void *buf)
{
	struct page *page = NULL;
	int ret = 0, cookie;

	if (!test_bit(i, block->stale))
		page = hpmmap_block_page(block, i);
	if (!page)
		return 0;
	cookie = srcu_read_lock(&hpmmap_touch_srcu);
	if (hpmmap_block_is_lost(block) ||
	    copy_mc_to_kernel(buf, page_address(page), PAGE_SIZE))
		ret = -EFAULT;
	srcu_read_unlock(&hpmmap_touch_srcu, cookie);
	/* It may be news. */
	if (ret && !hpmmap_block_is_lost(block))
		memory_failure_queue(page_to_pfn(page), 0);
	return ret ? ret : !!memchr_inv(buf, 0, PAGE_SIZE);
}

/* Does only the module refer to the ordinary pages of a block? */
bool hpmmap_block_linux_idle(const struct hpmmap_block *block)
{
	struct page *page;
	unsigned int i;

	hpmmap_for_each_linux_page(block, i, page)
		if (!hpmmap_linux_page_idle(page))
			return false;
	return true;
}

/*
 * More references than the module's and those of entries? An entry has its own
 * before it counts, and afterwards: one that comes has to be counted before the
 * references are, one that goes after them. In doubt there is a pin.
 */
static bool has_more_refs(struct folio *folio, int (*mapcount)(struct folio *))
{
	int before = mapcount(folio), refs;

	smp_rmb();
	refs = folio_ref_count(folio);
	smp_rmb();
	return refs > 1 + min(before, mapcount(folio));
}

/* An entry of 1 GB is in no reverse map. */
static int entries_2m(struct folio *folio)
{
	return folio_entire_mapcount(folio) + hpmmap_folio_in_gigabyte(folio);
}

static int entries(struct folio *folio)
{
	return compat_folio_mapcount(folio) +
	       (folio_test_large(folio) && hpmmap_folio_in_gigabyte(folio));
}

static bool folio_is_pinned(struct folio *folio)
{
	/* Counting the entries of 4 KB takes its time on kernels before 6.7. */
	if (folio_test_large(folio) && !has_more_refs(folio, entries_2m))
		return false;
	return has_more_refs(folio, entries);
}

/**
 * hpmmap_block_is_pinned() - does somebody but page tables refer to it?
 * @block: the block
 */
bool hpmmap_block_is_pinned(struct hpmmap_block *block)
{
	struct page *page;
	unsigned int i;

	if (block->folio)
		return folio_is_pinned(block->folio);
	/* To a bad page of Linux that may be Linux itself, for good. */
	hpmmap_for_each_linux_page(block, i, page)
		if (!PageHWPoison(page) && folio_is_pinned(page_folio(page)))
			return true;
	return false;
}

/**
 * hpmmap_block_reset() - no store has a block any more
 * @block: of the pools, to which only the module refers; its contents stay as they are
 *
 * hpmmap_pool_free() can have it then.
 */
void hpmmap_block_reset(struct hpmmap_block *block)
{
	hpmmap_folio_detach(block->folio);
	block->lost = false;
	block->zeroed &= hpmmap_pages_are(block->stale, true);
	bitmap_fill(block->stale, SLOT_PAGES);
	bitmap_zero(block->reuse, SLOT_PAGES);
	block->reuse_id = 0;
	/* It has no other user. */
	if (atomic_read(&block->users))
		atomic_dec(&block->users);
}

/* The same, and it is added to a list for hpmmap_pool_free(). */
void hpmmap_block_free(struct hpmmap_block *block, struct list_head *freed)
{
	hpmmap_block_reset(block);
	list_add_tail(&block->link, freed);
}
