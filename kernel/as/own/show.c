// SPDX-License-Identifier: GPL-2.0
/*
 * /proc/hpmmap: what each context has. See docs/sysfs.md.
 */
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "hpmmap.h"
#include "mem/block/account.h"
#include "as/own/ctx.h"
#include "as/own/run.h"
#include "as/own/show.h"

/* Owner and root, by the credentials of the opener: a program of other rights may read it. */
static bool may_see(const struct seq_file *m, kuid_t owner)
{
	return uid_eq(m->file->f_cred->fsuid, owner) ||
	       file_ns_capable(m->file, &init_user_ns, CAP_DAC_READ_SEARCH);
}

static int show_ctx(struct seq_file *m, void *v)
{
	struct hpmmap_ctx *ctx = v;
	kuid_t owner;

	if (!READ_ONCE(ctx->shown))
		return SEQ_SKIP;
	seq_printf(m, "id %llu\n", ctx->id);
	owner = hpmmap_account_uid_at(&ctx->owner.account);
	if (!may_see(m, owner))
		return 0;
#define SHOW(_name, _value) \
	seq_printf(m, _name " %llu\n", (u64)(_value))
	SHOW("pid", ctx->pid);
	SHOW("job", ctx->job->id);
	SHOW("uid", from_kuid(&init_user_ns, owner));
	SHOW("strict", ctx->job->strict);
	SHOW("page_size", ctx->job->large ? HPMMAP_LARGE_BYTES : HPMMAP_BLOCK_BYTES);
	SHOW("held_bytes", atomic_long_read(&ctx->nr_held) << SLOT_SHIFT);
	SHOW("reuse_bytes", READ_ONCE(ctx->reuse.nr) << SLOT_SHIFT);
	SHOW("image_bytes", READ_ONCE(ctx->image_bytes));
	SHOW("linux_bytes", atomic_long_read(&ctx->owner.nr_linux_pages) << PAGE_SHIFT);
	SHOW("few_bytes", atomic_long_read(&ctx->owner.nr_few_pages) << PAGE_SHIFT);
	SHOW("fallbacks", atomic_long_read(&ctx->nr_fallbacks));
	SHOW("faults", atomic_long_read(&ctx->nr_faults));
	SHOW("faults_kernel", atomic_long_read(&ctx->nr_faults_kernel));
	SHOW("pins_waiting", atomic_long_read(&ctx->nr_pinned));
	SHOW("cleared_bytes", atomic_long_read(&ctx->owner.nr_cleared) << PAGE_SHIFT);
	SHOW("placed_runs", READ_ONCE(ctx->stats.runs));
	SHOW("entries_1g", atomic_long_read(&ctx->stats.entries_1g));
	SHOW("run_bytes", hpmmap_runs_count(ctx, 0, slot_of(TASK_SIZE_MAX)) << SLOT_SHIFT);
	SHOW("fork_copied_bytes", atomic_long_read(&ctx->nr_copied) << PAGE_SHIFT);
#undef SHOW
	return 0;
}

/* A position is a number: contexts that come and go meanwhile change no other's. */
static void *show_start(struct seq_file *m, loff_t *pos)
{
	struct hpmmap_ctx *ctx = hpmmap_ctx_from(*pos);

	if (ctx)
		*pos = ctx->id;
	return ctx;
}

static void *show_next(struct seq_file *m, void *v, loff_t *pos)
{
	struct hpmmap_ctx *ctx = hpmmap_ctx_next(v);

	*pos = ctx ? ctx->id : *pos + 1;
	return ctx;
}

static void show_stop(struct seq_file *m, void *v)
{
	if (v)
		hpmmap_ctx_put(v);
}

static const struct seq_operations show_ops = {
	.start = show_start,
	.next = show_next,
	.stop = show_stop,
	.show = show_ctx,
};

int hpmmap_show_init(void)
{
	return proc_create_seq("hpmmap", 0444, NULL, &show_ops) ? 0 : -ENOMEM;
}

void hpmmap_show_exit(void)
{
	remove_proc_entry("hpmmap", NULL);
}
