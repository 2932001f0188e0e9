// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What takes CPUs away from a job: interrupts, softirqs, and tasks that are not the job's. Every
 * event is counted where it happens; no event is sent to the recorder, so the recorder does not
 * run until it reads the counts.
 */
#include <linux/bpf.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "kernel.h"
#include "noise.h"

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct noise_control);
} control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_counts);
} cpus SEC(".maps");

/* Device interrupts by number. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct hits);
} irqs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct other_key);
	__type(value, struct other_counts);
} others SEC(".maps");

/* Processes of the job (WHO_JOB) and launchers (WHO_LAUNCHER), by number. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u32);
} processes SEC(".maps");

#define add(value, n) __sync_fetch_and_add(&(value), (n))

static __always_inline struct noise_control *settings(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&control, &zero);
}

static __always_inline struct cpu_counts *this_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&cpus, &zero);
}

/* This CPU, if it is measured now. */
static __always_inline struct cpu_counts *measured_cpu(void)
{
	struct noise_control *what = settings();
	struct cpu_counts *cpu;

	if (!what || !what->on)
		return NULL;
	cpu = this_cpu();
	return cpu && cpu->measured ? cpu : NULL;
}

static __always_inline void hit(struct hits *hits, struct cpu_counts *cpu)
{
	add(hits->count, 1);
	if (cpu->who == WHO_JOB)
		add(hits->in_job, 1);
}

/* A program for the tracepoint of an interrupt vector. */
#define VECTOR(name, row)				\
SEC("tp_btf/" #name "_entry")				\
int BPF_PROG(name)					\
{							\
	struct cpu_counts *cpu = measured_cpu();	\
							\
	if (cpu)					\
		hit(&cpu->vectors[row], cpu);		\
	return 0;					\
}

VECTOR(local_timer, VECTOR_LOC)
VECTOR(reschedule, VECTOR_RES)
VECTOR(call_function, VECTOR_CAL)
VECTOR(call_function_single, VECTOR_CAL)
VECTOR(irq_work, VECTOR_IWI)
VECTOR(thermal_apic, VECTOR_TRM)
VECTOR(threshold_apic, VECTOR_THR)
VECTOR(deferred_error_apic, VECTOR_DFR)
VECTOR(spurious_apic, VECTOR_SPU)
VECTOR(x86_platform_ipi, VECTOR_PLT)

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(device_irq, int irq)
{
	struct cpu_counts *cpu = measured_cpu();
	struct hits fresh = {}, *hits;
	__u32 number = irq;

	if (!cpu)
		return 0;
	hits = bpf_map_lookup_elem(&irqs, &number);
	if (!hits) {
		bpf_map_update_elem(&irqs, &number, &fresh, BPF_NOEXIST);
		hits = bpf_map_lookup_elem(&irqs, &number);
	}
	if (hits)
		hit(hits, cpu);
	else
		add(cpu->lost, 1);
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq, unsigned int number)
{
	struct cpu_counts *cpu = measured_cpu();

	if (cpu && number < SOFTIRQS)
		hit(&cpu->softirqs[number], cpu);
	return 0;
}

SEC("tp_btf/tick_stop")
int BPF_PROG(tick, int success, int dependency)
{
	struct cpu_counts *cpu = measured_cpu();

	if (!cpu || success)
		return 0;
	for (int i = 0; i < TICK_REASONS; i++)
		if (dependency & (1 << i))
			add(cpu->tick_reasons[i], 1);
	return 0;
}

static __always_inline __u64 who_is(struct task_struct *task)
{
	__u32 pid = task->tgid, *who;

	if (!task->pid)
		return WHO_IDLE;
	who = bpf_map_lookup_elem(&processes, &pid);
	return who ? *who : WHO_OTHER;
}

static __always_inline bool is_of_job(__u64 who)
{
	return who == WHO_JOB || who == WHO_ENDING;
}

static __always_inline void name_of(struct other_key *key, struct task_struct *task)
{
	key->cpu = bpf_get_smp_processor_id();
	bpf_probe_read_kernel_str(key->comm, sizeof(key->comm), task->comm);
}

/* Another task begins to run, instead of the job's if @preempts. */
static __always_inline void comes(struct cpu_counts *cpu, struct task_struct *task, bool preempts)
{
	struct other_counts fresh = {}, *counts;
	struct other_key key = {};

	add(cpu->others, 1);
	if (preempts)
		add(cpu->preemptions, 1);
	name_of(&key, task);
	counts = bpf_map_lookup_elem(&others, &key);
	if (!counts) {
		bpf_map_update_elem(&others, &key, &fresh, BPF_NOEXIST);
		counts = bpf_map_lookup_elem(&others, &key);
	}
	if (!counts) {
		add(cpu->lost, 1);
		return;
	}
	add(counts->switches, 1);
	if (preempts)
		add(counts->preemptions, 1);
}

/* The task that ran until now stops. */
static __always_inline void leaves(struct cpu_counts *cpu, struct task_struct *task, __u64 now)
{
	__u64 ns = now - cpu->since_ns;
	struct other_counts *counts;
	struct other_key key = {};

	if (!cpu->since_ns)
		return;
	if (cpu->who == WHO_JOB) {
		add(cpu->job_ns, ns);
	} else if (cpu->who == WHO_OTHER) {
		name_of(&key, task);
		counts = bpf_map_lookup_elem(&others, &key);
		if (counts)
			add(counts->ns, ns);
	}
}

SEC("tp_btf/sched_switch")
int BPF_PROG(task_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	struct cpu_counts *cpu = measured_cpu();
	struct noise_control *what = settings();
	__u64 now, who;
	bool preempts;

	if (!cpu || !what)
		return 0;
	who = who_is(next);
	now = bpf_ktime_get_ns();
	preempts = cpu->who == WHO_JOB && (preempt || !prev_state);
	leaves(cpu, prev, now);
	if (is_of_job(who)) {
		who = WHO_JOB;
		add(cpu->arrivals, 1);
	} else if (who == WHO_OTHER && (what->whole_time || cpu->arrivals)) {
		comes(cpu, next, preempts);
	}
	cpu->who = who;
	cpu->since_ns = now;
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(task_migrate, struct task_struct *task)
{
	struct noise_control *what = settings();
	struct cpu_counts *cpu = this_cpu();

	if (cpu && what && what->on && is_of_job(who_is(task)))
		add(cpu->migrations, 1);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(task_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 parent_pid = parent->tgid, pid = child->tgid, job = WHO_JOB, launcher = WHO_LAUNCHER;
	struct noise_control *what = settings();
	struct cpu_counts *cpu = this_cpu();
	struct bpf_pidns_info own = {};

	if (!what || !cpu)
		return 0;
	if (who_is(parent) != WHO_JOB) {
		if (bpf_get_ns_current_pid_tgid(what->namespace_dev, what->namespace_ino, &own, sizeof(own)))
			return 0;
		if (own.tgid != what->launcher && own.tgid != what->recorder)
			return 0;
		if (bpf_map_update_elem(&processes, &parent_pid, &launcher, BPF_ANY))
			add(cpu->lost, 1);
		if (own.tgid != what->launcher)
			return 0;
	}
	if (pid == parent_pid)
		return 0;
	add(what->processes, 1);
	if (bpf_map_update_elem(&processes, &pid, &job, BPF_ANY))
		add(cpu->lost, 1);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(task_exit, struct task_struct *task)
{
	struct noise_control *what = settings();
	struct cpu_counts *cpu = this_cpu();
	__u32 pid = task->tgid, ending = WHO_ENDING;
	__u64 now;

	/* The last thread to exit may come here before the others. */
	if (!what || !cpu || who_is(task) != WHO_JOB || task->signal->live.counter)
		return 0;
	/* It goes on to run until its end. */
	bpf_map_update_elem(&processes, &pid, &ending, BPF_EXIST);
	if (add(what->processes, -1) != 1 || what->whole_time || !what->on)
		return 0;
	what->on = 0;
	if (cpu->who == WHO_JOB && cpu->since_ns) {
		now = bpf_ktime_get_ns();
		add(cpu->job_ns, now - cpu->since_ns);
		cpu->since_ns = 0;
	}
	return 0;
}

SEC("tp_btf/sched_process_free")
int BPF_PROG(task_free, struct task_struct *task)
{
	__u32 pid = task->tgid;

	if (task->pid == task->tgid && who_is(task) == WHO_ENDING)
		bpf_map_delete_elem(&processes, &pid);
	return 0;
}
