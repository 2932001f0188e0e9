// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/hpmmap: one table of commands.
 */
#include <linux/fs_struct.h>
#include <linux/miscdevice.h>
#include <linux/namei.h>

#include "hpmmap.h"
#include "mem/block/account.h"
#include "mem/block/payer.h"
#include "mem/block/promise.h"
#include "mem/pool/pool.h"
#include "mem/pool/section.h"
#include "as/own/job.h"
#include "task/exec.h"
#include "chardev.h"
#include "runs.h"

/* What an open file keeps. */
struct opened {
	struct hpmmap_job *job;	/* the last one that was launched by it, with a reference */
	struct llist_head pins;	/* memory that stays where it is */
};

union command {
	struct hpmmap_info info;
	struct hpmmap_pool_add pool_add;
	struct hpmmap_pool_remove pool_remove;
	struct hpmmap_pool_list pool_list;
	struct hpmmap_launch launch;
	struct hpmmap_limit_set limit_set;
	struct hpmmap_limit_list limit_list;
	struct hpmmap_runs runs;
	struct hpmmap_promise_set promise_set;
	struct hpmmap_promise_list promise_list;
};

static int ioc_info(struct file *file, union command *cmd)
{
	struct hpmmap_info *arg = &cmd->info;

	if (arg->flags || arg->__reserved)
		return -EOPNOTSUPP;
	arg->abi_version = HPMMAP_ABI_VERSION;
	arg->memory_block_bytes = hpmmap_section_bytes();
	arg->features = HPMMAP_FEATURE_JOBS | HPMMAP_FEATURE_LIMITS;
	return 0;
}

static int ioc_pool_add(struct file *file, union command *cmd)
{
	struct hpmmap_pool_add *arg = &cmd->pool_add;
	int node = arg->node, ret;

	if (arg->flags & ~HPMMAP_POOL_F_MOVABLE || arg->__reserved)
		return -EOPNOTSUPP;
	if (node != NUMA_NO_NODE && (node < 0 || node >= MAX_NUMNODES))
		return -EINVAL;
	ret = hpmmap_pool_add(arg->start, arg->length, &node, arg->flags);
	arg->node = node;
	return ret;
}

static int ioc_pool_remove(struct file *file, union command *cmd)
{
	struct hpmmap_pool_remove *arg = &cmd->pool_remove;

	if (arg->flags)
		return -EOPNOTSUPP;
	arg->busy_bytes = 0;
	arg->pinned_bytes = 0;
	arg->bad_bytes = 0;
	return hpmmap_pool_remove(arg->start, arg->length, &arg->busy_bytes,
				  &arg->pinned_bytes, &arg->bad_bytes);
}

static int ioc_pool_list(struct file *file, union command *cmd)
{
	struct hpmmap_pool_list *arg = &cmd->pool_list;
	u32 size = arg->range_size ?: HPMMAP_POOL_RANGE_MIN_SIZE;

	if (arg->flags)
		return -EOPNOTSUPP;
	if (size < HPMMAP_POOL_RANGE_MIN_SIZE || size > PAGE_SIZE || size % 8)
		return -EINVAL;
	return hpmmap_pool_list(u64_to_user_ptr(arg->ranges), size, &arg->nr);
}

/* Takes over the caller's reference, in place of that to an earlier job. */
static void file_keep_job(struct file *file, struct hpmmap_job *job)
{
	struct opened *opened = file->private_data;
	struct hpmmap_job *old = xchg(&opened->job, job);

	if (old)
		hpmmap_job_put(old);
}

static int nodes_from_user(const struct hpmmap_launch *arg, nodemask_t *nodes)
{
	unsigned long __user *words = u64_to_user_ptr(arg->nodemask);
	unsigned long bits[BITS_TO_LONGS(1024)] = {};
	unsigned int nr = arg->nodemask_bits, bit;

	if (!arg->nodemask) {
		if (nr)
			return -EINVAL;
		*nodes = node_states[N_POSSIBLE];
		return 0;
	}
	if (!nr || nr > 1024)
		return -EINVAL;
	if (copy_from_user(bits, words, BITS_TO_LONGS(nr) * sizeof(long)))
		return -EFAULT;
	nodes_clear(*nodes);
	for_each_set_bit(bit, bits, nr)
		if (bit < MAX_NUMNODES && node_possible(bit))
			node_set(bit, *nodes);
	return nodes_empty(*nodes) ? -ENODEV : 0;
}

static int ioc_launch(struct file *file, union command *cmd)
{
	struct hpmmap_launch *arg = &cmd->launch;
	struct hpmmap_job *job;
	nodemask_t nodes;
	char *only;
	int ret;

	if (arg->flags & ~(HPMMAP_LAUNCH_F_STRICT |
			   HPMMAP_LAUNCH_F_NO_INHERIT |
			   HPMMAP_LAUNCH_F_INTERLEAVE |
			   HPMMAP_LAUNCH_F_IMAGE |
			   HPMMAP_LAUNCH_F_FIRST_TOUCH |
			   HPMMAP_LAUNCH_F_EAGER_STACKS |
			   HPMMAP_LAUNCH_F_SHARED_LINUX) || arg->__reserved)
		return -EOPNOTSUPP;
	if (arg->page_size && arg->page_size != HPMMAP_BLOCK_BYTES &&
	    arg->page_size != HPMMAP_LARGE_BYTES)
		return -EINVAL;
	if (hpmmap_launch_contradicts(arg))
		return -EINVAL;
	ret = nodes_from_user(arg, &nodes);
	if (ret)
		return ret;
	only = hpmmap_only_get(arg->only, arg->only_bytes);
	if (IS_ERR(only))
		return PTR_ERR(only);
	ret = hpmmap_launch(arg, &nodes, only, &job);
	if (ret)
		return ret;
	arg->job_id = job->id;
	file_keep_job(file, job);
	return 0;
}

/* One user, one cgroup, or, with @other, the default or a launch. */
static bool is_of_one(u32 flags, u32 other, u32 uid, int cgroup_fd)
{
	bool cgroup = flags & HPMMAP_LIMIT_F_CGROUP;

	other &= flags;
	if (other || cgroup ? uid != 0 : !uid_valid(make_kuid(&init_user_ns, uid)))
		return false;
	return !(other && cgroup) && (cgroup || !cgroup_fd);
}

static bool limit_is_possible(const struct hpmmap_limit_set *arg)
{
	if (arg->flags & HPMMAP_LIMIT_F_PERCENT)
		return arg->bytes >= 1 && arg->bytes <= 100;
	if (arg->bytes == HPMMAP_LIMIT_INHERIT)
		return !(arg->flags & HPMMAP_LIMIT_F_DEFAULT);
	return arg->bytes == HPMMAP_LIMIT_NONE ||
	       IS_ALIGNED(arg->bytes, HPMMAP_BLOCK_BYTES);
}

static int ioc_limit_set(struct file *file, union command *cmd)
{
	struct hpmmap_limit_set *arg = &cmd->limit_set;

	if (arg->flags & ~(HPMMAP_LIMIT_F_DEFAULT | HPMMAP_LIMIT_F_CGROUP |
			   HPMMAP_LIMIT_F_PERCENT))
		return -EOPNOTSUPP;
	if (!is_of_one(arg->flags, HPMMAP_LIMIT_F_DEFAULT, arg->uid, arg->cgroup_fd) ||
	    !limit_is_possible(arg))
		return -EINVAL;
	return hpmmap_limit_set(arg);
}

static int ioc_limit_list(struct file *file, union command *cmd)
{
	struct hpmmap_limit_list *arg = &cmd->limit_list;
	bool all = ns_capable_noaudit(&init_user_ns, CAP_SYS_ADMIN);

	if (arg->flags || arg->__reserved)
		return -EOPNOTSUPP;
	hpmmap_pool_gather();
	return hpmmap_limit_list(u64_to_user_ptr(arg->entries), &arg->nr, all);
}

static int ioc_promise_set(struct file *file, union command *cmd)
{
	struct hpmmap_promise_set *arg = &cmd->promise_set;
	bool launch = arg->flags & HPMMAP_PROMISE_F_LAUNCH;
	bool all = ns_capable_noaudit(&init_user_ns, CAP_SYS_ADMIN);
	struct opened *opened = file->private_data;
	struct hpmmap_job *job = NULL;
	struct hpmmap_payer *p;
	int ret;

	if (!launch && !all)
		return -EPERM;
	if (arg->flags & ~(HPMMAP_LIMIT_F_CGROUP | HPMMAP_PROMISE_F_LAUNCH))
		return -EOPNOTSUPP;
	if (!is_of_one(arg->flags, HPMMAP_PROMISE_F_LAUNCH, arg->uid, arg->cgroup_fd) ||
	    arg->nr > nr_node_ids)
		return -EINVAL;
	/* The file is without it meanwhile, so that the job cannot end. */
	if (launch) {
		job = xchg(&opened->job, NULL);
		if (!job)
			return -EINVAL;
		p = hpmmap_account_launch(job->account, job->id);
	} else {
		p = hpmmap_payer_get_named(arg->flags, arg->uid, arg->cgroup_fd);
	}
	ret = PTR_ERR_OR_ZERO(p);
	if (ret)
		goto out;
	hpmmap_pool_gather();
	ret = hpmmap_promise_set(p, arg, launch && !all);
	if (ret == -ENOSPC && all) {
		hpmmap_pool_reclaim_all();
		hpmmap_pool_gather();
		ret = hpmmap_promise_set(p, arg, launch && !all);
	}
	hpmmap_payer_put(p);
out:
	if (job && cmpxchg(&opened->job, NULL, job))
		hpmmap_job_put(job);
	return ret;
}

static int ioc_promise_list(struct file *file, union command *cmd)
{
	struct hpmmap_promise_list *arg = &cmd->promise_list;

	if (arg->flags || arg->__reserved)
		return -EOPNOTSUPP;
	hpmmap_pool_gather();
	return hpmmap_promise_list(u64_to_user_ptr(arg->entries), &arg->nr,
				   ns_capable_noaudit(&init_user_ns, CAP_SYS_ADMIN));
}

static int ioc_runs(struct file *file, union command *cmd)
{
	struct hpmmap_runs *arg = &cmd->runs;
	struct opened *opened = file->private_data;

	if (arg->flags || arg->__reserved)
		return -EOPNOTSUPP;
	if (!arg->length || !PAGE_ALIGNED(arg->start | arg->length) ||
	    arg->start + arg->length < arg->start)
		return -EINVAL;
	if (arg->start + arg->length > TASK_SIZE_MAX)
		return -EFAULT;
	return hpmmap_runs_pin(arg, &opened->pins);
}

/* One command. */
struct command_row {
	unsigned int cmd;	/* its number */
	size_t min_size;	/* size of the struct when it was first published */
	size_t size;		/* its size now */
	int cap;		/* needs this capability, or NO_CAP */
	/* Does it; out members are copied back whatever it returns. */
	int (*handler)(struct file *file, union command *cmd);
};

static const struct command_row rows[] = {
#define NO_CAP (-1)
#define ROW(nr, type, last, cap, fn) \
	[_IOC_NR(nr)] = { nr, offsetofend(type, last), sizeof(type), cap, fn }
	ROW(HPMMAP_IOC_INFO, struct hpmmap_info, features, NO_CAP, ioc_info),
	ROW(HPMMAP_IOC_POOL_ADD, struct hpmmap_pool_add, __reserved, CAP_SYS_ADMIN,
	    ioc_pool_add),
	ROW(HPMMAP_IOC_POOL_REMOVE, struct hpmmap_pool_remove, pinned_bytes,
	    CAP_SYS_ADMIN, ioc_pool_remove),
	ROW(HPMMAP_IOC_POOL_LIST, struct hpmmap_pool_list, range_size, NO_CAP,
	    ioc_pool_list),
	ROW(HPMMAP_IOC_LAUNCH, struct hpmmap_launch, job_id, NO_CAP,
	    ioc_launch),
	ROW(HPMMAP_IOC_LIMIT_SET, struct hpmmap_limit_set, bytes, CAP_SYS_ADMIN,
	    ioc_limit_set),
	ROW(HPMMAP_IOC_LIMIT_LIST, struct hpmmap_limit_list, __reserved, NO_CAP,
	    ioc_limit_list),
	ROW(HPMMAP_IOC_RUNS, struct hpmmap_runs, __reserved, CAP_SYS_RAWIO,
	    ioc_runs),
	ROW(HPMMAP_IOC_PROMISE_SET, struct hpmmap_promise_set, room_bytes, NO_CAP,
	    ioc_promise_set),
	ROW(HPMMAP_IOC_PROMISE_LIST, struct hpmmap_promise_list, __reserved, NO_CAP,
	    ioc_promise_list),
};

/* The size is the caller's: members beyond it are not copied. */
static int command_answer(void __user *user, union command *buf,
			  const struct command_row *row, u32 size)
{
	*(u32 *)buf = size;
	if (copy_to_user(user, buf, min_t(size_t, size, row->size)))
		return -EFAULT;
	return 0;
}

static long hpmmap_ioctl(struct file *file, unsigned int cmd,
			 unsigned long uptr)
{
	void __user *user = (void __user *)uptr;
	const struct command_row *row;
	union command buf = {};
	u32 size;
	long ret;

	/* The size is part of the number, and of the struct; the latter counts. */
	if (_IOC_TYPE(cmd) != HPMMAP_IOC_MAGIC ||
	    _IOC_NR(cmd) >= ARRAY_SIZE(rows))
		return -ENOTTY;
	row = &rows[_IOC_NR(cmd)];
	if (_IOC_DIR(cmd) != _IOC_DIR(row->cmd))
		return -ENOTTY;
	if (row->cap != NO_CAP && !capable(row->cap))
		return -EPERM;
	if (get_user(size, (u32 __user *)user))
		return -EFAULT;
	if (size < row->min_size)
		return -EINVAL;
	/* The rest is looked at, byte by byte. */
	if (size > PAGE_SIZE)
		return -E2BIG;
	ret = copy_struct_from_user(&buf, row->size, user, size);
	if (ret)
		return ret;
	/* Before anything is done: the answer will find room. */
	if (command_answer(user, &buf, row, size))
		return -EFAULT;
	ret = row->handler(file, &buf);
	return command_answer(user, &buf, row, size) ?: ret;
}

static int hpmmap_open(struct inode *inode, struct file *file)
{
	/* In place of the misc device. */
	file->private_data = kzalloc(sizeof(struct opened), GFP_KERNEL_ACCOUNT);
	return file->private_data ? 0 : -ENOMEM;
}

static int hpmmap_release(struct inode *inode, struct file *file)
{
	struct opened *opened = file->private_data;

	file_keep_job(file, NULL);
	hpmmap_runs_unpin(&opened->pins);
	kfree(opened);
	return 0;
}

static const struct file_operations hpmmap_chardev_fops = {
	.owner = THIS_MODULE,
	.open = hpmmap_open,
	.release = hpmmap_release,
	.unlocked_ioctl = hpmmap_ioctl,
	.llseek = noop_llseek,
};

/* For the group that udev gives it to; see the packaging. */
static struct miscdevice hpmmap_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "hpmmap",
	.fops = &hpmmap_chardev_fops,
	.mode = 0660,
};

/*
 * May the calling process open the device? As process 1 sees it (init_task has another root
 * since Linux 7.3), and as open(2) would decide: by owner, group, ACL, device cgroup,
 * and the security modules, some of which only look at files that are opened.
 */
bool hpmmap_chardev_may_open(void)
{
	struct path root, path;
	struct task_struct *init;
	struct inode *inode;
	struct file *file;
	bool ret;

	rcu_read_lock();
	init = READ_ONCE(init_pid_ns.child_reaper);
	task_lock(init);
	ret = init->fs;
	if (ret)
		get_fs_root(init->fs, &root);
	task_unlock(init);
	rcu_read_unlock();
	if (!ret)
		return false;
	ret = !vfs_path_lookup(root.dentry, root.mnt, "dev/hpmmap", 0, &path);
	path_put(&root);
	if (!ret)
		return false;
	inode = d_backing_inode(path.dentry);
	ret = S_ISCHR(inode->i_mode) &&
	      inode->i_rdev == MKDEV(MISC_MAJOR, hpmmap_misc.minor) &&
	      !path_permission(&path, MAY_READ | MAY_WRITE);
	if (ret) {
		file = dentry_open(&path, O_RDWR, current_cred());
		ret = !IS_ERR(file);
		if (ret)
			fput(file);
	}
	path_put(&path);
	return ret;
}

int hpmmap_chardev_init(void)
{
	return misc_register(&hpmmap_misc);
}

void hpmmap_chardev_exit(void)
{
	misc_deregister(&hpmmap_misc);
}
