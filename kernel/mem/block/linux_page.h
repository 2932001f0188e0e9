/* SPDX-License-Identifier: GPL-2.0 */
/* Ordinary pages that stand in for blocks. */
#ifndef _HPMMAP_MEM_BLOCK_LINUX_PAGE_H
#define _HPMMAP_MEM_BLOCK_LINUX_PAGE_H

struct hpmmap_owner;

/* What the use of a folio leaves behind, besides its mapping. */
#define FOLIO_USED (BIT(PG_dirty) | BIT(PG_referenced) | BIT(PG_active))

/* Of folios of 2 MB whose struct pages follow each other. */
static inline struct folio *hpmmap_folio_nth(struct folio *first, unsigned long i)
{
	return (struct folio *)((struct page *)first + (i << SLOT_ORDER));
}

/* Removes all traces of a folio's use by a context; only the module refers to it. */
static inline void hpmmap_folio_detach(struct folio *folio)
{
	folio->mapping = NULL;
	if (unlikely(*folio_flags(folio, 0) & FOLIO_USED))
		set_mask_bits(folio_flags(folio, 0), FOLIO_USED, 0);
}

int hpmmap_linux_page_init(void);
void hpmmap_linux_page_exit(void);
struct hpmmap_block *hpmmap_block_alloc_linux(int spare);
void hpmmap_block_empty(struct hpmmap_block *block);
void hpmmap_block_bury(struct llist_head *graves);
void hpmmap_block_clear_linux(struct hpmmap_owner *owner,
			      struct hpmmap_block *block, unsigned int first,
			      unsigned int nr);
void hpmmap_block_drop_linux(struct hpmmap_owner *owner, struct hpmmap_block *block,
			     unsigned int first, unsigned int nr);
bool hpmmap_block_may_be_few(const struct hpmmap_owner *owner, unsigned long pages,
			     unsigned long slots);
void hpmmap_block_few_end(struct hpmmap_owner *owner, struct hpmmap_block *block);
bool hpmmap_linux_page_idle(struct page *page);
struct page *hpmmap_linux_page_alloc(struct hpmmap_owner *owner,
				     struct hpmmap_block *block, unsigned int i);

#endif /* _HPMMAP_MEM_BLOCK_LINUX_PAGE_H */
