/* SPDX-License-Identifier: GPL-2.0 */
/* Attachments: mappings of another address space's memory. */
#ifndef _HPMMAP_AS_VIEW_ATTACH_H
#define _HPMMAP_AS_VIEW_ATTACH_H

struct hpmmap_grant;
struct hpmmap_window;

/* Of hpmmap_attach() */
#define HPMMAP_ATTACH_READONLY	(1U << 0)
#define HPMMAP_ATTACH_POPULATE	(1U << 1)

unsigned long hpmmap_attach(struct hpmmap_window *win, struct hpmmap_grant *grant,
			    unsigned long start, unsigned long len,
			    unsigned long at, unsigned int flags);
int hpmmap_detach(unsigned long addr);
int hpmmap_detach_all(const struct hpmmap_grant *grant);
int hpmmap_viewers_init(void);
void hpmmap_viewers_exit(void);

#endif /* _HPMMAP_AS_VIEW_ATTACH_H */
