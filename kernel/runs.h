/* SPDX-License-Identifier: GPL-2.0 */
/* Physical runs of pinned memory. */
#ifndef _HPMMAP_RUNS_H
#define _HPMMAP_RUNS_H

int hpmmap_runs_pin(struct hpmmap_runs *arg, struct llist_head *list);
void hpmmap_runs_unpin(struct llist_head *list);

#endif /* _HPMMAP_RUNS_H */
