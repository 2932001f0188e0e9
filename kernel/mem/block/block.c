// SPDX-License-Identifier: GPL-2.0
/*
 * One block: its struct pages, its contents, and the references to it.
 *
 * A pool block is an order-9 folio of which the module holds one reference.
 * Page-table entries and pins (devices, ptrace, pipes) hold one each, so nothing
 * else uses the block exactly when the count is back to one. It must never
 * reach zero: that would free offlined memory into Linux's allocator.
 */
#include <asm/fpu/api.h>

#include "hpmmap.h"
#include "mem/block/block.h"
#include "mem/block/linux_page.h"

DEFINE_MUTEX(hpmmap_poison_mutex);
DEFINE_SRCU(hpmmap_touch_srcu);

/* Cleared without a pause, in bytes: some 10 us. */
#define CLEAR_PIECE (128UL << 10)

/* Up to this many pages are zeroed one by one instead of the whole block. */
#define CLEAN_MOST (SLOT_PAGES / 4)

static void page_init(struct page *page, unsigned long pfn, int nid)
{
	memset(page, 0, sizeof(*page));
	/*
	 * ZONE_NORMAL whatever it was: with ZONE_MOVABLE a long-term pin would
	 * try to migrate the page for ever.
	 */
	set_page_links(page, ZONE_NORMAL, nid, pfn);
	atomic_set(&page->_mapcount, -1);
	page_cpupid_reset_last(page);
	INIT_LIST_HEAD(&page->lru);
}

/*
 * Makes a folio of 2 MB of offline memory, for @block, which is zeroed. @pfn: its first page,
 * aligned to 2 MB. The struct pages of offline memory mean nothing to Linux, which initialises
 * them again when the memory is set online.
 */
void hpmmap_block_prepare(struct hpmmap_block *block, unsigned long pfn, int nid)
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

/* hpmmap_block_attach() for ordinary pages. */
void hpmmap_block_attach_linux(struct hpmmap_block *block, struct address_space *mapping)
{
	pgoff_t index = block->slot << SLOT_ORDER;
	struct page *page;
	unsigned int i;

	hpmmap_for_each_linux_page(block, i, page) {
		page_folio(page)->mapping = mapping;
		page_folio(page)->index = index + i;
	}
}

/* The block's own page, even if its contents are still in the block behind its draft. */
static struct page *own_page(struct hpmmap_block *block, unsigned int i)
{
	return block->folio ? folio_page(block->folio, i) : block->pages[i];
}

/*
 * Page @i of a block; of a draft the one that has the contents. NULL if ordinary memory has no
 * page there yet.
 */
struct page *hpmmap_block_page(struct hpmmap_block *block, unsigned int i)
{
	if (unlikely(block->draft) && test_bit(i, block->draft->left))
		block = block->draft->behind;
	return own_page(block, i);
}

/*
 * Clears with stores that bypass the caches: a block is as large as many second-level caches, and
 * their contents are of more use than zeros. bench/clear compares the ways to clear.
 */
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

/* The instructions at which a memory error may be found, and where execution goes on then. */
#define MCE_SAFE(_label, _to) _ASM_EXTABLE_TYPE(_label, _to, EX_TYPE_DEFAULT_MCE_SAFE)

/* Copies in the same way; false: the source has a memory error. */
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

/* Kept short: the FPU cannot be preempted. */
static void zero_piece(struct hpmmap_block *block, size_t at)
{
	void *addr = folio_address(block->folio) + at;

	if (unlikely(folio_test_has_hwpoisoned(block->folio)))
		return;
	if (likely(has_avx()))
		clear_streaming_avx(addr, CLEAR_PIECE);
	else
		hpmmap_clear_words(addr, CLEAR_PIECE / sizeof(u64));
}

/*
 * Writes zeros to all of a pool block that is invisible to others, unless it has a memory
 * error. The caller takes care of its stale bits. @lock: NULL, or held while a piece is
 * zeroed, for some 10 us. @stop: protected by @lock: end before the next piece, and do not
 * look at @block again. Returns whether all of it is zero.
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

/* The same without a way to stop it. */
void hpmmap_block_zero(struct hpmmap_block *block)
{
	hpmmap_block_zero_unless(block, NULL, NULL);
}

/*
 * Zeroes a pool block that is given up, and invisible to others, if few pages need it. Returns
 * whether all of it is zero, and stale. Otherwise nothing was done: zeroing the whole block is
 * as cheap.
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

/* Zeroes a pool block, invisible to others, for its new owner, if it is not zero. */
void hpmmap_block_clear(struct hpmmap_owner *owner, struct hpmmap_block *block)
{
	if (!block->zeroed) {
		hpmmap_block_zero(block);
		atomic_long_add(SLOT_PAGES, &owner->nr_cleared);
	}
	hpmmap_block_show(block);
}

void hpmmap_block_set_stale(struct hpmmap_block *block, unsigned int first, unsigned int nr)
{
	if (find_next_zero_bit(block->stale, first + nr, first) >= first + nr)
		return;
	block->zeroed = false;
	if (nr == SLOT_PAGES)
		bitmap_fill(block->stale, SLOT_PAGES);
	else
		bitmap_set(block->stale, first, nr);
}

/*
 * Makes pages of a block readable as zero. Pages that are not stale, and pool blocks with a
 * memory error, are left alone. The owner's store has the block and is locked, or the block is
 * invisible to others. Returns 0, or -ENOMEM if an ordinary page cannot be allocated.
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

/*
 * Fills a page of a block, which is not used yet, with a page of kernel memory. Returns 0, or
 * -EIO if the block has a memory error.
 */
int hpmmap_block_write(struct hpmmap_block *block, unsigned int i, const void *from)
{
	int cookie = srcu_read_lock(&hpmmap_touch_srcu);
	bool lost = hpmmap_block_is_lost(block);

	if (!lost)
		memcpy(page_address(hpmmap_block_page(block, i)), from,
		       PAGE_SIZE);
	srcu_read_unlock(&hpmmap_touch_srcu, cookie);
	return lost ? -EIO : 0;
}

/* False if the source has a memory error. */
static bool page_copy(struct page *to, struct page *from)
{
	if (!copy_mc_to_kernel(page_address(to), page_address(from), PAGE_SIZE))
		return true;
	/* Queued, since the caller holds locks. */
	memory_failure_queue(page_to_pfn(from), 0);
	return false;
}

/*
 * Copies a whole block without looking at each page. False: something is out of the ordinary, and
 * the contents of @to are undefined.
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

/*
 * Copies pages from one block to another; stale ones are left out. @owner: of @to. The stores
 * of both are locked. If @from has a memory error all of @to is lost, too: an access to it
 * gives SIGBUS. Returns 0, or -ENOMEM if an ordinary page cannot be allocated.
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

/* Is the whole page zero? False if a memory error is found in it. */
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

/* Is the page zero or stale? False if it has a memory error. */
bool hpmmap_block_is_zero(struct hpmmap_block *block, unsigned int i)
{
	int cookie = srcu_read_lock(&hpmmap_touch_srcu);
	bool ret = test_bit(i, block->stale) ||
		   (!hpmmap_block_is_lost(block) && page_is_zero(hpmmap_block_page(block, i)));

	srcu_read_unlock(&hpmmap_touch_srcu, cookie);
	return ret;
}

/*
 * Reads a page of a block that does not change meanwhile. Returns 1 with the contents in @buf,
 * a page; 0 if the page is zero or missing; -EFAULT after a memory error.
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
	/* The error may be new. */
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
 * Has it more references than the module's and those of entries? An entry holds its reference for
 * longer than it is counted. The smaller of two counts is taken: an entry that comes or goes
 * meanwhile looks like a pin.
 */
static bool has_more_refs(struct folio *folio, int (*mapcount)(struct folio *))
{
	int before = mapcount(folio), refs;

	smp_rmb();
	refs = folio_ref_count(folio);
	smp_rmb();
	return refs <= 0 || refs > 1 + min(before, mapcount(folio));
}

/*
 * An entry of 1 GB is in no reverse map. A reference may change from one count to the other meanwhile: it
 * is counted once at most.
 */
static int with_gigabytes(struct folio *folio, int (*mapcount)(struct folio *))
{
	atomic_long_t *gigabytes = hpmmap_folio_gigabytes(folio);
	long before = atomic_long_read(gigabytes);
	int nr;

	smp_rmb();
	nr = mapcount(folio);
	smp_rmb();
	return nr + min(before, atomic_long_read(gigabytes));
}

static int entire(struct folio *folio)
{
	return folio_entire_mapcount(folio);
}

static int entries_2m(struct folio *folio)
{
	return with_gigabytes(folio, entire);
}

static int all(struct folio *folio)
{
	return compat_folio_mapcount(folio);
}

static int entries(struct folio *folio)
{
	return folio_test_large(folio) ? with_gigabytes(folio, all) : all(folio);
}

static bool folio_is_pinned(struct folio *folio)
{
	/* Before 6.7, counting the entries of 4 KB takes time. */
	if (folio_test_large(folio) && !has_more_refs(folio, entries_2m))
		return false;
	return has_more_refs(folio, entries);
}

/* Does anything but page tables and the module refer to it? */
bool hpmmap_block_is_pinned(struct hpmmap_block *block)
{
	struct page *page;
	unsigned int i;

	if (block->folio)
		return folio_is_pinned(block->folio);
	/* Linux may keep a reference to a bad ordinary page for good. */
	hpmmap_for_each_linux_page(block, i, page)
		if (!PageHWPoison(page) && folio_is_pinned(page_folio(page)))
			return true;
	return false;
}

/*
 * No store has a pool block any more, and only the module refers to it: hpmmap_pool_free() can
 * have it. Its contents stay as they are.
 */
void hpmmap_block_reset(struct hpmmap_block *block)
{
	hpmmap_folio_detach(block->folio);
	block->lost = false;
	/* Mostly the first word has the answer. */
	block->zeroed = block->zeroed && !~block->stale[0] && hpmmap_pages_are(block->stale, true);
	bitmap_fill(block->stale, SLOT_PAGES);
	hpmmap_pages_clear(block->reuse);
	block->reuse_id = 0;
	/* It has no other user. */
	if (atomic_read(&block->users))
		atomic_dec(&block->users);
}

/*
 * A run becomes single blocks, all of them stale. Those behind the first are linked behind it: where
 * it is in a list, they are.
 */
void hpmmap_run_unfold(struct hpmmap_block *first)
{
	unsigned long i;

	for (i = 0; i < RUN_BLOCKS; i++) {
		first[i].state = HPMMAP_BLOCK_HELD;
		first[i].account = first->account;
		first[i].slot = first->slot == NO_SLOT ? NO_SLOT : first->slot + i;
		atomic_set(&first[i].users, 1);
		if (i)
			list_add(&first[i].link, &first[i - 1].link);
	}
	first->run = false;
}
