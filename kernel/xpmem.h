/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _HPMMAP_XPMEM_H
#define _HPMMAP_XPMEM_H

int hpmmap_xpmem_init(void);
void hpmmap_xpmem_exit(void);

#endif /* _HPMMAP_XPMEM_H */
