// SPDX-License-Identifier: GPL-2.0
/*
 * Mappings of a context's file.
 *
 * The file has no contents of its own. Its offset equals the virtual address,
 * so mappings that touch merge, and the memory is found by address in the
 * store of the address space that faults, not of the file's owner: right after
 * fork the child's mappings still name the parent's file.
 *
 * There is no .close: kernels before 6.5 do not merge mappings that have one.
 *
 * What /proc/PID/maps shows is the name of a file, so heap and stack have files of
 * their own, of the same inode.
 */
#include <linux/dcache.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mempolicy.h>
#include <linux/mman.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/pagemap.h>
#include <linux/pseudo_fs.h>
#include <linux/sched/signal.h>

#include "hook.h"
#include "hpmmap.h"
#include "mem/block.h"
#include "mem/poison.h"
#include "as/counters.h"
#include "as/ctx.h"
#include "as/handback.h"
#include "as/pgmap.h"
#include "as/policy.h"
#include "as/stats.h"
#include "as/store.h"
#include "as/vma.h"
#include "task/fork.h"
#include "trace.h"

#define HPMMAP_FS_MAGIC 0x48504d4d

/* What vm_mmap() can make again; see collapse_slot(). */
#define PLAIN_FLAGS (VM_READ | VM_WRITE | VM_EXEC | VM_MAYREAD | \
		     VM_MAYWRITE | VM_MAYEXEC | VM_SHARED | VM_MAYSHARE | \
		     VM_NORESERVE | VM_SOFTDIRTY)

/* Hints below vm.mmap_min_addr are rounded up to it; this is its usual value. */
#define LOWEST_HINT 65536UL

static struct vfsmount *hpmmap_mnt;
static int hpmmap_mnt_count;

static void fault_count(struct hpmmap_ctx *ctx, struct vm_fault *vmf,
			bool committed, enum hpmmap_fault why)
{
	if (vmf->flags & FAULT_FLAG_USER)
		atomic_long_inc(&ctx->nr_faults);
	else if (vmf->flags & FAULT_FLAG_ALLOW_RETRY &&
		 !(vmf->flags & FAULT_FLAG_RETRY_NOWAIT))
		atomic_long_inc(&ctx->nr_faults_kernel);
	else
		return;		/* hpmmap_pgmap_fill() */
	hpmmap_count_fault(ctx, vmf->address, why);
	hpmmap_count_held(ctx);
	trace_hpmmap_fault(ctx->id, vmf->address, vmf->flags, committed);
}

/* An entry is about to be made by the core: of 2 MB, if that fits. */
static void entry_count(struct hpmmap_ctx *ctx, struct vm_fault *vmf)
{
	unsigned long start = vmf->address & SLOT_MASK;

	if (PageCompound(vmf->page) &&
	    !folio_test_has_hwpoisoned(page_folio(vmf->page)) &&
	    pmd_none(READ_ONCE(*vmf->pmd)) &&
	    vmf->vma->vm_start <= start &&
	    vmf->vma->vm_end - SLOT_SIZE >= start && compat_vma_maps_2m(vmf->vma))
		atomic_long_inc(&ctx->stats.entries_2m);
	else
		atomic_long_inc(&ctx->stats.entries_4k);
}

static vm_fault_t hpmmap_vm_fault(struct vm_fault *vmf)
{
	struct hpmmap_ctx *ctx = hpmmap_ctx_get(vmf->vma->vm_mm);
	enum hpmmap_fault why = HPMMAP_FAULT_UNMAPPED;
	bool committed = false;
	vm_fault_t ret;

	/* A child without a snapshot: this ends it. */
	if (!ctx)
		return VM_FAULT_SIGBUS;
	if (unlikely(hpmmap_handback_covers(ctx, vmf->vma))) {
		ret = hpmmap_handback_wait(ctx, vmf);
		hpmmap_ctx_put(ctx);
		return ret;
	}
	ret = hpmmap_store_fault(ctx, vmf, &committed, &why);
	if (!(ret & (VM_FAULT_ERROR | VM_FAULT_RETRY)))
		fault_count(ctx, vmf, committed, why);
	if (!ret)
		entry_count(ctx, vmf);
	hpmmap_ctx_put(ctx);
	if (ret)
		return ret;
	lock_page(vmf->page);
	if (unlikely(PageHWPoison(vmf->page))) {
		/* Just now. */
		unlock_page(vmf->page);
		put_page(vmf->page);
		vmf->page = NULL;
		return VM_FAULT_HWPOISON;
	}
	return VM_FAULT_LOCKED;
}

/*
 * For debuggers: what the page table does not let them do. Linux would break
 * the copy-on-write of a private page; ours is private already.
 */
static int hpmmap_vm_access(struct vm_area_struct *vma, unsigned long addr,
			    void *buf, int len, int write)
{
	struct hpmmap_ctx *ctx = hpmmap_ctx_get(vma->vm_mm);
	int ret;

	if (!ctx)
		return -EIO;
	len = min_t(unsigned long, len, PAGE_SIZE - offset_in_page(addr));
	if (write && hpmmap_handback_covers(ctx, vma))
		ret = -EAGAIN;
	else
		ret = hpmmap_store_access(ctx, vma, addr, buf, len, write);
	hpmmap_ctx_put(ctx);
	return ret ? ret : len;
}

/*
 * Only calls of the address space itself split its mappings: they map again
 * what the core drops for it. Others could by a userfaultfd, for one.
 */
static int hpmmap_vm_may_split(struct vm_area_struct *vma, unsigned long addr)
{
	return vma->vm_mm == current->mm ? 0 : -EINVAL;
}

/*
 * The core is about to make entries writable. What is shared has none then,
 * and gets none before the core is done: mmap_lock is held for writing.
 */
static int hpmmap_vm_mprotect(struct vm_area_struct *vma, unsigned long start,
			      unsigned long end, unsigned long newflags)
{
	struct hpmmap_ctx *ctx;

	if (!(newflags & VM_WRITE))
		return 0;
	ctx = hpmmap_ctx_get(vma->vm_mm);
	if (ctx) {
		hpmmap_store_zap_shared(ctx, start, end);
		hpmmap_ctx_put(ctx);
	}
	return 0;
}

/* A move that did not go through mremap.c would leave the contents behind. */
static int hpmmap_vm_mremap(struct vm_area_struct *vma)
{
	return -EINVAL;
}

#ifdef CONFIG_NUMA
/*
 * What mbind(2) set, for get_mempolicy(2) and numa_maps. Kernels before 6.8
 * take having this function for "no NUMA balancing, unless that policy asks
 * for it"; the others are kept away by the mapping's gfp mask.
 */
static struct mempolicy *hpmmap_vm_get_policy(COMPAT_GET_POLICY_ARGS)
{
	return vma->vm_policy;
}
#endif

const struct vm_operations_struct hpmmap_vm_ops = {
	.open = hpmmap_fork_open,
	.may_split = hpmmap_vm_may_split,
	.mprotect = hpmmap_vm_mprotect,
	.mremap = hpmmap_vm_mremap,
	.fault = hpmmap_vm_fault,
	.access = hpmmap_vm_access,
#ifdef CONFIG_NUMA
	.get_policy = hpmmap_vm_get_policy,
	.set_policy = hpmmap_vm_set_policy,
#endif
};

static int hpmmap_file_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct hpmmap_ctx *ctx;
	bool ours;

	ctx = hpmmap_ctx_get(vma->vm_mm);
	if (!ctx)
		return -EPERM;
	ours = file_inode(ctx->file) == file_inode(file) &&
	       vma->vm_pgoff == vma->vm_start >> PAGE_SHIFT &&
	       vma->vm_flags & VM_SHARED;
	hpmmap_ctx_put(ctx);
	if (!ours)
		return -EINVAL;
	vma->vm_ops = &hpmmap_vm_ops;
	return 0;
}

/* Nobody opens it: mappings are made by the module only. */
static int hpmmap_file_open(struct inode *inode, struct file *file)
{
	return -EACCES;
}

static const struct file_operations hpmmap_fops = {
	.owner = THIS_MODULE,
	.open = hpmmap_file_open,
	.mmap = hpmmap_file_mmap,
	.fsync = noop_fsync,
};

static const struct address_space_operations hpmmap_aops = {
	.dirty_folio = noop_dirty_folio,
};

/*
 * As Linux calls private memory. A core dump's list of files leaves out what has
 * no path; the contents are dumped nevertheless.
 */
static char *hpmmap_dname(struct dentry *dentry, char *buffer, int len)
{
	int size = dentry->d_name.len + 1;

	if (current->flags & PF_DUMPCORE)
		return ERR_PTR(-ENOENT);
	if (size > len)
		return ERR_PTR(-ENAMETOOLONG);
	return memcpy(buffer + len - size, dentry->d_name.name, size);
}

static const struct dentry_operations hpmmap_dops = {
	.d_dname = hpmmap_dname,
};

static int hpmmap_init_fs_context(struct fs_context *fc)
{
	struct pseudo_fs_context *ctx = init_pseudo(fc, HPMMAP_FS_MAGIC);

	if (!ctx)
		return -ENOMEM;
	ctx->dops = &hpmmap_dops;
	/* Set since 6.17; our files are mapped with PROT_EXEC, too. */
	fc->s_iflags &= ~SB_I_NOEXEC;
	return 0;
}

static struct file_system_type hpmmap_fs_type = {
	.name = "hpmmap",
	.owner = THIS_MODULE,
	.init_fs_context = hpmmap_init_fs_context,
	.kill_sb = kill_anon_super,
};

static const char * const names[HPMMAP_NR_NAMES] = {
	[HPMMAP_NAME_NONE] = "",
	[HPMMAP_NAME_HEAP] = "[heap]",
	[HPMMAP_NAME_STACK] = "[stack]",
};

/* A file of an inode, one reference to which is given up. */
static struct file *file_of(struct inode *inode, enum hpmmap_name name)
{
	struct file *file;

	/* Given back by the last fput(). */
	__module_get(THIS_MODULE);
	file = alloc_file_pseudo(inode, hpmmap_mnt, names[name],
				 O_RDWR | O_LARGEFILE, &hpmmap_fops);
	if (IS_ERR(file)) {
		module_put(THIS_MODULE);
		iput(inode);
		return file;
	}
	file->private_data = (void *)(unsigned long)name;
	return file;
}

/**
 * hpmmap_file_alloc() - the file of a new context
 *
 * The caller keeps the module loaded while this runs.
 *
 * Return: the file, given back by hpmmap_file_put(), or an ERR_PTR.
 */
struct file *hpmmap_file_alloc(void)
{
	struct inode *inode;
	struct file *file;
	int ret;

	/* Mounted while there are files: so long it keeps the module. */
	ret = simple_pin_fs(&hpmmap_fs_type, &hpmmap_mnt, &hpmmap_mnt_count);
	if (ret)
		return ERR_PTR(ret);
	inode = new_inode(hpmmap_mnt->mnt_sb);
	if (!inode) {
		simple_release_fs(&hpmmap_mnt, &hpmmap_mnt_count);
		return ERR_PTR(-ENOMEM);
	}
	inode->i_ino = get_next_ino();
	inode->i_mode = S_IFREG | 0600;
	inode->i_fop = &hpmmap_fops;
	inode->i_flags |= S_NOCMTIME | S_NOATIME | S_PRIVATE;
	inode->i_size = MAX_LFS_FILESIZE;
	inode->i_mapping->a_ops = &hpmmap_aops;
	mapping_set_unevictable(inode->i_mapping);
	/*
	 * Below the zones a policy cares for: NUMA balancing stays away. Where
	 * all of ZONE_NORMAL is movable, ZONE_DMA32 is one of those, so better
	 * ZONE_DMA, if there is one: GFP_DMA means ZONE_NORMAL otherwise. With
	 * no ZONE_DMA and nothing but movable memory above ZONE_DMA32, NUMA
	 * balancing does not stay away.
	 */
	mapping_set_gfp_mask(inode->i_mapping, GFP_KERNEL |
			     (IS_ENABLED(CONFIG_ZONE_DMA) ? GFP_DMA :
							    GFP_DMA32));
	/* Never one that is only read, which khugepaged has pages of its own for. */
	atomic_set(&inode->i_writecount, 1);
	/* Unlinked files are dumped as anonymous memory is. */
	clear_nlink(inode);
	file = file_of(inode, HPMMAP_NAME_NONE);
	if (IS_ERR(file))
		simple_release_fs(&hpmmap_mnt, &hpmmap_mnt_count);
	return file;
}

/* Mappings may keep the files a while longer. */
void hpmmap_file_put(struct hpmmap_ctx *ctx)
{
	int i;

	for (i = 0; i < HPMMAP_NR_NAMES; i++)
		if (ctx->named[i])
			fput(ctx->named[i]);
	fput(ctx->file);
	simple_release_fs(&hpmmap_mnt, &hpmmap_mnt_count);
}

/* The context's file of a name; without memory for it that without a name. */
static struct file *file_named(struct hpmmap_ctx *ctx, enum hpmmap_name name)
{
	struct inode *inode = file_inode(ctx->file);
	struct file *file;

	if (name == HPMMAP_NAME_NONE)
		return ctx->file;
	if (!ctx->named[name]) {
		ihold(inode);
		file = file_of(inode, name);
		if (IS_ERR(file))
			return ctx->file;
		ctx->named[name] = file;
	}
	return ctx->named[name];
}

/* Linux names the heap up to the break, and the mapping where the stack began. */
static enum hpmmap_name name_of(struct hpmmap_ctx *ctx, unsigned long start,
				unsigned long end)
{
	struct mm_struct *mm = ctx->mm;

	if (start >= mm->start_brk && end <= ctx->heap_end)
		return HPMMAP_NAME_HEAP;
	if (start <= mm->start_stack && end > mm->start_stack)
		return HPMMAP_NAME_STACK;
	return HPMMAP_NAME_NONE;
}

static unsigned long map_named(struct hpmmap_ctx *ctx, enum hpmmap_name name,
			       unsigned long addr, unsigned long len,
			       unsigned long prot, unsigned long flags)
{
	ctx->hole.end = 0;
	return vm_mmap(file_named(ctx, name), addr, len, prot,
		       MAP_SHARED | flags, addr);
}

/**
 * hpmmap_vma_map() - map a range of a context's file
 * @ctx: the caller's context, ctx->ops held
 * @addr: address
 * @len: length
 * @prot: PROT_*
 * @flags: further MAP_* flags: MAP_FIXED or MAP_FIXED_NOREPLACE, and
 *	MAP_NORESERVE, MAP_LOCKED
 *
 * Return: @addr or an errno, as from mmap(2).
 */
unsigned long hpmmap_vma_map(struct hpmmap_ctx *ctx, unsigned long addr,
			     unsigned long len, unsigned long prot,
			     unsigned long flags)
{
	return map_named(ctx, name_of(ctx, addr, addr + len), addr, len, prot,
			 flags);
}

static enum hpmmap_name file_name(const struct file *file)
{
	return (enum hpmmap_name)(unsigned long)file->private_data;
}

/**
 * hpmmap_vma_own_file() - make inherited mappings those of the own file
 * @ctx: the context of a new child, ctx->ops held
 *
 * They merge with what the child maps only if the file is the same.
 */
void hpmmap_vma_own_file(struct hpmmap_ctx *ctx)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, 0);

	mmap_write_lock(ctx->mm);
	for_each_vma(vmi, vma)
		if (hpmmap_vma_is_ours(vma) &&
		    file_inode(vma->vm_file) != file_inode(ctx->file))
			compat_vma_set_file(vma, file_named(ctx,
						file_name(vma->vm_file)));
	mmap_write_unlock(ctx->mm);
}

/**
 * hpmmap_vma_find_hole() - choose an address
 * @hint: what the caller would like, or 0
 * @len: length
 * @flags: MAP_* flags of the caller
 * @align: power of two, at least a page
 * @phase: wanted address modulo @align
 *
 * Return: the address or an errno. It may be taken when it is used.
 */
unsigned long hpmmap_vma_find_hole(unsigned long hint, unsigned long len,
				   unsigned long flags, unsigned long align,
				   unsigned long phase)
{
	unsigned long pad = align - PAGE_SIZE;
	unsigned long addr;

	if (len + pad < len)
		return -ENOMEM;
	if (hint && hint < LOWEST_HINT)
		hint = LOWEST_HINT;
	if (mmap_read_lock_killable(current->mm))
		return -EINTR;
	addr = hint ? compat_get_unmapped_area(hint, len, flags) : 0;
	if (!hint || addr != hint)
		addr = compat_get_unmapped_area(0, len + pad, flags);
	if (IS_ERR_VALUE(addr) && pad) {
		addr = compat_get_unmapped_area(0, len, flags);
		pad = 0;
	}
	mmap_read_unlock(current->mm);
	if (IS_ERR_VALUE(addr) || addr == hint || !pad)
		return addr;
	/* The highest fitting address: what is left over stays in one piece. */
	return addr + pad - ((addr + pad - phase) & (align - 1));
}

/**
 * hpmmap_vma_count_missing() - blocks a commit of a range would need
 * @ctx: the caller's context, ctx->ops held
 * @start: first address
 * @end: end
 * @unreserved: out: how many of them are for MAP_NORESERVE mappings
 */
unsigned long hpmmap_vma_count_missing(struct hpmmap_ctx *ctx,
				       unsigned long start, unsigned long end,
				       unsigned long *unreserved)
{
	unsigned long n = 0, last = ULONG_MAX;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);

	mmap_read_lock(ctx->mm);
	for_each_vma_range(vmi, vma, end) {
		unsigned long lo = max(start, vma->vm_start);
		unsigned long hi = min(end, vma->vm_end), nr;

		if (!hpmmap_vma_is_ours(vma))
			continue;
		nr = hpmmap_store_missing(ctx, lo, hi);
		/* Two mappings in one slot need one block. */
		if (last == slot_of(lo) &&
		    !hpmmap_store_load(ctx, slot_of(lo)))
			nr--;
		last = slot_of(hi - 1);
		n += nr;
		if (vma->vm_flags & VM_NORESERVE)
			*unreserved += nr;
	}
	mmap_read_unlock(ctx->mm);
	return n;
}

static bool wants_collapse(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			   unsigned long addr)
{
	struct hpmmap_block *block = hpmmap_store_load(ctx, slot_of(addr));

	/* Mapped anew it would take the place of what is coming there. */
	if (atomic_read(&ctx->nr_replacing))
		return false;
	return vma->vm_start <= addr && vma->vm_end - SLOT_SIZE >= addr &&
	       !(vma->vm_flags & ~PLAIN_FLAGS) && !vma_policy(vma) &&
	       !(ctx->mm->def_flags & VM_LOCKED) &&
	       compat_maps_2m(ctx->mm) &&
	       block && block->folio && !hpmmap_block_is_hurt(block) &&
	       hpmmap_pgmap_slot(ctx->mm, addr) == HPMMAP_ENTRY_TABLE;
}

/*
 * Mapping the same again frees the table of 4 KB entries, and the next fill
 * installs one of 2 MB. Who accesses the slot in between takes a fault.
 */
static void collapse_slot(struct hpmmap_ctx *ctx, unsigned long addr,
			  vm_flags_t vm_flags, enum hpmmap_name name)
{
	map_named(ctx, name, addr, SLOT_SIZE, hpmmap_vma_prot(vm_flags),
		  MAP_FIXED | (vm_flags & VM_NORESERVE ? MAP_NORESERVE : 0));
}

/*
 * Commits and maps the part of a slot that one mapping covers. Returns
 * whether the slot should be collapsed.
 */
static bool commit_slot(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			unsigned long addr, struct list_head *blocks)
{
	unsigned long slot_start = addr & SLOT_MASK;
	unsigned long lo = max(vma->vm_start, slot_start);
	unsigned long hi = min(vma->vm_end, slot_start + SLOT_SIZE);
	struct hpmmap_block *block = hpmmap_store_load(ctx, slot_of(addr));
	enum hpmmap_commit how;

	/* What is locked is there. */
	if (!(vma->vm_flags & VM_LOCKED) &&
	    hpmmap_policy_defers(ctx, block, lo, hi)) {
		hpmmap_store_reserve(ctx, vma, slot_of(addr), blocks);
		return false;
	}
	block = hpmmap_store_commit(ctx, vma, lo, hi, blocks, &how);
	if (!block)
		return false;
	switch (how) {
	case HPMMAP_COMMIT_SHARED:
		/* Of what is locked, a copy: it has to be there. */
		if (hi - lo == SLOT_SIZE || vma->vm_flags & VM_LOCKED)
			hpmmap_pgmap_fault_in(vma, lo);
		return false;
	case HPMMAP_COMMIT_OWNED_NOW:
		hpmmap_vma_slot_owned(ctx, slot_of(addr), block);
		break;
	case HPMMAP_COMMIT_OWN:
		/* What would go again is not made. */
		if (wants_collapse(ctx, vma, slot_start))
			return true;
		atomic_long_add(hpmmap_pgmap_fill(vma, lo, hi, block, false),
				&ctx->stats.entries_4k);
		break;
	}
	return wants_collapse(ctx, vma, slot_start);
}

/* As far as whole slots can be mapped by one entry each; returns the end. */
static unsigned long commit_run(struct hpmmap_ctx *ctx,
				struct vm_area_struct *vma, unsigned long addr,
				unsigned long end, struct list_head *blocks)
{
	end = min(ALIGN(end, SLOT_SIZE), vma->vm_end & SLOT_MASK);
	if (addr & ~SLOT_MASK || addr >= end || ctx->job->first_touch ||
	    vma->vm_flags & (VM_LOCKED | VM_NOHUGEPAGE) ||
	    !compat_maps_2m(ctx->mm))
		return addr;
	return hpmmap_store_map_run(ctx, vma, addr, end, blocks);
}

/*
 * Where there is something to commit from *addr on: the mapping, or NULL. @vma
 * is the one before, or NULL. A reservation may have terabytes of slots without
 * a block: with @only_present they are left out.
 */
static struct vm_area_struct *commit_next(struct hpmmap_ctx *ctx,
					  struct vm_area_struct *vma,
					  unsigned long *addr,
					  unsigned long end, bool only_present)
{
	while (*addr < end && !fatal_signal_pending(current)) {
		unsigned long stop;

		if (!vma || vma->vm_end <= *addr)
			vma = find_vma_intersection(ctx->mm, *addr, end);
		if (!vma)
			break;
		*addr = max(*addr, vma->vm_start);
		stop = min(end, vma->vm_end);
		if (!hpmmap_vma_is_ours(vma) || !hpmmap_vma_is_accessible(vma))
			*addr = stop;
		else if (only_present)
			*addr = hpmmap_store_next(ctx, *addr, stop);
		if (*addr < stop)
			return vma;
		cond_resched();
	}
	return NULL;
}

static void commit_range(struct hpmmap_ctx *ctx, unsigned long start,
			 unsigned long end, struct list_head *blocks,
			 bool only_present)
{
	unsigned long addr = start, next = end;

	if (hpmmap_poison_seen() && start < end)
		hpmmap_store_heal(ctx, start, end);
	while (addr < end) {
		struct vm_area_struct *vma = NULL;
		enum hpmmap_name name = HPMMAP_NAME_NONE;
		vm_flags_t collapse_flags = 0;
		bool collapse = false;

		mmap_read_lock(ctx->mm);
		while ((vma = commit_next(ctx, vma, &addr, end,
					  only_present))) {
			next = commit_run(ctx, vma, addr, end, blocks);
			if (next == addr) {
				next = min(vma->vm_end,
					   (addr & SLOT_MASK) + SLOT_SIZE);
				collapse = commit_slot(ctx, vma, addr, blocks);
				collapse_flags = vma->vm_flags;
				name = file_name(vma->vm_file);
			}
			if (collapse)
				break;
			cond_resched();
			addr = next;
		}
		mmap_read_unlock(ctx->mm);
		if (!collapse)
			return;

		collapse_slot(ctx, addr & SLOT_MASK, collapse_flags, name);
		mmap_read_lock(ctx->mm);
		vma = find_vma_intersection(ctx->mm, addr, addr + 1);
		if (vma && hpmmap_vma_is_ours(vma) &&
		    hpmmap_vma_is_accessible(vma))
			commit_slot(ctx, vma, addr, NULL);
		mmap_read_unlock(ctx->mm);
		addr = next;
	}
}

/*
 * Advice that makes a mapping of its own of a piece, unless it is just this
 * that tells the piece from a neighbour. It has two of them.
 */
static const struct {
	vm_flags_t flag;
	int set;
	int clear;
} toggles[] = {
	{ VM_DONTDUMP, MADV_DONTDUMP, MADV_DODUMP },
	{ VM_DONTCOPY, MADV_DONTFORK, MADV_DOFORK },
	{ VM_SEQ_READ | VM_RAND_READ, MADV_SEQUENTIAL, MADV_NORMAL },
};

/* A piece of one mapping of ours, whose flags are @old. */
static long wipe_piece(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long len, vm_flags_t old, bool wipe)
{
	struct pt_regs regs = { .di = start, .si = len };
	struct vm_area_struct *vma;
	int i;

	for (i = 0; i < ARRAY_SIZE(toggles); i++) {
		vm_flags_t flag = toggles[i].flag;
		bool alone;
		long ret;

		regs.dx = old & flag ? toggles[i].clear : toggles[i].set;
		ret = hpmmap_call_orig(HPMMAP_CALL_MADVISE, &regs);
		if (ret)
			return ret;
		mmap_write_lock(ctx->mm);
		vma = vma_lookup(ctx->mm, start);
		alone = vma && hpmmap_vma_is_ours(vma) &&
			vma->vm_start == start && vma->vm_end == start + len;
		if (alone)
			compat_vm_flags_mod(vma, (old & flag) |
					    (wipe ? VM_WIPEONFORK : 0),
					    flag | VM_WIPEONFORK);
		mmap_write_unlock(ctx->mm);
		if (alone)
			return 0;
		regs.dx = old & flag ? toggles[i].set : toggles[i].clear;
		if (old & VM_RAND_READ & flag)
			regs.dx = MADV_RANDOM;
		hpmmap_call_orig(HPMMAP_CALL_MADVISE, &regs);
	}
	return -EAGAIN;
}

/**
 * hpmmap_vma_wipe_on_fork() - what madvise(2) cannot do to a shared mapping
 * @ctx: the caller's context, ctx->ops held
 * @start: first address, page aligned
 * @end: end, page aligned
 * @wipe: MADV_WIPEONFORK; otherwise MADV_KEEPONFORK
 *
 * Mappings are cut at both ends by an advice that they may have, which is
 * then taken back.
 *
 * Return: 0 or an errno of madvise(2).
 */
long hpmmap_vma_wipe_on_fork(struct hpmmap_ctx *ctx, unsigned long start,
			     unsigned long end, bool wipe)
{
	struct vm_area_struct *vma;
	unsigned long addr = start;
	bool hole = false;
	long ret;

	while (addr < end) {
		struct pt_regs regs;
		vm_flags_t old;
		bool ours;

		mmap_read_lock(ctx->mm);
		vma = find_vma_intersection(ctx->mm, addr, end);
		if (!vma) {
			mmap_read_unlock(ctx->mm);
			return -ENOMEM;
		}
		hole |= vma->vm_start > addr;
		regs.di = max(addr, vma->vm_start);
		addr = min(end, vma->vm_end);
		regs.si = addr - regs.di;
		old = vma->vm_flags;
		ours = hpmmap_vma_is_ours(vma);
		mmap_read_unlock(ctx->mm);

		if (ours && !(old & VM_WIPEONFORK) == !wipe)
			continue;
		if (ours) {
			ret = wipe_piece(ctx, regs.di, regs.si, old, wipe);
		} else {
			regs.dx = wipe ? MADV_WIPEONFORK : MADV_KEEPONFORK;
			ret = hpmmap_call_orig(HPMMAP_CALL_MADVISE, &regs);
		}
		if (ret)
			return ret;
		if (!ours)
			continue;
		/* Linux merges it with its neighbours when a flag changes. */
		regs.dx = old & VM_DONTDUMP ? MADV_DODUMP : MADV_DONTDUMP;
		hpmmap_call_orig(HPMMAP_CALL_MADVISE, &regs);
		regs.dx = old & VM_DONTDUMP ? MADV_DONTDUMP : MADV_DODUMP;
		hpmmap_call_orig(HPMMAP_CALL_MADVISE, &regs);
	}
	return hole ? -ENOMEM : 0;
}

/* As commit_slot(), for a block without stale pages there. Waits for nobody. */
static void restore_part(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			 unsigned long slot_start, struct hpmmap_block *block)
{
	unsigned long lo = max(vma->vm_start, slot_start);
	unsigned long hi = min(vma->vm_end, slot_start + SLOT_SIZE);
	unsigned int first, nr;

	slot_clip(slot_of(lo), lo, hi, &first, &nr);
	/* Those are left to a fault. */
	if (find_next_bit(block->stale, first + nr, first) < first + nr)
		return;
	atomic_long_add(hpmmap_pgmap_fill(vma, lo, hi, block, true),
			&ctx->stats.entries_4k);
}

/* Maps a slot's block as its mappings now allow. */
static bool remap_slot(struct hpmmap_ctx *ctx, unsigned long slot,
		       struct hpmmap_block *block, bool nowait)
{
	unsigned long start = slot << SLOT_SHIFT, end = start + SLOT_SIZE;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);
	bool flush = false;

	for_each_vma_range(vmi, vma, end) {
		if (!hpmmap_vma_is_ours(vma) ||
		    !hpmmap_vma_is_accessible(vma) ||
		    hpmmap_handback_covers(ctx, vma))
			continue;
		if (hpmmap_pgmap_slot(ctx->mm, start) == HPMMAP_ENTRY_2M)
			flush |= hpmmap_pgmap_unprotect(vma, start,
							block->folio);
		else if (nowait)
			restore_part(ctx, vma, start, block);
		else
			commit_slot(ctx, vma, max(start, vma->vm_start), NULL);
	}
	return flush;
}

/**
 * hpmmap_vma_remap_slot() - map a slot's block as its mappings now allow
 * @ctx: a context, not only the caller's; mmap_lock held
 * @slot: the slot
 * @block: its block, which is not shared
 *
 * Return: whether stale entries may have to be flushed.
 */
bool hpmmap_vma_remap_slot(struct hpmmap_ctx *ctx, unsigned long slot,
			   struct hpmmap_block *block)
{
	return remap_slot(ctx, slot, block, false);
}

/**
 * hpmmap_vma_restore_slot() - map a slot again that nobody shares any more
 * @ctx: a context, not the caller's; mmap_lock held
 * @slot: the slot
 * @block: its block, of the context's own
 *
 * As far as that is possible without waiting for anybody; the rest is left to
 * faults.
 *
 * Return: whether stale entries may have to be flushed.
 */
bool hpmmap_vma_restore_slot(struct hpmmap_ctx *ctx, unsigned long slot,
			     struct hpmmap_block *block)
{
	return remap_slot(ctx, slot, block, true);
}

/**
 * hpmmap_vma_slot_owned() - a slot's block became the context's own
 * @ctx: the context; mmap_lock held
 * @slot: the slot
 * @block: its block
 *
 * While it was shared the slot was mapped read-only, or not at all.
 */
void hpmmap_vma_slot_owned(struct hpmmap_ctx *ctx, unsigned long slot,
			   struct hpmmap_block *block)
{
	if (hpmmap_vma_remap_slot(ctx, slot, block))
		compat_flush_tlb_mm(ctx->mm);
}

/**
 * hpmmap_vma_commit() - give memory to the accessible mappings of a range
 * @ctx: the context, ctx->ops held; the caller's or of a child not running yet
 * @start: first address
 * @end: end
 * @blocks: blocks to use first, or NULL
 *
 * Everything is mapped when it returns, by one entry where a slot is covered
 * by one mapping; where the pools are exhausted it is left to faults. A slot is
 * always committed as far as its mapping covers it, even outside the range: the
 * core may map all of it with one entry.
 */
void hpmmap_vma_commit(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long end, struct list_head *blocks)
{
	commit_range(ctx, start, end, blocks, false);
}

/**
 * hpmmap_vma_repair() - map again what the core has unmapped
 * @ctx: the context, ctx->ops held
 * @start: first address
 * @end: end
 *
 * The core drops a 2 MB entry when a part of it changes. Slots without a
 * block stay without.
 */
void hpmmap_vma_repair(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long end)
{
	commit_range(ctx, start, end, NULL, true);
}

/**
 * hpmmap_vma_range_changed() - the mappings of a range are gone or others
 * @ctx: the context, ctx->ops held
 * @start: first address, page aligned
 * @end: end, page aligned
 *
 * Takes back blocks, and maps again what was cut at both ends.
 */
void hpmmap_vma_range_changed(struct hpmmap_ctx *ctx, unsigned long start,
			      unsigned long end)
{
	hpmmap_store_reconcile(ctx, start, end);
	hpmmap_vma_repair_ends(ctx, start, end, 0);
}

/* Below a mapping it is sure that the tables stay. */
static bool has_pages(struct hpmmap_ctx *ctx, unsigned long addr)
{
	struct vm_area_struct *vma = vma_lookup(ctx->mm, addr);

	return vma && hpmmap_vma_is_ours(vma) &&
	       hpmmap_pgmap_slot(ctx->mm, addr) == HPMMAP_ENTRY_TABLE;
}

/**
 * hpmmap_vma_intact_ends() - which ends of a range will need no repair
 * @ctx: the context, ctx->ops held
 * @start: first address of a range that is to be changed
 * @end: end
 *
 * Where a slot is mapped page by page the core changes nothing beyond the range.
 *
 * Return: HPMMAP_END_* for hpmmap_vma_repair_ends().
 */
unsigned int hpmmap_vma_intact_ends(struct hpmmap_ctx *ctx, unsigned long start,
				    unsigned long end)
{
	unsigned int intact = 0;

	if (!((start | end) & ~SLOT_MASK) || start >= end)
		return 0;
	mmap_read_lock(ctx->mm);
	if (start & ~SLOT_MASK && has_pages(ctx, start))
		intact |= HPMMAP_END_FIRST;
	if (end & ~SLOT_MASK && has_pages(ctx, end - 1))
		intact |= HPMMAP_END_LAST;
	mmap_read_unlock(ctx->mm);
	return intact;
}

/**
 * hpmmap_vma_repair_ends() - map again what lies next to a range
 * @ctx: the context, ctx->ops held
 * @start: first address, page aligned
 * @end: end, page aligned
 * @intact: what hpmmap_vma_intact_ends() said before, or 0
 *
 * In the slots of both ends the core may have dropped an entry of 2 MB.
 */
void hpmmap_vma_repair_ends(struct hpmmap_ctx *ctx, unsigned long start,
			    unsigned long end, unsigned int intact)
{
	if (!(intact & HPMMAP_END_FIRST))
		hpmmap_vma_repair(ctx, start & SLOT_MASK, start);
	if (!(intact & HPMMAP_END_LAST))
		hpmmap_vma_repair(ctx, end, ALIGN(end, SLOT_SIZE));
}
