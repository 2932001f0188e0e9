/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM hpmmap

#if !defined(_HPMMAP_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _HPMMAP_TRACE_H

#include <linux/tracepoint.h>

/* Free blocks of 2 MB that were zeroed, by whom the event is of. */
TRACE_EVENT(hpmmap_zero,
	TP_PROTO(int node, unsigned int blocks),
	TP_ARGS(node, blocks),
	TP_STRUCT__entry(
		__field(int, node)
		__field(unsigned int, blocks)
	),
	TP_fast_assign(
		__entry->node = node;
		__entry->blocks = blocks;
	),
	TP_printk("node=%d blocks=%u", __entry->node, __entry->blocks)
);

/* Blocks of 2 MB handed to a job. */
TRACE_EVENT(hpmmap_alloc,
	TP_PROTO(u64 job, unsigned long blocks),
	TP_ARGS(job, blocks),
	TP_STRUCT__entry(
		__field(u64, job)
		__field(unsigned long, blocks)
	),
	TP_fast_assign(
		__entry->job = job;
		__entry->blocks = blocks;
	),
	TP_printk("job=%llu blocks=%lu", __entry->job, __entry->blocks)
);

/* A page fault in memory of a registered process. */
TRACE_EVENT(hpmmap_fault,
	TP_PROTO(u64 ctx, unsigned long address, unsigned int flags,
		 bool committed),
	TP_ARGS(ctx, address, flags, committed),
	TP_STRUCT__entry(
		__field(u64, ctx)
		__field(unsigned long, address)
		__field(unsigned int, flags)
		__field(bool, committed)
	),
	TP_fast_assign(
		__entry->ctx = ctx;
		__entry->address = address;
		__entry->flags = flags;
		__entry->committed = committed;
	),
	TP_printk("ctx=%llu address=0x%lx flags=0x%x committed=%d",
		  __entry->ctx, __entry->address, __entry->flags,
		  __entry->committed)
);

/* A fallback to ordinary memory. */
TRACE_EVENT(hpmmap_fallback,
	TP_PROTO(u64 ctx, unsigned long bytes),
	TP_ARGS(ctx, bytes),
	TP_STRUCT__entry(
		__field(u64, ctx)
		__field(unsigned long, bytes)
	),
	TP_fast_assign(
		__entry->ctx = ctx;
		__entry->bytes = bytes;
	),
	TP_printk("ctx=%llu bytes=%lu", __entry->ctx, __entry->bytes)
);

/* An address space was registered. */
TRACE_EVENT(hpmmap_register,
	TP_PROTO(u64 ctx, u64 job, int pid),
	TP_ARGS(ctx, job, pid),
	TP_STRUCT__entry(
		__field(u64, ctx)
		__field(u64, job)
		__field(int, pid)
	),
	TP_fast_assign(
		__entry->ctx = ctx;
		__entry->job = job;
		__entry->pid = pid;
	),
	TP_printk("ctx=%llu job=%llu pid=%d", __entry->ctx, __entry->job,
		  __entry->pid)
);

/* An entry of 1 GB was split into 512 entries of 2 MB, or these were joined again. */
TRACE_EVENT(hpmmap_gigabyte,
	TP_PROTO(u64 ctx, unsigned long address, bool joined),
	TP_ARGS(ctx, address, joined),
	TP_STRUCT__entry(
		__field(u64, ctx)
		__field(unsigned long, address)
		__field(bool, joined)
	),
	TP_fast_assign(
		__entry->ctx = ctx;
		__entry->address = address;
		__entry->joined = joined;
	),
	TP_printk("ctx=%llu address=%#lx joined=%d", __entry->ctx, __entry->address,
		  __entry->joined)
);

#endif /* _HPMMAP_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
