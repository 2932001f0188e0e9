/* SPDX-License-Identifier: GPL-2.0 */
/* Ordinary pages that stand in for blocks. */
#ifndef _HPMMAP_MEM_BLOCK_LINUX_PAGE_H
#define _HPMMAP_MEM_BLOCK_LINUX_PAGE_H

#include <linux/types.h>

struct folio;
struct hpmmap_block;
struct hpmmap_owner;
struct llist_head;
struct page;

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
void hpmmap_folio_detach(struct folio *folio);
bool hpmmap_linux_page_idle(struct page *page);
struct page *hpmmap_linux_page_alloc(struct hpmmap_owner *owner,
				     struct hpmmap_block *block, unsigned int i);

#endif /* _HPMMAP_MEM_BLOCK_LINUX_PAGE_H */
