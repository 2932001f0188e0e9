/* SPDX-License-Identifier: GPL-2.0 */
/* What /proc/hpmmap shows. */
#ifndef _HPMMAP_AS_OWN_SHOW_H
#define _HPMMAP_AS_OWN_SHOW_H

int hpmmap_show_init(void);
void hpmmap_show_exit(void);

#endif /* _HPMMAP_AS_OWN_SHOW_H */
