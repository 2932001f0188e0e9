/* SPDX-License-Identifier: GPL-2.0 */
/* Memory errors in files. */
#ifndef _HPMMAP_FS_BAD_H
#define _HPMMAP_FS_BAD_H

#include "as/failure.h"

extern const struct hpmmap_failure_files hpmmap_fs_failure;

#endif /* _HPMMAP_FS_BAD_H */
