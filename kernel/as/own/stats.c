// SPDX-License-Identifier: GPL-2.0
/*
 * What happened to a job.
 *
 * A context counts what most calls count, under locks that it holds anyway. Its counts are added
 * to the job's when the address space is torn down, or when the job's are read. The job counts
 * faults, fallbacks and waits, under its lock.
 */
#include "hpmmap.h"
#include "mem/block/account.h"
#include "mem/pool/pool.h"
#include "as/own/ctx.h"
#include "as/own/job.h"
#include "as/own/stats.h"
#include "trace.h"

static const char *const fault_names[HPMMAP_NR_FAULTS] = {
	[HPMMAP_FAULT_FORK] = "fork",
	[HPMMAP_FAULT_RESERVED] = "reserved",
	[HPMMAP_FAULT_FIRST_TOUCH] = "first_touch",
	[HPMMAP_FAULT_LINUX] = "linux",
	[HPMMAP_FAULT_CHANGING] = "changing",
	[HPMMAP_FAULT_UNMAPPED] = "unmapped",
};

static const char *const fallback_names[HPMMAP_NR_FALLBACKS] = {
	[HPMMAP_FALLBACK_MMAP] = "mmap",
	[HPMMAP_FALLBACK_BRK] = "brk",
	[HPMMAP_FALLBACK_EXEC] = "exec",
	[HPMMAP_FALLBACK_BLOCK] = "block",
	[HPMMAP_FALLBACK_ASKED] = "asked",
};

static const char *const reason_names[HPMMAP_NR_REASONS] = {
	[HPMMAP_REASON_EXHAUSTED] = "exhausted",
	[HPMMAP_REASON_LIMIT] = "limit",
	[HPMMAP_REASON_OTHER] = "other",
};

static const char *const program_names[HPMMAP_NR_PROGRAM_KINDS] = {
	[HPMMAP_PROGRAM_REGISTERED] = "registered",
	[HPMMAP_PROGRAM_LEFT_OUT] = "left_out",
	[HPMMAP_PROGRAM_SECURE] = "secure",
	[HPMMAP_PROGRAM_32BIT] = "32bit",
	[HPMMAP_PROGRAM_FAILED] = "failed",
};

static const char *const limited_names[HPMMAP_NR_LIMITED] = {
	[HPMMAP_LIMITED_USER] = "user",
	[HPMMAP_LIMITED_DEFAULT] = "default",
	[HPMMAP_LIMITED_CGROUP] = "cgroup",
};

static const char *const stall_names[HPMMAP_NR_STALLS] = {
	[HPMMAP_STALL_CALLS] = "calls",
	[HPMMAP_STALL_ZEROING] = "zeroing",
	[HPMMAP_STALL_RECLAIM] = "reclaim",
	[HPMMAP_STALL_PINS] = "pins",
};

/* The first value above those of a bucket of struct hpmmap_latency. */
static u64 bucket_end(unsigned int i)
{
	if (!i)
		return 1ULL << HPMMAP_LATENCY_FIRST;
	i--;
	return (u64)(5 + i % 4) << (HPMMAP_LATENCY_FIRST + i / 4 - 2);
}

/* The counters of a job, zeroed, or NULL. */
struct hpmmap_totals *hpmmap_stats_alloc(void)
{
	struct hpmmap_totals *totals;

	totals = kzalloc(struct_size(totals, placed, nr_node_ids),
			 GFP_KERNEL_ACCOUNT);
	if (totals)
		totals->lowest_free = ULONG_MAX;
	return totals;
}

/* A process has taken a fault in memory of ours. */
void hpmmap_count_fault(struct hpmmap_ctx *ctx, unsigned long addr,
			enum hpmmap_fault why)
{
	unsigned long start = addr & PAGE_MASK, end = start + PAGE_SIZE;
	struct hpmmap_program *program = ctx->stats.program;
	struct hpmmap_totals *totals = ctx->job->totals;
	struct hpmmap_fault_range *range;

	spin_lock(&ctx->job->lock);
	totals->faults[why]++;
	program->faults++;
	program->faults_fork += why == HPMMAP_FAULT_FORK;
	program->faults_asked += why == HPMMAP_FAULT_RESERVED || why == HPMMAP_FAULT_FIRST_TOUCH ||
				 why == HPMMAP_FAULT_CHANGING;
	for (range = totals->ranges; range < totals->ranges + totals->nr_ranges; range++) {
		/* Neighbours within a block's size are one. */
		if (range->pid != ctx->pid || range->why != why ||
		    start > range->end + SLOT_SIZE || end + SLOT_SIZE < range->start)
			continue;
		range->start = min(range->start, start);
		range->end = max(range->end, end);
		range->nr++;
		goto out;
	}
	if (totals->nr_ranges < ARRAY_SIZE(totals->ranges)) {
		*range = (struct hpmmap_fault_range) {
			.start = start,
			.end = end,
			.nr = 1,
			.why = why,
			.pid = ctx->pid,
		};
		totals->nr_ranges++;
	} else {
		totals->nr_unlisted++;
	}
out:
	spin_unlock(&ctx->job->lock);
}

/* As things are now, which may be a moment later. */
static enum hpmmap_reason fallback_reason(struct hpmmap_ctx *ctx,
					  unsigned long bytes)
{
	struct hpmmap_account *account = hpmmap_account_get(&ctx->owner.account);
	unsigned long nr = DIV_ROUND_UP(bytes, SLOT_SIZE);
	bool full = hpmmap_account_full(account, nr);
	unsigned long free = hpmmap_account_free_all(account, &ctx->job->nodes, false);

	hpmmap_account_put(account);
	if (full)
		return HPMMAP_REASON_LIMIT;
	/* A range that begins within a slot needs one more. */
	if (free <= nr)
		return HPMMAP_REASON_EXHAUSTED;
	return HPMMAP_REASON_OTHER;
}

/* Ordinary memory is used instead of the pools'. */
void hpmmap_count_fallback(struct hpmmap_ctx *ctx, enum hpmmap_fallback what,
			   unsigned long bytes)
{
	enum hpmmap_reason reason = what == HPMMAP_FALLBACK_ASKED ?
				    HPMMAP_REASON_OTHER :
				    fallback_reason(ctx, bytes);
	struct hpmmap_totals *totals = ctx->job->totals;

	atomic_long_inc(&ctx->nr_fallbacks);
	spin_lock(&ctx->job->lock);
	totals->fallbacks[what]++;
	totals->reasons[reason]++;
	totals->fallback_bytes += bytes;
	ctx->stats.program->fallbacks++;
	spin_unlock(&ctx->job->lock);
	trace_hpmmap_fallback(ctx->id, bytes);
}

/* A call has failed because the pools have too little. */
void hpmmap_count_refusal(struct hpmmap_ctx *ctx)
{
	spin_lock(&ctx->job->lock);
	ctx->job->totals->refusals++;
	ctx->stats.program->refusals++;
	spin_unlock(&ctx->job->lock);
}

/* A call has failed because Linux had no memory either. */
void hpmmap_count_failure(struct hpmmap_ctx *ctx)
{
	spin_lock(&ctx->job->lock);
	ctx->job->totals->failures++;
	ctx->stats.program->refusals++;
	spin_unlock(&ctx->job->lock);
}

/* A process of a job has waited. The counters of two CPUs may differ. */
void hpmmap_count_stall(struct hpmmap_job *job, enum hpmmap_stall what,
			s64 ticks)
{
	struct hpmmap_stall_total *stall = &job->totals->stalls[what];

	ticks = max_t(s64, ticks, 0);
	spin_lock(&job->lock);
	stall->nr++;
	stall->ticks += ticks;
	stall->worst = max_t(u64, stall->worst, ticks);
	spin_unlock(&job->lock);
}

/* A context of a job holds more blocks than any before. */
void hpmmap_stats_peak(struct hpmmap_job *job, long nr)
{
	spin_lock(&job->lock);
	WRITE_ONCE(job->totals->peak_one, max(job->totals->peak_one, nr));
	spin_unlock(&job->lock);
}

/* A job has taken memory, and so many blocks are free on the nodes that it may come from. */
void hpmmap_count_lowest(struct hpmmap_job *job, unsigned long nr)
{
	struct hpmmap_totals *totals = job->totals;

	if (nr >= READ_ONCE(totals->lowest_free))
		return;
	spin_lock(&job->lock);
	totals->lowest_free = min(totals->lowest_free, nr);
	spin_unlock(&job->lock);
}

/* Memory was asked for by @nr whole gigabytes, of which @had are in one piece. */
void hpmmap_count_large(struct hpmmap_job *job, unsigned long nr,
			unsigned long had)
{
	spin_lock(&job->lock);
	job->totals->large_wanted += nr;
	job->totals->large_missed += nr - min(nr, had);
	spin_unlock(&job->lock);
}

/* A limit of @payer has refused a request. */
void hpmmap_count_limited(struct hpmmap_job *job, struct hpmmap_payer *payer)
{
	struct hpmmap_totals *totals = job->totals;

	spin_lock(&job->lock);
	totals->limited[hpmmap_payer_kind(payer, &totals->limited_cgroup)]++;
	spin_unlock(&job->lock);
}

/* Where a program's counters go; those that come too late share the last place. */
static struct hpmmap_program *program_of(struct hpmmap_totals *to,
					 const char *name)
{
	struct hpmmap_program *p;

	for (p = to->programs; p < to->programs + to->nr_programs; p++)
		if (!strcmp(p->name, name))
			return p;
	if (to->nr_programs < HPMMAP_NR_PROGRAMS - 1) {
		strscpy(p->name, name, sizeof(p->name));
		to->nr_programs++;
		return p;
	}
	to->nr_programs = HPMMAP_NR_PROGRAMS;
	return &to->programs[HPMMAP_NR_PROGRAMS - 1];
}

/*
 * A context counts for its job from here on, before it is published. That of a child has its
 * program.
 */
void hpmmap_stats_begin(struct hpmmap_ctx *ctx)
{
	struct hpmmap_job *job = ctx->job;
	char comm[TASK_COMM_LEN];

	get_task_comm(comm, current);
	spin_lock(&job->lock);
	if (!ctx->stats.program)
		ctx->stats.program = program_of(job->totals, comm);
	ctx->stats.program->address_spaces++;
	ctx->stats.program->forks += ctx->stats.forked;
	job->totals->address_spaces++;
	list_add_tail(&ctx->job_link, &job->contexts);
	spin_unlock(&job->lock);
}

static unsigned int bucket_of(u64 ticks)
{
	unsigned int high;

	if (ticks < 1ULL << HPMMAP_LATENCY_FIRST)
		return 0;
	if (ticks >> HPMMAP_LATENCY_LAST)
		return HPMMAP_LATENCY_BUCKETS - 1;
	high = __fls(ticks);
	/* The two bits below the highest. */
	return 1 + (high - HPMMAP_LATENCY_FIRST) * 4 + ((ticks >> (high - 2)) & 3);
}

/* The calls that a context keeps. Under the job's lock it may add one, and takes none away. */
static void add_calls(struct hpmmap_totals *to, const struct hpmmap_calls *calls)
{
	unsigned int i, nr = smp_load_acquire(&calls->nr);

	for (i = 0; i < nr; i++) {
		struct hpmmap_latency *latency = &to->calls[calls->call[i]];

		latency->ticks += calls->ticks[i];
		latency->worst = max_t(u64, latency->worst, calls->ticks[i]);
		latency->nr[bucket_of(calls->ticks[i])]++;
	}
}

/* The calls that a context keeps are counted by its job. */
void hpmmap_calls_count(struct hpmmap_ctx *ctx)
{
	lockdep_assert_held(&ctx->ops);
	spin_lock(&ctx->job->lock);
	add_calls(ctx->job->totals, &ctx->stats.calls);
	ctx->stats.calls.nr = 0;
	spin_unlock(&ctx->job->lock);
}

/* What a context counts itself. */
static void add_counters(struct hpmmap_totals *to, struct hpmmap_ctx *ctx)
{
	int i;

	add_calls(to, &ctx->stats.calls);
	for (i = 0; i < nr_node_ids; i++)
		to->placed[i] += READ_ONCE(ctx->placed[i]);
	to->remote += READ_ONCE(ctx->stats.remote);
	to->runs += READ_ONCE(ctx->stats.runs);
	to->entries_2m += atomic_long_read(&ctx->stats.entries_2m);
	to->entries_1g += atomic_long_read(&ctx->stats.entries_1g);
	to->splits_1g += atomic_long_read(&ctx->stats.splits_1g);
	to->joins_1g += atomic_long_read(&ctx->stats.joins_1g);
	to->entries_4k += atomic_long_read(&ctx->stats.entries_4k);
	to->faults_user += atomic_long_read(&ctx->nr_faults);
	to->faults_kernel += atomic_long_read(&ctx->nr_faults_kernel);
	to->copied += atomic_long_read(&ctx->nr_copied);
	to->cleared += atomic_long_read(&ctx->owner.nr_cleared);
}

/*
 * Leaves the counters of a context, which counts nothing any more and cannot be found, to its
 * job.
 */
void hpmmap_stats_fold(struct hpmmap_ctx *ctx)
{
	spin_lock(&ctx->job->lock);
	add_counters(ctx->job->totals, ctx);
	list_del(&ctx->job_link);
	spin_unlock(&ctx->job->lock);
}

/* What a job has counted, and its contexts: nothing twice, or not at all. */
static struct hpmmap_totals *job_sum(struct hpmmap_job *job)
{
	struct hpmmap_totals *sum = hpmmap_stats_alloc();
	struct hpmmap_ctx *ctx;

	if (!sum)
		return ERR_PTR(-ENOMEM);
	spin_lock(&job->lock);
	memcpy(sum, job->totals, struct_size(sum, placed, nr_node_ids));
	list_for_each_entry(ctx, &job->contexts, job_link) {
		add_counters(sum, ctx);
		sum->linux_pages += atomic_long_read(&ctx->owner.nr_linux_pages);
		sum->few_pages += atomic_long_read(&ctx->owner.nr_few_pages);
		sum->kept += READ_ONCE(ctx->reuse.nr);
		sum->pinned += atomic_long_read(&ctx->nr_pinned);
		sum->static_bytes += READ_ONCE(ctx->region.end) - READ_ONCE(ctx->region.start);
		sum->static_used += READ_ONCE(ctx->region.used);
	}
	spin_unlock(&job->lock);
	return sum;
}

/* Files of a job in sysfs. */

static ssize_t show_stat(struct hpmmap_job *job,
			 const struct hpmmap_totals *sum, char *buf)
{
	int at = 0, i;

	hpmmap_pool_gather();
#define LINE(name, value) \
	(at += sysfs_emit_at(buf, at, name " %llu\n", (u64)(value)))
#define LINES(prefix, names, values) \
	for (i = 0; i < ARRAY_SIZE(names); i++) \
		at += sysfs_emit_at(buf, at, prefix "_%s %llu\n", names[i], \
				    (u64)(values)[i])

	LINE("uid", from_kuid(&init_user_ns, hpmmap_account_user(job->account)->uid));
	LINE("strict", job->strict);
	LINE("page_size", job->large ? HPMMAP_LARGE_BYTES : HPMMAP_BLOCK_BYTES);
	LINE("tick_khz", tsc_khz);
	LINE("processes", atomic_long_read(&job->nr_members));
	LINE("processes_total", atomic_long_read(&job->nr_members_total));
	LINE("address_spaces_total", sum->address_spaces);
	for (i = 0; i < HPMMAP_NR_PROGRAM_KINDS; i++)
		at += sysfs_emit_at(buf, at, "programs_%s %lu\n",
				    program_names[i],
				    atomic_long_read(&job->nr_programs[i]));
	LINE("held_bytes",
	     (u64)atomic_long_read(&job->tally->held) << SLOT_SHIFT);
	LINE("peak_bytes",
	     (u64)atomic_long_read(&job->tally->peak) << SLOT_SHIFT);
	LINE("peak_one_bytes", (u64)sum->peak_one << SLOT_SHIFT);
	LINE("reuse_bytes", (u64)sum->kept << SLOT_SHIFT);
	LINE("linux_bytes", (u64)sum->linux_pages << PAGE_SHIFT);
	LINE("few_bytes", (u64)sum->few_pages << PAGE_SHIFT);
	LINE("pins_waiting", sum->pinned);
	LINE("static_bytes", sum->static_bytes);
	LINE("static_used_bytes", sum->static_used);
	if (sum->lowest_free != ULONG_MAX)
		LINE("lowest_free_bytes", (u64)sum->lowest_free << SLOT_SHIFT);
	LINE("large_wanted_bytes", sum->large_wanted << (SLOT_SHIFT + LARGE_ORDER));
	LINE("large_missed_bytes", sum->large_missed << (SLOT_SHIFT + LARGE_ORDER));
	LINES("limited", limited_names, sum->limited);
	if (sum->limited_cgroup)
		LINE("limited_cgroup_id", sum->limited_cgroup);
	LINE("refusals", sum->refusals);
	LINE("failures", sum->failures);
	LINE("entries_2m", sum->entries_2m);
	LINE("entries_1g", sum->entries_1g);
	LINE("splits_1g", sum->splits_1g);
	LINE("joins_1g", sum->joins_1g);
	LINE("entries_4k", sum->entries_4k);
	LINE("faults", sum->faults_user);
	LINE("faults_kernel", sum->faults_kernel);
	LINES("faults", fault_names, sum->faults);
	LINE("fallback_bytes", sum->fallback_bytes);
	LINES("fallbacks", fallback_names, sum->fallbacks);
	LINES("fallbacks", reason_names, sum->reasons);
	for (i = 0; i < HPMMAP_NR_STALLS; i++)
		at += sysfs_emit_at(buf, at, "stalls_%s %llu\nstalls_%s_ticks %llu\nstalls_%s_worst_ticks %llu\n",
				    stall_names[i], sum->stalls[i].nr,
				    stall_names[i], sum->stalls[i].ticks,
				    stall_names[i], sum->stalls[i].worst);
	LINE("fork_copied_bytes", (u64)sum->copied << PAGE_SHIFT);
	LINE("cleared_bytes", (u64)sum->cleared << PAGE_SHIFT);
	LINE("placed_remote_bytes", (u64)sum->remote << SLOT_SHIFT);
	LINE("placed_runs", sum->runs);
	/* Whole lines, as many as there is room for: some seventy nodes. */
	for (i = 0; i < nr_node_ids && at < PAGE_SIZE - 64; i++)
		if (sum->placed[i])
			at += sysfs_emit_at(buf, at, "placed_bytes_node%d %llu\n",
					    i, (u64)sum->placed[i] << SLOT_SHIFT);
	return at;
#undef LINE
#undef LINES
}

static ssize_t show_fault_ranges(const struct hpmmap_totals *sum, char *buf)
{
	int at = 0, i;

	for (i = 0; i < sum->nr_ranges; i++) {
		const struct hpmmap_fault_range *range = &sum->ranges[i];

		at += sysfs_emit_at(buf, at, "%d %#lx %#lx %s %lu\n",
				    range->pid, range->start, range->end,
				    fault_names[range->why], range->nr);
	}
	if (sum->nr_unlisted)
		at += sysfs_emit_at(buf, at, "unlisted %lu\n",
				    sum->nr_unlisted);
	return at;
}

/* What a process is called may have any character in it but 0. */
static ssize_t show_programs(const struct hpmmap_totals *sum, char *buf)
{
	int at = 0, i;

	for (i = 0; i < sum->nr_programs; i++) {
		const struct hpmmap_program *p = &sum->programs[i];

		if (p->address_spaces)
			at += sysfs_emit_at(buf, at,
					    "%llu %llu %llu %llu %llu %llu %llu %*pE\n",
					    p->address_spaces, p->forks,
					    p->faults, p->faults_fork,
					    p->faults_asked, p->fallbacks,
					    p->refusals,
					    (int)strlen(p->name), p->name);
	}
	return at;
}

static ssize_t show_latency(const struct hpmmap_latency *latency, char *buf)
{
	int at, i;

	at = sysfs_emit(buf, "ticks %lu\nworst_ticks %lu\n", latency->ticks, latency->worst);
	for (i = 0; i < HPMMAP_LATENCY_BUCKETS; i++) {
		unsigned long nr = latency->nr[i];

		if (nr && i < HPMMAP_LATENCY_BUCKETS - 1)
			at += sysfs_emit_at(buf, at, "%llu %lu\n", bucket_end(i), nr);
		else if (nr)
			at += sysfs_emit_at(buf, at, "inf %lu\n", nr);
	}
	return at;
}

/* Owner and root only: they tell of memory as /proc/PID/smaps does. */
#define JOB_ATTR(_file, _emit) \
	static ssize_t _file##_show(struct kobject *kobj, \
				    struct kobj_attribute *attr, char *buf) \
	{ \
		struct hpmmap_job *job = \
			container_of(kobj, struct hpmmap_job, kobj); \
		struct hpmmap_totals *sum = job_sum(job); \
		ssize_t ret; \
		\
		if (IS_ERR(sum)) \
			return PTR_ERR(sum); \
		ret = _emit; \
		kfree(sum); \
		return ret; \
	} \
	static struct kobj_attribute _file##_attr = \
		__ATTR_RO_MODE(_file, 0400)

JOB_ATTR(stat, show_stat(job, sum, buf));
JOB_ATTR(fault_ranges, show_fault_ranges(sum, buf));
JOB_ATTR(programs, show_programs(sum, buf));
JOB_ATTR(latency_mmap, show_latency(&sum->calls[HPMMAP_TIMED_MMAP], buf));
JOB_ATTR(latency_munmap, show_latency(&sum->calls[HPMMAP_TIMED_MUNMAP], buf));
JOB_ATTR(latency_mremap, show_latency(&sum->calls[HPMMAP_TIMED_MREMAP], buf));
JOB_ATTR(latency_brk, show_latency(&sum->calls[HPMMAP_TIMED_BRK], buf));

static struct attribute *job_attrs[] = {
	&stat_attr.attr,
	&fault_ranges_attr.attr,
	&programs_attr.attr,
	&latency_mmap_attr.attr,
	&latency_munmap_attr.attr,
	&latency_mremap_attr.attr,
	&latency_brk_attr.attr,
	NULL,
};
static const struct attribute_group job_group = {
	.attrs = job_attrs,
};

const struct attribute_group *hpmmap_stats_groups[] = {
	&job_group,
	NULL,
};
