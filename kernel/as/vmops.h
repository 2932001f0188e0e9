/* SPDX-License-Identifier: GPL-2.0 */
/* What Linux asks of our mappings. */
#ifndef _HPMMAP_AS_VMOPS_H
#define _HPMMAP_AS_VMOPS_H

int hpmmap_vmops_init(void);

#endif /* _HPMMAP_AS_VMOPS_H */
