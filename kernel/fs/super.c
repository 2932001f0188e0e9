// SPDX-License-Identifier: GPL-2.0
/*
 * Mounting file systems whose files are memory of the pools:
 * mount -t hpmmap -o size=64G,uid=1000,gid=1000,mode=0770 none /dev/hpmmapfs
 */
#include <linux/ctype.h>
#include <linux/fs_context.h>
#include <linux/fs_parser.h>
#include <linux/math64.h>
#include <linux/mount.h>
#include <linux/seq_file.h>
#include <linux/statfs.h>
#include <uapi/linux/magic.h>

#include "hpmmap.h"
#include "sysfs.h"
#include "mem/block/nodes.h"
#include "mem/pool/pool.h"
#include "as/map/gigabyte.h"
#include "as/life/failure.h"
#include "fs/files.h"
#include "fs/space.h"

#define DEFAULT_MODE (S_ISVTX | 0777)

/* Without nr_inodes= there is one inode for so many pages of the machine, 256 KB. */
#define PAGES_OF_INODE 64

static struct kmem_cache *inodes;

/* For files without a name, mounted while there are some. */
static struct vfsmount *internal;
static int internal_count;

void hpmmap_fs_unpin(void)
{
	simple_release_fs(&internal, &internal_count);
}

/* How often it is to be given up. */
static atomic_t nr_unpins;

static void unpin_work_fn(struct work_struct *work)
{
	int nr = atomic_xchg(&nr_unpins, 0);

	while (nr--)
		hpmmap_fs_unpin();
}

static DECLARE_WORK(unpin_work, unpin_work_fn);

static void info_init_once(void *object)
{
	struct hpmmap_fs_inode *info = object;

	mutex_init(&info->holes);
	inode_init_once(&info->linux_info.vfs_inode);
}

static struct inode *fs_alloc_inode(struct super_block *sb)
{
	struct hpmmap_fs_inode *info = alloc_inode_sb(sb, inodes, GFP_KERNEL);
	struct shmem_inode_info *linux_info;

	if (!info)
		return NULL;
	xa_init_flags(&info->blocks, XA_FLAGS_ACCOUNT);
	info->nr = 0;
	info->pins = false;
	linux_info = &info->linux_info;
	memset(linux_info, 0, offsetof(struct shmem_inode_info, vfs_inode));
	spin_lock_init(&linux_info->lock);
	return &linux_info->vfs_inode;
}

/*
 * After a grace period. The task that puts an inode last may have its file system locked
 * (drop_caches goes through all inodes of all), and needs that once more after the inode was
 * evicted. So the inode keeps the file system until now, and a worker unmounts it.
 */
static void fs_free_inode(struct inode *inode)
{
	bool pins = hpmmap_fs_inode(inode)->pins;

	if (S_ISLNK(inode->i_mode))
		kfree(inode->i_link);
	kmem_cache_free(inodes, hpmmap_fs_inode(inode));
	if (!pins)
		return;
	atomic_inc(&nr_unpins);
	queue_work(hpmmap_wq, &unpin_work);
}

/* It has no reference any more, and no name. */
static void fs_evict_inode(struct inode *inode)
{
	truncate_inode_pages_final(&inode->i_data);
	hpmmap_fs_cut(inode, 0);
	xa_destroy(&hpmmap_fs_inode(inode)->blocks);
	clear_inode(inode);
	hpmmap_fs_uncharge_inode(hpmmap_fs_of(inode->i_sb));
}

static int fs_statfs(struct dentry *dentry, struct kstatfs *buf)
{
	struct super_block *sb = dentry->d_sb;
	struct hpmmap_fs *fs = hpmmap_fs_of(sb);
	const nodemask_t *all = &node_states[N_POSSIBLE];
	unsigned long free;

	hpmmap_pool_gather();
	free = hpmmap_pool_count_free(all) + hpmmap_pool_count_out(all);
	buf->f_type = sb->s_magic;
	buf->f_bsize = sb->s_blocksize;
	buf->f_namelen = NAME_MAX;
	buf->f_fsid = u64_to_fsid(huge_encode_dev(sb->s_dev));
	spin_lock(&fs->lock);
	if (fs->limit == HPMMAP_FS_NO_LIMIT) {
		buf->f_blocks = hpmmap_pool_count_all(all);
	} else {
		buf->f_blocks = fs->limit;
		free = min(free, fs->limit - min(fs->used, fs->limit));
	}
	if (fs->inode_limit != HPMMAP_FS_NO_LIMIT) {
		buf->f_files = fs->inode_limit;
		buf->f_ffree = fs->inode_limit - fs->inodes;
	}
	spin_unlock(&fs->lock);
	buf->f_blocks >>= sb->s_blocksize_bits - SLOT_SHIFT;
	buf->f_bfree = free >> (sb->s_blocksize_bits - SLOT_SHIFT);
	buf->f_bavail = buf->f_bfree;
	return 0;
}

/* What mount(8) may give to a remount again. */
static int fs_show_options(struct seq_file *seq, struct dentry *root)
{
	struct hpmmap_fs *fs = hpmmap_fs_of(root->d_sb);
	struct inode *inode = d_inode(root);
	unsigned long limit = READ_ONCE(fs->limit), inodes = READ_ONCE(fs->inode_limit);

	if (fs->page_size)
		seq_printf(seq, ",pagesize=%luM", fs->page_size >> 20);
	if (READ_ONCE(fs->keeps))
		seq_puts(seq, ",noholes");
	seq_printf(seq, ",nr_inodes=%lu", inodes == HPMMAP_FS_NO_LIMIT ? 0 : inodes);
	if (limit != HPMMAP_FS_NO_LIMIT)
		seq_printf(seq, ",size=%lluk", (u64)limit << (SLOT_SHIFT - 10));
	seq_printf(seq, ",mode=%03ho", inode->i_mode & S_IALLUGO);
	if (!uid_eq(inode->i_uid, GLOBAL_ROOT_UID))
		seq_printf(seq, ",uid=%u", from_kuid_munged(&init_user_ns, inode->i_uid));
	if (!gid_eq(inode->i_gid, GLOBAL_ROOT_GID))
		seq_printf(seq, ",gid=%u", from_kgid_munged(&init_user_ns, inode->i_gid));
	return 0;
}

static const struct super_operations super_ops = {
	.alloc_inode = fs_alloc_inode,
	.free_inode = fs_free_inode,
	.evict_inode = fs_evict_inode,
	.drop_inode = compat_drop_inode,
	.statfs = fs_statfs,
	.show_options = fs_show_options,
};

enum {
	OPT_SIZE,
	OPT_NR_INODES,
	OPT_PAGESIZE,
	OPT_HOLES,
	OPT_UID,
	OPT_GID,
	OPT_MODE,
};

static const struct fs_parameter_spec parameters[] = {
	fsparam_string("size", OPT_SIZE),
	fsparam_string("nr_inodes", OPT_NR_INODES),
	fsparam_string("pagesize", OPT_PAGESIZE),
	fsparam_flag_no("holes", OPT_HOLES),
	fsparam_u32("uid", OPT_UID),
	fsparam_u32("gid", OPT_GID),
	fsparam_u32oct("mode", OPT_MODE),
	{}
};

/* What a mount asks for. */
struct options {
	unsigned long limit;		/* blocks; 0: those of before */
	unsigned long inode_limit;	/* inodes and further names; the same */
	unsigned long page_size;	/* what statfs(2) says, as hugetlbfs; 0: another kind */
	int holes;			/* FALLOC_FL_PUNCH_HOLE: 1 makes some, -1 none; 0: as before */
	kuid_t uid;			/* of the first directory */
	kgid_t gid;			/* the same */
	umode_t mode;			/* the same */
};

/*
 * A number with a suffix, of bytes also a share of all pool memory. 0 means no limit, as on
 * tmpfs.
 */
static int parse_limit(struct fs_context *fc, const struct fs_parameter *param, bool bytes,
		       unsigned long *limit)
{
	char *end;
	u64 nr = memparse(param->string, &end);

	if (bytes && *end == '%' && nr <= 100) {
		nr = div_u64((u64)hpmmap_pool_count_all(&node_states[N_POSSIBLE]) * nr,
			     100) << SLOT_SHIFT;
		if (!nr)
			return invalf(fc, "hpmmap: size is a share of no pool memory");
		end++;
	}
	if (!isdigit(*param->string) || *end || nr > MAX_LFS_FILESIZE)
		return invalf(fc, "hpmmap: %s is no number%s: '%s'", param->key,
			      bytes ? ", nor a share up to 100%" : "", param->string);
	*limit = (bytes ? hpmmap_fs_blocks(nr) : nr) ?: HPMMAP_FS_NO_LIMIT;
	return 0;
}

/*
 * Programs that look for huge pages, as QEMU and libvirt, ask statfs(2) for their size. With 1 GB files have
 * entries of 1 GB in every process.
 */
static int parse_page_size(struct fs_context *fc, const struct fs_parameter *param,
			   unsigned long *page_size)
{
	char *end;
	u64 size = memparse(param->string, &end);

	if (*end || (size != SLOT_SIZE && size != HPMMAP_LARGE_BYTES))
		return invalf(fc, "hpmmap: pagesize is 2M or 1G, not '%s'", param->string);
	*page_size = size;
	return 0;
}

static int fs_parse_param(struct fs_context *fc, struct fs_parameter *param)
{
	struct options *options = fc->fs_private;
	struct fs_parse_result result;
	int opt = fs_parse(fc, parameters, param, &result);
	int ret = 0;

	if (opt < 0)
		return opt;
	switch (opt) {
	case OPT_SIZE:
		ret = parse_limit(fc, param, true, &options->limit);
		break;
	case OPT_NR_INODES:
		ret = parse_limit(fc, param, false, &options->inode_limit);
		break;
	case OPT_PAGESIZE:
		ret = parse_page_size(fc, param, &options->page_size);
		break;
	case OPT_HOLES:
		options->holes = result.negated ? -1 : 1;
		break;
	case OPT_UID:
		options->uid = make_kuid(current_user_ns(), result.uint_32);
		if (!uid_valid(options->uid))
			ret = invalf(fc, "hpmmap: uid is no user");
		break;
	case OPT_GID:
		options->gid = make_kgid(current_user_ns(), result.uint_32);
		if (!gid_valid(options->gid))
			ret = invalf(fc, "hpmmap: gid is no group");
		break;
	case OPT_MODE:
		if (result.uint_32 & ~S_IALLUGO)
			ret = invalf(fc, "hpmmap: mode has bits that are none of a mode");
		options->mode = result.uint_32 & S_IALLUGO;
		break;
	}
	return ret;
}

static int fs_fill_super(struct super_block *sb, struct fs_context *fc)
{
	const struct options *options = fc->fs_private;
	struct hpmmap_fs *fs = hpmmap_fs_alloc();
	struct inode *inode;

	if (!fs)
		return -ENOMEM;
	sb->s_fs_info = fs;
	fs->limit = options->limit;
	fs->page_size = options->page_size;
	if (sb->s_flags & SB_KERNMOUNT)
		/* AppArmor looks for the path of a file without this flag, and these have none. */
		sb->s_flags |= SB_NOUSER;
	else
		fs->inode_limit = options->inode_limit;
	sb->s_maxbytes = MAX_LFS_FILESIZE;
	sb->s_max_links = INT_MAX;
	sb->s_blocksize = options->page_size ?: SLOT_SIZE;
	sb->s_blocksize_bits = __ffs(sb->s_blocksize);
	/* Files without a name are what those of tmpfs are. */
	sb->s_magic = sb->s_flags & SB_KERNMOUNT ? TMPFS_MAGIC :
		      options->page_size ? HUGETLBFS_MAGIC : HPMMAP_FS_MAGIC;
	/* Programs share files without a name as memory that takes no faults. */
	fs->keeps = options->holes < 0 || sb->s_flags & SB_KERNMOUNT;
	sb->s_op = &super_ops;
	sb->s_time_gran = 1;
	inode = hpmmap_fs_new(sb, compat_nop_idmap, NULL, S_IFDIR | options->mode, 0);
	if (!inode)
		return -ENOMEM;
	inode->i_uid = options->uid;
	inode->i_gid = options->gid;
	sb->s_root = d_make_root(inode);
	if (!sb->s_root)
		return -ENOMEM;
	if (!(sb->s_flags & SB_KERNMOUNT))
		atomic_long_inc(&hpmmap_fs_counts[HPMMAP_FS_MOUNTS]);
	return 0;
}

static bool holds_a_page(const struct fs_context *fc, unsigned long limit, unsigned long page_size)
{
	if (limit >= page_size >> SLOT_SHIFT)
		return true;
	errorf(fc, "hpmmap: size is less than pagesize");
	return false;
}

static int fs_get_tree(struct fs_context *fc)
{
	const struct options *options = fc->fs_private;

	if (!holds_a_page(fc, options->limit, options->page_size))
		return -EINVAL;
	if (options->page_size == PUD_SIZE && hpmmap_gigabytes_begin())
		return invalf(fc, "hpmmap: pagesize=1G: no entries of 1 GB here, see /sys/kernel/hpmmap/gigabytes: %s",
			      hpmmap_gigabytes_possible());
	return get_tree_nodev(fc, fs_fill_super);
}

/* The first directory stays as it is, as on tmpfs. */
static int fs_reconfigure(struct fs_context *fc)
{
	const struct options *options = fc->fs_private;
	struct hpmmap_fs *fs = hpmmap_fs_of(fc->root->d_sb);
	unsigned long limit, inode_limit;
	bool fits;

	if (options->page_size && options->page_size != fs->page_size)
		return invalf(fc, "hpmmap: a remount cannot change pagesize");
	if (options->limit && !holds_a_page(fc, options->limit, fs->page_size))
		return -EINVAL;
	spin_lock(&fs->lock);
	limit = options->limit ?: fs->limit;
	inode_limit = options->inode_limit ?: fs->inode_limit;
	fits = (limit == fs->limit || limit >= fs->used) && inode_limit >= fs->inodes;
	if (fits) {
		fs->limit = limit;
		fs->inode_limit = inode_limit;
		if (options->holes)
			WRITE_ONCE(fs->keeps, options->holes < 0);
	}
	spin_unlock(&fs->lock);
	return fits ? 0 :
	       invalf(fc, "hpmmap: size or nr_inodes is less than what is used: see df");
}

static void fs_free_context(struct fs_context *fc)
{
	kfree(fc->fs_private);
}

static const struct fs_context_operations context_ops = {
	.parse_param = fs_parse_param,
	.get_tree = fs_get_tree,
	.reconfigure = fs_reconfigure,
	.free = fs_free_context,
};

static int fs_init_context(struct fs_context *fc)
{
	struct options *options = kzalloc(sizeof(*options), GFP_KERNEL_ACCOUNT);

	if (!options)
		return -ENOMEM;
	options->limit = HPMMAP_FS_NO_LIMIT;
	options->inode_limit = totalram_pages() / PAGES_OF_INODE;
	/* A remount changes what it names. */
	if (fc->root)
		options->limit = options->inode_limit = 0;
	options->uid = current_fsuid();
	options->gid = current_fsgid();
	options->mode = DEFAULT_MODE;
	fc->fs_private = options;
	fc->ops = &context_ops;
	/* The right to mount is checked in the first namespace, and all share the internal one. */
	fc->global = true;
	return 0;
}

static void fs_kill_super(struct super_block *sb)
{
	struct hpmmap_fs *fs = hpmmap_fs_of(sb);
	bool counted = sb->s_root && !(sb->s_flags & SB_KERNMOUNT);

	compat_kill_super(sb);
	if (!fs)
		return;
	if (counted)
		atomic_long_dec(&hpmmap_fs_counts[HPMMAP_FS_MOUNTS]);
	/* Blocks that are pinned may keep it. */
	hpmmap_fs_put(fs);
}

static struct file_system_type type = {
	.owner = THIS_MODULE,
	.name = "hpmmap",
	.init_fs_context = fs_init_context,
	.parameters = parameters,
	.kill_sb = fs_kill_super,
};
MODULE_ALIAS_FS("hpmmap");

/* The file system of files without a name; undone by hpmmap_fs_unpin(), or an ERR_PTR. */
struct vfsmount *hpmmap_fs_pin(void)
{
	int ret = simple_pin_fs(&type, &internal, &internal_count);

	return ret ? ERR_PTR(ret) : internal;
}

/* What /sys/kernel/hpmmap/shared shows: see docs/sysfs.md. */
#define SHARED_ATTR(_file, _what, _shift) \
	HPMMAP_ATTR(_file, "%ld", atomic_long_read(&hpmmap_fs_counts[_what]) << (_shift))

SHARED_ATTR(mounts, HPMMAP_FS_MOUNTS, 0);
SHARED_ATTR(files, HPMMAP_FS_FILES, 0);
SHARED_ATTR(held_bytes, HPMMAP_FS_BLOCKS, SLOT_SHIFT);
SHARED_ATTR(pinned_bytes, HPMMAP_FS_PINNED, SLOT_SHIFT);

#define GIGABYTE_ATTR(_file, _what) \
	HPMMAP_ATTR(_file, "%ld", atomic_long_read(&hpmmap_gigabyte_counts[_what]))

GIGABYTE_ATTR(entries_1g, HPMMAP_GIGABYTE_ENTRIES);
GIGABYTE_ATTR(splits_1g, HPMMAP_GIGABYTE_SPLITS);
GIGABYTE_ATTR(joins_1g, HPMMAP_GIGABYTE_JOINS);

static const struct attribute *shared_attrs[] = {
	&mounts_attr.attr,
	&files_attr.attr,
	&held_bytes_attr.attr,
	&pinned_bytes_attr.attr,
	&entries_1g_attr.attr,
	&splits_1g_attr.attr,
	&joins_1g_attr.attr,
	NULL,
};

/* It can be mounted. */
int hpmmap_fs_init(void)
{
	int ret = hpmmap_fs_space_init();

	if (ret)
		return ret;
	inodes = kmem_cache_create("hpmmap_inode", sizeof(struct hpmmap_fs_inode), 0,
				   SLAB_RECLAIM_ACCOUNT | SLAB_ACCOUNT, info_init_once);
	ret = -ENOMEM;
	if (!inodes)
		goto err_space;
	ret = register_filesystem(&type);
	if (ret)
		goto err_cache;
	ret = sysfs_create_files(hpmmap_sysfs_dir(HPMMAP_DIR_SHARED), shared_attrs);
	if (ret)
		goto err_type;
	hpmmap_failure_set_files(hpmmap_fs_fail);
	return 0;

err_type:
	unregister_filesystem(&type);
err_cache:
	kmem_cache_destroy(inodes);
err_space:
	hpmmap_fs_space_exit();
	return ret;
}

/* A mount keeps the module loaded, so there is none left. */
void hpmmap_fs_exit(void)
{
	hpmmap_failure_set_files(NULL);
	sysfs_remove_files(hpmmap_sysfs_dir(HPMMAP_DIR_SHARED), shared_attrs);
	unregister_filesystem(&type);
	/* Inodes are freed a grace period later; a work that has unmounted may not have returned yet. */
	rcu_barrier();
	flush_work(&unpin_work);
	kmem_cache_destroy(inodes);
	hpmmap_fs_space_exit();
}
