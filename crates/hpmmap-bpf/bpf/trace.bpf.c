// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Page faults of a tree of processes.
 *
 * A fault begins with the exception (tracepoints page_fault_*) or, if the kernel fills pages
 * itself, with handle_mm_fault(). It ends when that function returns other than to be called again.
 * The page-table entry before and after tells what it did. The kernel accounts faults at the same
 * place, so its counters, read right after it, must agree.
 */
#include <linux/bpf.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "kernel.h"
#include "events.h"

char LICENSE[] SEC("license") = "GPL";

/* The start of the kernel's direct map, and the shift of the topmost page table. */
extern const void page_offset_base __ksym __weak;
extern const void pgdir_shift __ksym __weak;

/* A thread, from the exception to the end of the fault. */
struct thread {
	/* The kernel's counters of the thread at the last look. */
	__u64 minor;
	__u64 major;
	/* The fault; 0 if there is none. */
	__u64 start_ns;
	__u64 entered_ns;
	__u64 pgd;
	__u64 mm;
	__u64 before;
	__u64 map_start;
	__u64 map_end;
	__u64 map_ino;
	__u32 map_dev;
	__u32 before_level;
	__u8 map_class;
	__u8 map_shared;
	__u8 map_hugetlb;
	__u8 has_ops;
	__u16 retries;
	__u16 waited_for_migration;
	/* Stolen time: when it began, and its part of the fault. */
	__u64 since_ns[CAUSE_COUNT];
	__u64 stolen_ns[CAUSE_COUNT];
};

/* Traced processes by number. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u8);
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, __u32);
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TOTALS);
	__type(key, __u32);
	__type(value, struct total);
} totals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CAUSE_COUNT);
	__type(key, __u32);
	__type(value, struct total);
} stolen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTER_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} control SEC(".maps");

struct file_key {
	__u64 ino;
	__u64 dev;
};

/* Files whose names the recorder knows already. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct file_key);
	__type(value, __u8);
} files SEC(".maps");

/* The end of the last merge in an address space. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u64);
} merged SEC(".maps");

/* The time at which the merging thread took the locks. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} merging SEC(".maps");

/* All additions are atomic: on a preemptible kernel another task may run the
 * same program on this CPU in between. */
static __always_inline void count(__u32 which, __u64 n)
{
	__u64 *value = bpf_map_lookup_elem(&counters, &which);

	if (value && n)
		__sync_fetch_and_add(value, n);
}

static __always_inline void add_total(void *map, __u32 index, __u64 ns)
{
	struct total *total = bpf_map_lookup_elem(map, &index);

	if (!total)
		return;
	__sync_fetch_and_add(&total->count, 1);
	__sync_fetch_and_add(&total->sum_ns, ns);
	for (int i = 0; i < 4; i++) {
		__u64 max = *(volatile __u64 *)&total->max_ns;

		if (max >= ns || __sync_val_compare_and_swap(&total->max_ns, max, ns) == max)
			break;
	}
}

/* The recorder also looks every few milliseconds. */
static __always_inline __u64 wake_up(void)
{
	if (bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) * 2 >
	    bpf_ringbuf_query(&events, BPF_RB_RING_SIZE))
		return BPF_RB_FORCE_WAKEUP;
	return BPF_RB_NO_WAKEUP;
}

static __always_inline void *reserve(__u64 size)
{
	void *event = bpf_ringbuf_reserve(&events, size, 0);

	if (!event)
		count(COUNTER_DROPPED, 1);
	return event;
}

static __always_inline __u32 this_tid(void)
{
	return (__u32)bpf_get_current_pid_tgid();
}

static __always_inline __u32 this_pid(void)
{
	return bpf_get_current_pid_tgid() >> 32;
}

/* The state of the running thread, if it is traced. */
static __always_inline struct thread *find_thread(void)
{
	__u32 tid = this_tid();

	return bpf_map_lookup_elem(&threads, &tid);
}

static __always_inline void look_at_counters(struct thread *thread)
{
	struct task_struct *task = bpf_get_current_task_btf();

	thread->minor = task->min_flt;
	thread->major = task->maj_flt;
}

/* Adds the growth of the kernel's counters of the running thread since the last look. */
static __always_inline void take_counters(struct thread *thread)
{
	__u64 minor = thread->minor, major = thread->major;

	look_at_counters(thread);
	count(COUNTER_KERNEL_MINOR, thread->minor - minor);
	count(COUNTER_KERNEL_MAJOR, thread->major - major);
}

/* As above; here also for threads that are older than the recorder and seen for the first time. */
static struct thread *this_thread(void)
{
	__u32 tid = this_tid(), pid = this_pid();
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);
	struct thread fresh = {};

	if (thread)
		return thread;
	if (!bpf_map_lookup_elem(&processes, &pid))
		return NULL;
	look_at_counters(&fresh);
	if (bpf_map_update_elem(&threads, &tid, &fresh, BPF_ANY))
		count(COUNTER_UNTRACKED, 1);
	return bpf_map_lookup_elem(&threads, &tid);
}

/*
 * Finds the entry that maps an address, or the one that is not present, and its level: 1 for 4 KB,
 * 2 for 2 MB, ... A table may be freed meanwhile: the value is then wrong but harmless.
 */
static __always_inline __u32 walk(__u64 pgd, __u64 address, __u64 *entry)
{
	__u64 table = pgd, base = 0;
	__u32 shift = 0, level;

	*entry = 0;
	if (!&page_offset_base || !&pgdir_shift ||
	    bpf_probe_read_kernel(&base, sizeof(base), &page_offset_base) ||
	    bpf_probe_read_kernel(&shift, sizeof(shift), &pgdir_shift))
		return 0;
#pragma unroll
	for (level = 5; level > 0; level--) {
		__u32 here = 12 + 9 * (level - 1);

		if (here > shift)
			continue;
		if (bpf_probe_read_kernel(entry, sizeof(*entry),
					  (void *)(table + ((address >> here) & 511) * 8))) {
			*entry = 0;
			return 0;
		}
		if (!(*entry & ENTRY_PRESENT) || level == 1 || (level < 4 && (*entry & ENTRY_LEAF)))
			return level;
		table = base + (*entry & ENTRY_ADDRESS);
	}
	return 0;
}

static __always_inline void begin_exception(unsigned long address)
{
	struct thread *thread = this_thread();

	/* Not an address of user space, so not a fault in its memory. */
	if (!thread || (long)address < 0)
		return;
	count(COUNTER_EXCEPTIONS, 1);
	thread->start_ns = bpf_ktime_get_ns();
	thread->entered_ns = 0;
}

SEC("tp_btf/page_fault_user")
int BPF_PROG(page_fault_user, unsigned long address)
{
	begin_exception(address);
	return 0;
}

SEC("tp_btf/page_fault_kernel")
int BPF_PROG(page_fault_kernel, unsigned long address)
{
	begin_exception(address);
	return 0;
}

static __always_inline void note_mapping(struct thread *thread, struct vm_area_struct *vma)
{
	struct mm_struct *mm = vma->vm_mm;
	struct file *file = vma->vm_file;
	unsigned long flags = vma->vm_flags;

	thread->mm = (__u64)mm;
	thread->pgd = (__u64)mm->pgd;
	thread->map_start = vma->vm_start;
	thread->map_end = vma->vm_end;
	thread->map_shared = !!(flags & VM_SHARED);
	thread->map_hugetlb = !!(flags & VM_HUGETLB);
	thread->has_ops = vma->vm_ops != NULL;
	thread->map_ino = 0;
	thread->map_dev = 0;
	if (file) {
		thread->map_class = MAPPING_FILE;
		thread->map_ino = file->f_inode->i_ino;
		thread->map_dev = file->f_inode->i_sb->s_dev;
	} else if (thread->has_ops) {
		thread->map_class = MAPPING_SPECIAL;
	} else if (vma->vm_start <= mm->brk && vma->vm_end > mm->start_brk) {
		thread->map_class = MAPPING_HEAP;
	} else if (vma->vm_start <= mm->start_stack && vma->vm_end > mm->start_stack) {
		thread->map_class = MAPPING_STACK;
	} else {
		thread->map_class = MAPPING_ANON;
	}
}

static __always_inline void tell_name(struct thread *thread, struct vm_area_struct *vma)
{
	struct file_key key = { .ino = thread->map_ino, .dev = thread->map_dev };
	struct file_event *event;
	__u8 told = 1;

	if (bpf_map_lookup_elem(&files, &key))
		return;
	event = reserve(sizeof(*event));
	if (!event)
		return;
	event->type = EVENT_FILE;
	event->unused = 0;
	event->dev = key.dev;
	event->ino = key.ino;
	__builtin_memset(event->name, 0, sizeof(event->name));
	bpf_probe_read_kernel_str(event->name, sizeof(event->name),
				  vma->vm_file->f_path.dentry->d_name.name);
	bpf_ringbuf_submit(event, wake_up());
	bpf_map_update_elem(&files, &key, &told, BPF_ANY);
}

SEC("fentry/handle_mm_fault")
int BPF_PROG(fault_enter, struct vm_area_struct *vma, unsigned long address, unsigned int flags,
	     struct pt_regs *regs)
{
	struct thread *thread = this_thread();
	__u64 now;

	if (!thread)
		return 0;
	now = bpf_ktime_get_ns();
	/* Only the first attempt sees the entry as it was before. */
	if (!thread->entered_ns || !thread->start_ns) {
		/* Without registers the kernel itself fills a page. */
		if (!regs || !thread->start_ns)
			thread->start_ns = now;
		thread->entered_ns = now;
		thread->retries = 0;
		thread->waited_for_migration = 0;
		for (int i = 0; i < CAUSE_COUNT; i++)
			thread->stolen_ns[i] = 0;
		note_mapping(thread, vma);
		thread->before_level = walk(thread->pgd, address, &thread->before);
	} else {
		note_mapping(thread, vma);
	}
	if (thread->map_class == MAPPING_FILE)
		tell_name(thread, vma);
	return 0;
}

static __always_inline bool is_error(unsigned int ret)
{
	return ret & (bpf_core_enum_value(enum vm_fault_reason, VM_FAULT_OOM) |
		      bpf_core_enum_value(enum vm_fault_reason, VM_FAULT_SIGBUS) |
		      bpf_core_enum_value(enum vm_fault_reason, VM_FAULT_HWPOISON) |
		      bpf_core_enum_value(enum vm_fault_reason, VM_FAULT_HWPOISON_LARGE) |
		      bpf_core_enum_value(enum vm_fault_reason, VM_FAULT_SIGSEGV) |
		      bpf_core_enum_value(enum vm_fault_reason, VM_FAULT_FALLBACK));
}

static __always_inline __u32 what_it_did(const struct thread *thread, __u64 after, __u32 after_level,
					 bool write)
{
	__u64 before = thread->before;

	if (thread->waited_for_migration)
		return KIND_MIGRATION;
	if (before & ENTRY_PRESENT) {
		if (write && !(before & ENTRY_WRITABLE))
			return (before & ENTRY_ADDRESS) != (after & ENTRY_ADDRESS) ? KIND_COW : KIND_WRITE;
		return KIND_SPURIOUS;
	}
	if (thread->map_hugetlb)
		return KIND_HUGETLB;
	if (before & ENTRY_PROTNONE)
		return KIND_NUMA;
	if (before)
		return ENTRY_SWAP_TYPE(before) < SWAP_TYPES_MIN ? KIND_SWAP : KIND_OTHER;
	/* No page is present, or the page tables cannot be read. */
	if (!(after & ENTRY_PRESENT))
		return KIND_OTHER;
	if (after_level > 1)
		return KIND_2M;
	if (!thread->has_ops)
		return KIND_4K;
	return write && !thread->map_shared ? KIND_COW : KIND_FILE;
}

static __always_inline __u32 what_it_waited_for(const struct thread *thread)
{
	__u64 mm = thread->mm;
	__u64 *end = bpf_map_lookup_elem(&merged, &mm);

	if (end && *end >= thread->start_ns)
		return STALL_MERGE;
	if (thread->stolen_ns[CAUSE_COMPACTION])
		return STALL_COMPACTION;
	if (thread->stolen_ns[CAUSE_RECLAIM])
		return STALL_RECLAIM;
	return STALL_NONE;
}

SEC("fexit/handle_mm_fault")
int BPF_PROG(fault_exit, struct vm_area_struct *vma, unsigned long address, unsigned int flags,
	     struct pt_regs *regs, unsigned int ret)
{
	bool write = flags & bpf_core_enum_value(enum fault_flag, FAULT_FLAG_WRITE);
	struct thread *thread = find_thread();
	__u32 kind, stall, origin, level;
	struct fault_event *event;
	__u64 now, after;
	bool major;

	if (!thread)
		return 0;
	if (!thread->entered_ns) {
		/* The fault had begun before the thread was traced. */
		look_at_counters(thread);
		return 0;
	}
	take_counters(thread);
	if (ret & bpf_core_enum_value(enum vm_fault_reason, VM_FAULT_RETRY)) {
		thread->retries++;
		count(COUNTER_RETRIES, 1);
		return 0;
	}

	now = bpf_ktime_get_ns();
	level = walk(thread->pgd, address, &after);
	kind = is_error(ret) ? KIND_ERROR : what_it_did(thread, after, level, write);
	stall = what_it_waited_for(thread);
	if (!regs)
		origin = ORIGIN_CALL;
	else
		origin = flags & bpf_core_enum_value(enum fault_flag, FAULT_FLAG_USER) ? ORIGIN_USER :
											 ORIGIN_KERNEL;
	major = ret & bpf_core_enum_value(enum vm_fault_reason, VM_FAULT_MAJOR) ||
		flags & bpf_core_enum_value(enum fault_flag, FAULT_FLAG_TRIED);
	if (kind != KIND_ERROR)
		count(major ? COUNTER_MAJOR : COUNTER_MINOR, 1);
	add_total(&totals, TOTAL_INDEX(kind, stall, origin), now - thread->start_ns);

	event = reserve(sizeof(*event));
	if (event) {
		event->type = EVENT_FAULT;
		event->cpu = bpf_get_smp_processor_id();
		event->pid = this_pid();
		event->tid = this_tid();
		event->kind = kind;
		event->stall = stall;
		event->origin = origin;
		event->flags = (write ? FAULT_F_WRITE : 0) | (major ? FAULT_F_MAJOR : 0) |
			       (flags & bpf_core_enum_value(enum fault_flag, FAULT_FLAG_INSTRUCTION) ?
					FAULT_F_EXEC : 0);
		event->start_ns = thread->start_ns;
		event->cost_ns = now - thread->start_ns;
		event->wait_ns = thread->entered_ns - thread->start_ns;
		event->reclaim_ns = thread->stolen_ns[CAUSE_RECLAIM];
		event->compaction_ns = thread->stolen_ns[CAUSE_COMPACTION];
		event->migration_ns = thread->stolen_ns[CAUSE_MIGRATION];
		event->address = address;
		event->map_start = thread->map_start;
		event->map_end = thread->map_end;
		event->map_ino = thread->map_ino;
		event->map_dev = thread->map_dev;
		event->map_class = thread->map_class;
		event->level = after & ENTRY_PRESENT ? level : 0;
		event->retries = thread->retries;
		bpf_ringbuf_submit(event, wake_up());
	}
	thread->start_ns = 0;
	thread->entered_ns = 0;
	return 0;
}

static __always_inline void begin_stealing(__u32 cause)
{
	struct thread *thread = this_thread();

	/* Migration is part of the other causes. */
	if (!thread || (cause == CAUSE_MIGRATION &&
			(thread->since_ns[CAUSE_RECLAIM] || thread->since_ns[CAUSE_COMPACTION])))
		return;
	thread->since_ns[cause] = bpf_ktime_get_ns();
}

static __always_inline void end_stealing(__u32 cause)
{
	struct thread *thread = find_thread();
	struct time_event *event;
	__u64 since, ns;

	if (!thread || !thread->since_ns[cause])
		return;
	since = thread->since_ns[cause];
	ns = bpf_ktime_get_ns() - since;
	thread->since_ns[cause] = 0;
	thread->stolen_ns[cause] += ns;
	add_total(&stolen, cause, ns);
	event = reserve(sizeof(*event));
	if (!event)
		return;
	event->type = EVENT_STOLEN;
	event->cause = cause;
	event->pid = this_pid();
	event->tid = this_tid();
	event->unused = 0;
	event->start_ns = since;
	event->ns = ns;
	bpf_ringbuf_submit(event, wake_up());
}

/* Defines programs for two hooks between which a thread's time is stolen. */
#define STOLEN_BETWEEN(name, first, last, begin, cause)	\
SEC(first)						\
int BPF_PROG(name##_begin)				\
{							\
	begin;						\
	return 0;					\
}							\
							\
SEC(last)						\
int BPF_PROG(name##_end)				\
{							\
	end_stealing(cause);				\
	return 0;					\
}

STOLEN_BETWEEN(reclaim, "tp_btf/mm_vmscan_direct_reclaim_begin", "tp_btf/mm_vmscan_direct_reclaim_end",
	       begin_stealing(CAUSE_RECLAIM), CAUSE_RECLAIM)
STOLEN_BETWEEN(memcg_reclaim, "tp_btf/mm_vmscan_memcg_reclaim_begin", "tp_btf/mm_vmscan_memcg_reclaim_end",
	       begin_stealing(CAUSE_RECLAIM), CAUSE_RECLAIM)
STOLEN_BETWEEN(compaction, "tp_btf/mm_compaction_begin", "tp_btf/mm_compaction_end",
	       begin_stealing(CAUSE_COMPACTION), CAUSE_COMPACTION)
STOLEN_BETWEEN(migrate, "tp_btf/mm_migrate_pages_start", "tp_btf/mm_migrate_pages",
	       begin_stealing(CAUSE_MIGRATION), CAUSE_MIGRATION)

static __always_inline void begin_waiting(void)
{
	struct thread *thread = find_thread();

	if (!thread)
		return;
	thread->waited_for_migration = 1;
	begin_stealing(CAUSE_MIGRATION);
}

/* A fault on a page that is being moved sleeps here. */
STOLEN_BETWEEN(wait, "fentry/migration_entry_wait", "fexit/migration_entry_wait", begin_waiting(), CAUSE_MIGRATION)
STOLEN_BETWEEN(pmd_wait, "fentry/pmd_migration_entry_wait", "fexit/pmd_migration_entry_wait", begin_waiting(),
	       CAUSE_MIGRATION)

/* Called with mmap_lock held, by khugepaged or for MADV_COLLAPSE. */
SEC("tp_btf/mm_collapse_huge_page_isolate")
int BPF_PROG(merge_begin)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 tid = this_tid();

	bpf_map_update_elem(&merging, &tid, &now, BPF_ANY);
	return 0;
}

SEC("tp_btf/mm_collapse_huge_page")
int BPF_PROG(merge_end, struct mm_struct *mm)
{
	__u64 now = bpf_ktime_get_ns(), key = (__u64)mm, since;
	struct time_event *event;
	__u32 tid = this_tid(), pid;
	__u64 *start;

	start = bpf_map_lookup_elem(&merging, &tid);
	/* It gave up before it took the locks. */
	if (!start)
		return 0;
	since = *start;
	bpf_map_delete_elem(&merging, &tid);
	pid = mm->owner->tgid;
	if (!bpf_map_lookup_elem(&processes, &pid))
		return 0;
	bpf_map_update_elem(&merged, &key, &now, BPF_ANY);
	add_total(&stolen, CAUSE_MERGE, now - since);
	event = reserve(sizeof(*event));
	if (!event)
		return 0;
	event->type = EVENT_MERGE;
	event->cause = CAUSE_MERGE;
	event->pid = pid;
	event->tid = tid;
	event->unused = 0;
	event->start_ns = since;
	event->ns = now - since;
	bpf_ringbuf_submit(event, wake_up());
	return 0;
}

static __always_inline void tell_task(__u32 type, struct task_struct *task, __u32 parent)
{
	struct task_event *event = reserve(sizeof(*event));

	if (!event)
		return;
	event->type = type;
	event->unused = 0;
	event->pid = task->tgid;
	event->tid = task->pid;
	event->parent = parent;
	event->time_ns = bpf_ktime_get_ns();
	bpf_probe_read_kernel(event->comm, sizeof(event->comm), task->comm);
	bpf_ringbuf_submit(event, wake_up());
}

static __always_inline bool is_traced(__u32 pid)
{
	return bpf_map_lookup_elem(&processes, &pid);
}

/* Is it the first process that the recorder starts? */
static __always_inline bool is_root(__u32 parent, __u32 child)
{
	__u32 zero = 0;
	struct control *what = bpf_map_lookup_elem(&control, &zero);

	return what && what->recorder == parent && child != parent &&
	       __sync_val_compare_and_swap(&what->root, 0, child) == 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(task_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 parent_pid = parent->tgid, pid = child->tgid, tid = child->pid;
	struct thread fresh = {};
	__u8 traced = 1;

	if (!is_traced(parent_pid) && !is_root(parent_pid, pid))
		return 0;
	if (bpf_map_update_elem(&processes, &pid, &traced, BPF_ANY) ||
	    bpf_map_update_elem(&threads, &tid, &fresh, BPF_ANY))
		count(COUNTER_UNTRACKED, 1);
	tell_task(EVENT_FORK, child, parent_pid);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(task_exec, struct task_struct *task, int old_pid)
{
	__u32 old = old_pid;

	if (!is_traced(task->tgid))
		return 0;
	/* Another thread has become the first one by execve. */
	if (old_pid != task->pid)
		bpf_map_delete_elem(&threads, &old);
	tell_task(EVENT_EXEC, task, 0);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(task_exit, struct task_struct *task)
{
	__u32 pid = task->tgid, tid = task->pid;
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);

	/* The last thread to exit may come here before the others. */
	if (!thread && !is_traced(pid))
		return 0;
	if (thread)
		take_counters(thread);
	bpf_map_delete_elem(&threads, &tid);
	tell_task(EVENT_EXIT, task, 0);
	if (task->signal->live.counter == 0)
		bpf_map_delete_elem(&processes, &pid);
	return 0;
}
