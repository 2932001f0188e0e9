/* SPDX-License-Identifier: GPL-2.0 */
/* Memory errors in the pools, for who uses them. */
#ifndef _HPMMAP_AS_FAILURE_H
#define _HPMMAP_AS_FAILURE_H

int hpmmap_failure_init(void);
void hpmmap_failure_exit(void);

#endif /* _HPMMAP_AS_FAILURE_H */
