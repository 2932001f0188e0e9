// SPDX-License-Identifier: GPL-2.0
/*
 * The file of a context, and mapping it.
 *
 * It has no contents of its own. Its offset equals the virtual address, so
 * mappings that touch merge, and the memory is found by address in the store of
 * the address space that faults, not of the file's owner: right after fork the
 * child's mappings still name the parent's file.
 *
 * What /proc/PID/maps shows is the name of a file, so the heap has a file of its own, of the
 * same inode; so have the stacks of threads, which is how they are known.
 */
#include <linux/dcache.h>
#include <linux/mount.h>
#include <linux/pseudo_fs.h>

#include "hpmmap.h"
#include "as/own/ctx.h"
#include "as/map/file.h"
#include "as/map/vma.h"

#define PSEUDO_MAGIC 0x48504d4d

/* Of our mappings, and of no others: that is how they are known. */
const struct vm_operations_struct *hpmmap_vm_ops __ro_after_init;

static struct vfsmount *hpmmap_mnt;
static int hpmmap_mnt_count;

static int hpmmap_file_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct hpmmap_ctx *ctx;
	bool ours;

	ctx = hpmmap_ctx_get(vma->vm_mm);
	if (!ctx)
		return -EPERM;
	ours = file_inode(ctx->file) == file_inode(file) &&
	       vma->vm_pgoff == vma->vm_start >> PAGE_SHIFT && vma->vm_flags & VM_SHARED;
	hpmmap_ctx_put(ctx);
	if (!ours)
		return -EINVAL;
	vma->vm_ops = hpmmap_vm_ops;
	return 0;
}

/* It cannot be opened: mappings are made by the module only. */
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

/*
 * Blocks stay whole. The core asks before it splits a folio, as MADV_COLD of a part does: then it would
 * unmap it, and take what its reverse map finds in an entry of 1 GB for a table.
 */
static bool is_released(struct folio *folio, gfp_t gfp)
{
	return false;
}

/* That a page was written to need not be known: there is nowhere else to write it to. */
const struct address_space_operations hpmmap_aops = {
	.dirty_folio = noop_dirty_folio,
	.release_folio = is_released,
};

const struct address_space_operations hpmmap_fs_aops = {
	.dirty_folio = noop_dirty_folio,
	.release_folio = is_released,
};

/*
 * As Linux calls private memory. A core dump's list of files leaves out what has
 * no path; the contents are dumped nevertheless. gdb's gcore takes shared memory for that of a
 * file if it has a name, and leaves it out: to a debugger the heap has none.
 */
static char *hpmmap_dname(struct dentry *dentry, char *buffer, int len)
{
	int size = list_empty(&current->ptraced) ? dentry->d_name.len + 1 : 1;

	if (current->flags & PF_DUMPCORE)
		return ERR_PTR(-ENOENT);
	if (size > len)
		return ERR_PTR(-ENAMETOOLONG);
	buffer[len - 1] = '\0';
	return memcpy(buffer + len - size, dentry->d_name.name, size - 1);
}

/*
 * Bit 0 of coredump_filter decides over these mappings, as over private memory: a core dump has all
 * mappings with a name of this kind. Of the others it looks at the bit for shared mappings of
 * linked files, 3, which is seldom set.
 */
const char *hpmmap_vma_dump_name(struct vm_area_struct *vma)
{
	return current->flags & PF_DUMPCORE && !(vma->vm_flags & VM_DONTDUMP) &&
	       compat_mm_flag(vma->vm_mm, MMF_DUMP_ANON_PRIVATE) ? "" : NULL;
}

static const struct dentry_operations hpmmap_dops = {
	.d_dname = hpmmap_dname,
};

static int hpmmap_init_fs_context(struct fs_context *fc)
{
	struct pseudo_fs_context *ctx = init_pseudo(fc, PSEUDO_MAGIC);

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
	[HPMMAP_NAME_THREAD] = "",
};

/* A file of an inode, one reference to which is given up. */
static struct file *file_open(struct inode *inode, const char *name,
			      const struct file_operations *fops)
{
	struct file *file;

	/* Given back by the last fput(). */
	__module_get(THIS_MODULE);
	file = alloc_file_pseudo(inode, hpmmap_mnt, name, O_RDWR | O_LARGEFILE, fops);
	if (IS_ERR(file)) {
		module_put(THIS_MODULE);
		iput(inode);
	}
	return file;
}

/* One of a context's files. */
static struct file *file_of(struct inode *inode, enum hpmmap_name name)
{
	struct file *file = file_open(inode, names[name], &hpmmap_fops);

	if (!IS_ERR(file))
		file->private_data = (void *)(unsigned long)name;
	return file;
}

/* What Linux asks of the pages of a mapping. */
void hpmmap_file_mapping_init(struct address_space *mapping,
			      const struct address_space_operations *ops)
{
	mapping->a_ops = ops;
	mapping_set_unevictable(mapping);
	compat_release_always(mapping);
	/*
	 * Below the zones a policy cares for: NUMA balancing stays away, except where there is no ZONE_DMA (GFP_DMA
	 * means ZONE_NORMAL then) and only movable memory above ZONE_DMA32.
	 */
	mapping_set_gfp_mask(mapping, GFP_KERNEL |
			     (IS_ENABLED(CONFIG_ZONE_DMA) ? GFP_DMA : GFP_DMA32));
}

/*
 * A new file with an inode of its own. The file system is mounted while there are files:
 * so long it keeps the module.
 */
static struct file *file_new(const char *name, const struct file_operations *fops)
{
	struct inode *inode;
	struct file *file;
	int ret;

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
	inode->i_fop = fops;
	inode->i_flags |= S_NOCMTIME | S_NOATIME | S_PRIVATE;
	inode->i_size = MAX_LFS_FILESIZE;
	hpmmap_file_mapping_init(inode->i_mapping, &hpmmap_aops);
	/* Never one that is only read, which khugepaged has pages of its own for. */
	atomic_set(&inode->i_writecount, 1);
	file = file_open(inode, name, fops);
	if (IS_ERR(file))
		simple_release_fs(&hpmmap_mnt, &hpmmap_mnt_count);
	return file;
}

/*
 * The file of a new context, to be given back by hpmmap_file_put(), or an ERR_PTR. The
 * caller keeps the module loaded while this runs.
 */
struct file *hpmmap_file_alloc(void)
{
	return file_new(names[HPMMAP_NAME_NONE], &hpmmap_fops);
}

/*
 * A file of a window, or an ERR_PTR. @fops: its release has to call
 * hpmmap_file_window_end(). @mapping: where its mappings are to be found, from
 * hpmmap_file_window_mapping(). The caller keeps the module loaded while this runs.
 */
struct file *hpmmap_file_window(const struct file_operations *fops, struct address_space *mapping)
{
	struct file *file = file_new("[window]", fops);

	if (!IS_ERR(file))
		file->f_mapping = mapping;
	return file;
}

/* A file of a window is released. */
void hpmmap_file_window_end(void)
{
	simple_release_fs(&hpmmap_mnt, &hpmmap_mnt_count);
}

/*
 * Gets zeroed memory ready for the mappings of a window to hang on; it has no pages of its
 * own. Returns 0, to be undone by hpmmap_file_window_end(), or an errno.
 */
int hpmmap_file_window_mapping(struct address_space *mapping)
{
	static struct lock_class_key key;
	int ret;

	ret = simple_pin_fs(&hpmmap_fs_type, &hpmmap_mnt, &hpmmap_mnt_count);
	if (ret)
		return ret;
	address_space_init_once(mapping);
	/* Taken in notifiers, under that of an ordinary file. */
	lockdep_set_class(&mapping->i_mmap_rwsem, &key);
	mapping->host = d_inode(hpmmap_mnt->mnt_root);
	hpmmap_file_mapping_init(mapping, &hpmmap_aops);
	return 0;
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

/* Linux names the heap up to the break. */
static enum hpmmap_name name_of(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end)
{
	return start >= ctx->mm->start_brk && end <= ctx->heap_end ?
	       HPMMAP_NAME_HEAP : HPMMAP_NAME_NONE;
}

/* As hpmmap_vma_map(), under a name that is known. */
unsigned long hpmmap_file_map_named(struct hpmmap_ctx *ctx, enum hpmmap_name name,
			       unsigned long addr, unsigned long len,
			       unsigned long prot, unsigned long flags)
{
	ctx->hole.end = 0;
	return vm_mmap(file_named(ctx, name), addr, len, prot, MAP_SHARED | flags, addr);
}

/*
 * Maps a range of a context's file, whose offset is the address. ctx->ops is held. @flags:
 * MAP_FIXED or MAP_FIXED_NOREPLACE, and MAP_NORESERVE, MAP_LOCKED, MAP_STACK. Returns @addr
 * or an errno, as mmap(2).
 */
unsigned long hpmmap_vma_map(struct hpmmap_ctx *ctx, unsigned long addr,
			     unsigned long len, unsigned long prot,
			     unsigned long flags)
{
	lockdep_assert_held(&ctx->ops);
	/* To Linux MAP_STACK means small pages. */
	return hpmmap_file_map_named(ctx, flags & MAP_STACK ? HPMMAP_NAME_THREAD :
				     name_of(ctx, addr, addr + len), addr, len,
				     prot, flags & ~MAP_STACK);
}

/* What a mapping of a file of ours is called. */
enum hpmmap_name hpmmap_file_name(const struct file *file)
{
	return (enum hpmmap_name)(unsigned long)file->private_data;
}

/*
 * Is a mapping of ours a stack? To a job whose stacks have all their memory at once they
 * are mappings like others.
 */
bool hpmmap_vma_is_stack(const struct hpmmap_ctx *ctx, const struct vm_area_struct *vma)
{
	return !ctx->job->eager_stacks && hpmmap_file_name(vma->vm_file) == HPMMAP_NAME_THREAD;
}

/* May memory of a mapping of ours wait until it is touched? */
bool hpmmap_vma_grows(const struct hpmmap_ctx *ctx, const struct vm_area_struct *vma)
{
	return hpmmap_vma_is_stack(ctx, vma) && !(vma->vm_flags & VM_LOCKED);
}

/* Where the part of a mapping of ours begins that has memory at once. */
unsigned long hpmmap_vma_given(const struct hpmmap_ctx *ctx, const struct vm_area_struct *vma)
{
	return hpmmap_vma_grows(ctx, vma) ?
	       hpmmap_stack_given(vma->vm_start, vma->vm_end) : vma->vm_start;
}

/*
 * Mappings that a child inherited become those of its own file: they merge with what the
 * child maps only if the file is the same, and an unmapping by the file has to find them
 * all. ctx->ops is held, and mmap_lock for writing.
 */
void hpmmap_vma_own_file(struct hpmmap_ctx *ctx)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, 0);

	lockdep_assert_held(&ctx->ops);
	mmap_assert_write_locked(ctx->mm);
	for_each_vma(vmi, vma)
		if (hpmmap_vma_is_ours(vma) && file_inode(vma->vm_file) != file_inode(ctx->file))
			compat_vma_set_file(vma, file_named(ctx, hpmmap_file_name(vma->vm_file)));
}
