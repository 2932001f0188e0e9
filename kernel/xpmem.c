// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/xpmem: which process may have windows onto which, by the ABI of XPMEM.
 *
 * A process publishes a part of its address space, a segment; another one gets a permit for it,
 * and attaches it. Segments and permits belong to the address space that made them, as a child
 * may have inherited the file, and end with the file at the latest.
 */
#include <linux/list_sort.h>
#include <linux/miscdevice.h>
#include <linux/user_namespace.h>

#include "uapi/hpmmap_xpmem.h"
#include "hpmmap.h"
#include "as/map/window.h"
#include "as/view/attach.h"
#include "chardev.h"

/* Segments and permits of one file at most. */
#define MOST_OF_FILE 65536

static bool device = true;
module_param_named(xpmem, device, bool, 0444);
MODULE_PARM_DESC(xpmem, "offer /dev/xpmem (default: yes)");

static bool others;
module_param_named(xpmem_others, others, bool, 0644);
MODULE_PARM_DESC(xpmem_others, "a segment's mode may let other users attach it (default: no)");

/* An open file. */
struct xpmem_file {
	struct mutex lock;		/* protects @objects of the file */
	unsigned int nr;		/* how many there are */
	struct list_head objects;	/* all segments and permits that were made by it */
};

/*
 * A segment or a permit.
 *
 * Immutable, except for @grant and @link.
 */
struct object {
	/*
	 * What attachments rest on; has the references of its number, of lookups and of
	 * attachments. A permit's rests on its segment's.
	 */
	struct hpmmap_grant grant;
	struct list_head link;		/* in its file's list */
	struct xpmem_file *file;	/* the file that it was made by; only compared */
	struct mm_struct *mm;		/* the address space that it belongs to; mmgrab()bed */
	u32 id;				/* its number */
	struct hpmmap_window *win;	/* of a segment: its window, with a reference */
	u64 start;			/* of a segment: first address */
	u64 len;			/* of a segment: length */
	umode_t mode;			/* of a segment: as of System V shared memory */
	kuid_t uid;			/* of a segment: effective user of its maker */
	kgid_t gid;			/* and group */
	/* Of a segment: where these mean something; holds a reference. */
	struct user_namespace *user_ns;
	/* Of a segment: the process that made it; holds a reference. */
	struct pid *pid;
	bool readonly;			/* of a permit: no writes by it */
};

/* All of them by number; one table, so that a permit's is never a segment's. */
static DEFINE_XARRAY_FLAGS(objects, XA_FLAGS_ALLOC1 | XA_FLAGS_ACCOUNT);
static u32 next_id;

static void object_free(struct hpmmap_grant *grant)
{
	struct object *object = container_of(grant, struct object, grant);

	if (object->win)
		hpmmap_window_put(object->win);
	put_user_ns(object->user_ns);
	put_pid(object->pid);
	mmdrop(object->mm);
	kfree(object);
}

static void object_put(struct object *object)
{
	hpmmap_grant_put(&object->grant);
}

/* A segment, or a permit for one, without a number; NULL without memory. */
static struct object *object_alloc(struct object *segment)
{
	struct object *object = kzalloc(sizeof(*object), GFP_KERNEL_ACCOUNT);

	if (!object)
		return NULL;
	refcount_set(&object->grant.refs, 1);
	object->grant.free = object_free;
	if (segment) {
		refcount_inc(&segment->grant.refs);
		object->grant.parent = &segment->grant;
	}
	INIT_LIST_HEAD(&object->link);
	object->mm = current->mm;
	mmgrab(object->mm);
	return object;
}

/*
 * Gives it a number, which has the caller's reference then: another task may guess it, and end
 * the object at once.
 */
static int object_publish(struct xpmem_file *xf, struct object *object, s64 *id)
{
	int ret = -ENOSPC;

	object->file = xf;
	mutex_lock(&xf->lock);
	if (xf->nr < MOST_OF_FILE) {
		ret = xa_alloc_cyclic(&objects, &object->id, object,
				      XA_LIMIT(1, INT_MAX), &next_id,
				      GFP_KERNEL_ACCOUNT);
		/* 1 if the numbers began anew. */
		ret = min(ret, 0);
	}
	if (!ret) {
		*id = object->id;
		xf->nr++;
		list_add_tail(&object->link, &xf->objects);
	}
	mutex_unlock(&xf->lock);
	return ret;
}

/* One by its number, with a reference, or an ERR_PTR. */
static struct object *object_get(s64 id, bool segment)
{
	struct object *object;

	if (id <= 0)
		return ERR_PTR(-EINVAL);
	xa_lock(&objects);
	object = id <= INT_MAX ? xa_load(&objects, id) : NULL;
	if (object && segment == !object->grant.parent)
		refcount_inc(&object->grant.refs);
	else
		object = ERR_PTR(-ENOENT);
	xa_unlock(&objects);
	return object;
}

static const struct object *segment_of(const struct object *object)
{
	return object->grant.parent ? container_of(object->grant.parent, struct object, grant) :
				      object;
}

/* Is it a permit of the caller's, which can unmap what rests on it? */
static bool is_own_permit(const struct object *object)
{
	return object->grant.parent && object->mm == current->mm;
}

/*
 * Has what rests on an object that has ended to be taken out of windows? Of a permit that is
 * the caller's, mostly; others that have attached the segment need not notice. @kept: what is
 * the caller's could not be unmapped.
 */
static bool is_shown(const struct object *object, bool kept)
{
	return !object->grant.parent || (is_own_permit(object) ? kept :
				    atomic_read(&object->mm->mm_users));
}

/* It has no number any more, and what rests on it shows nothing. */
static int object_end(struct object *object)
{
	const struct object *segment = segment_of(object);
	int ret = 0;

	hpmmap_grant_end(&object->grant);
	if (is_own_permit(object))
		ret = hpmmap_detach_all(&object->grant);
	if (is_shown(object, ret))
		hpmmap_window_revoke(segment->win, segment->start,
				     segment->start + segment->len);
	object_put(object);
	return ret;
}

/* A thread of the process in the address space that it published, with a reference, or NULL. */
static struct task_struct *thread_get(const struct object *segment)
{
	struct task_struct *process, *thread, *found = NULL;

	rcu_read_lock();
	process = pid_task(segment->pid, PIDTYPE_TGID);
	if (process)
		for_each_thread(process, thread)
			if (!found && READ_ONCE(thread->mm) == segment->mm)
				found = get_task_struct(thread);
	rcu_read_unlock();
	return found;
}

/*
 * May the caller read the memory of the process, by what the kernel asks for ptrace(2)? The
 * credentials and the dumpable flag are asked for in the same way for a write. A publication is the
 * agreement for which Yama looks before it lets a process attach, so Yama is not asked.
 * @dumpable: out: is the process dumpable?
 *
 * Return: 0, -EACCES, or -ENOENT where the process has left the address space.
 */
static int may_trace(const struct object *segment, bool *dumpable)
{
	struct task_struct *thread;
	bool may, left;

	do {
		thread = thread_get(segment);
		if (!thread)
			return -ENOENT;
		may = compat_ptrace_may_access(thread, PTRACE_MODE_READ_REALCREDS);
		*dumpable = compat_is_dumpable(thread, segment->mm);
		/* The dumpable flag is that of the address space, as long as the thread has it. */
		left = READ_ONCE(thread->mm) != segment->mm;
		put_task_struct(thread);
	} while (left);
	return may && ns_of_pid(segment->pid) == task_active_pid_ns(current) ? 0 : -EACCES;
}

/*
 * Like System V shared memory, for a caller that may trace the process. The mode alone lets no
 * other caller: the administrator must agree (xpmem_others), and the process be dumpable.
 */
static int may(const struct object *segment, bool write)
{
	unsigned int want = write ? 6 : 4, granted = segment->mode;
	bool dumpable = false;
	int ret = may_trace(segment, &dumpable);

	if (ret == -ENOENT || (ret && !(READ_ONCE(others) && dumpable)))
		return ret;
	if (!ret && uid_eq(current_euid(), segment->uid))
		granted >>= 6;
	else if (in_group_p(segment->gid))
		granted >>= 3;
	if (!(want & ~granted) || (!ret && ns_capable(segment->user_ns, CAP_IPC_OWNER)))
		return 0;
	return -EACCES;
}

static long cmd_make(struct xpmem_file *xf, struct xpmem_cmd_make *c)
{
	struct object *segment;
	u64 room = TASK_SIZE;
	int ret;

	if (c->permit_type != XPMEM_ABI_PERMIT_MODE || c->permit_value & ~0777ULL ||
	    !c->size || !PAGE_ALIGNED(c->vaddr) || c->vaddr >= room ||
	    (c->size != XPMEM_ABI_MAXADDR_SIZE && !PAGE_ALIGNED(c->size)))
		return -EINVAL;
	/* Set-user-ID, set-group-ID, file capabilities, changed credentials: see ptrace(2). */
	if (!compat_is_dumpable(current, current->mm))
		return -EACCES;
	segment = object_alloc(NULL);
	if (!segment)
		return -ENOMEM;
	segment->start = c->vaddr;
	segment->len = min(c->size, room - c->vaddr);
	segment->mode = c->permit_value;
	segment->uid = current_euid();
	segment->gid = current_egid();
	segment->user_ns = get_user_ns(current_user_ns());
	segment->pid = get_pid(task_tgid(current));
	segment->win = hpmmap_window_get(current->mm);
	if (IS_ERR(segment->win)) {
		ret = PTR_ERR(segment->win);
		segment->win = NULL;
	} else {
		ret = object_publish(xf, segment, &c->segid);
	}
	if (ret)
		object_put(segment);
	return ret;
}

/*
 * Ends what is the caller's own; only one of several tries does. The file is that of its list: a
 * process may have opened the device twice.
 */
static long cmd_remove(struct xpmem_file *xf, s64 id, bool segment)
{
	struct object *object = object_get(id, segment);
	long ret = -EACCES;

	if (IS_ERR(object))
		return PTR_ERR(object);
	if (object->mm == current->mm && object->file == xf) {
		mutex_lock(&xf->lock);
		ret = xa_cmpxchg(&objects, id, object, NULL, 0) == object ? 0 : -ENOENT;
		if (!ret) {
			list_del_init(&object->link);
			xf->nr--;
		}
		mutex_unlock(&xf->lock);
	}
	if (!ret)
		ret = object_end(object);
	object_put(object);
	return ret;
}

static long cmd_get(struct xpmem_file *xf, struct xpmem_cmd_get *c)
{
	struct object *segment, *permit;
	int ret;

	if ((c->flags != XPMEM_ABI_RDONLY && c->flags != XPMEM_ABI_RDWR) ||
	    c->permit_type != XPMEM_ABI_PERMIT_MODE || c->permit_value)
		return -EINVAL;
	segment = object_get(c->segid, true);
	if (IS_ERR(segment))
		return PTR_ERR(segment);
	ret = may(segment, c->flags == XPMEM_ABI_RDWR);
	if (ret)
		goto out;
	permit = object_alloc(segment);
	if (!permit) {
		ret = -ENOMEM;
		goto out;
	}
	permit->readonly = c->flags == XPMEM_ABI_RDONLY;
	ret = object_publish(xf, permit, &c->apid);
	if (ret)
		object_put(permit);
out:
	object_put(segment);
	return ret;
}

static long attach(struct object *permit, struct xpmem_cmd_attach *c)
{
	const struct object *segment = segment_of(permit);
	unsigned int flags = permit->readonly ? HPMMAP_ATTACH_READONLY : 0;
	u64 len = PAGE_ALIGN(c->size);
	unsigned long addr;
	int ret;

	if (!PAGE_ALIGNED(c->vaddr | c->offset) || c->offset < 0 || !len ||
	    len < c->size || c->offset > segment->len ||
	    len > segment->len - c->offset)
		return -EINVAL;
	if (permit->mm != current->mm)
		return -EACCES;
	ret = may(segment, !permit->readonly);
	if (ret)
		return ret;
	/* What was published is gone. */
	if (READ_ONCE(segment->grant.revoked) || !atomic_read(&segment->mm->mm_users))
		return -ENOENT;
	if (c->flags & XPMEM_ABI_POPULATE)
		flags |= HPMMAP_ATTACH_POPULATE;
	addr = hpmmap_attach(segment->win, &permit->grant, segment->start + c->offset,
			     len, c->vaddr, flags);
	if (IS_ERR_VALUE(addr))
		return addr;
	c->vaddr = addr;
	return 0;
}

static long cmd_attach(struct xpmem_cmd_attach *c)
{
	struct object *permit = object_get(c->apid, false);
	long ret;

	if (IS_ERR(permit))
		return PTR_ERR(permit);
	ret = attach(permit, c);
	object_put(permit);
	return ret;
}

/* Size of what a command's argument points to. */
static const u8 sizes[] = {
	[_IOC_NR(XPMEM_CMD_MAKE)] = sizeof(struct xpmem_cmd_make),
	[_IOC_NR(XPMEM_CMD_REMOVE)] = sizeof(s64),
	[_IOC_NR(XPMEM_CMD_GET)] = sizeof(struct xpmem_cmd_get),
	[_IOC_NR(XPMEM_CMD_RELEASE)] = sizeof(s64),
	[_IOC_NR(XPMEM_CMD_ATTACH)] = sizeof(struct xpmem_cmd_attach),
	[_IOC_NR(XPMEM_CMD_DETACH)] = sizeof(u64),
	[_IOC_NR(XPMEM_CMD_FORK_END)] = 0,
};

static long xpmem_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct xpmem_file *xf = file->private_data;
	void __user *user = (void __user *)arg;
	union {
		struct xpmem_cmd_make make;
		struct xpmem_cmd_get get;
		struct xpmem_cmd_attach attach;
		s64 id;
	} u;
	unsigned int nr = _IOC_NR(cmd);
	long ret;

	if (cmd != _IO(XPMEM_ABI_MAGIC, nr) || nr >= ARRAY_SIZE(sizes))
		return -ENOTTY;
	if (copy_from_user(&u, user, sizes[nr]))
		return -EFAULT;
	switch (cmd) {
	case XPMEM_CMD_VERSION:
		return XPMEM_ABI_VERSION;
	case XPMEM_CMD_MAKE:
		ret = cmd_make(xf, &u.make);
		break;
	case XPMEM_CMD_REMOVE:
		return cmd_remove(xf, u.id, true);
	case XPMEM_CMD_GET:
		ret = cmd_get(xf, &u.get);
		break;
	case XPMEM_CMD_RELEASE:
		return cmd_remove(xf, u.id, false);
	case XPMEM_CMD_ATTACH:
		ret = cmd_attach(&u.attach);
		break;
	case XPMEM_CMD_DETACH:
		return hpmmap_detach(u.id);
	default:
		return 0;
	}
	if (ret || !copy_to_user(user, &u, sizes[nr]))
		return ret;
	/* The caller does not learn of it. */
	if (cmd == XPMEM_CMD_MAKE)
		cmd_remove(xf, u.make.segid, true);
	else if (cmd == XPMEM_CMD_GET)
		cmd_remove(xf, u.get.apid, false);
	else
		hpmmap_detach(u.attach.vaddr);
	return -EFAULT;
}

static int xpmem_open(struct inode *inode, struct file *file)
{
	struct xpmem_file *xf = kzalloc(sizeof(*xf), GFP_KERNEL_ACCOUNT);

	if (!xf)
		return -ENOMEM;
	mutex_init(&xf->lock);
	INIT_LIST_HEAD(&xf->objects);
	file->private_data = xf;
	return 0;
}

static int by_window(void *priv, const struct list_head *a, const struct list_head *b)
{
	return segment_of(list_entry(a, struct object, link))->win >
	       segment_of(list_entry(b, struct object, link))->win;
}

/*
 * All that there is of the file ends, at once: it may be tens of thousands of objects, of a window
 * with as many attachments, and a task that exits cannot be killed.
 */
static void objects_end(struct xpmem_file *xf)
{
	struct hpmmap_window *revoked = NULL;
	struct object *object, *tmp;
	bool own = false, kept;

	list_for_each_entry(object, &xf->objects, link) {
		xa_erase(&objects, object->id);
		hpmmap_grant_end(&object->grant);
		own |= is_own_permit(object);
		cond_resched();
	}
	kept = own && hpmmap_detach_all(NULL);
	list_sort(NULL, &xf->objects, by_window);
	list_for_each_entry_safe(object, tmp, &xf->objects, link) {
		struct hpmmap_window *win = segment_of(object)->win;

		list_del_init(&object->link);
		/* Each that follows has a reference to its window. */
		if (win != revoked && is_shown(object, kept)) {
			hpmmap_window_revoke(win, 0, TASK_SIZE_MAX);
			revoked = win;
		}
		object_put(object);
		cond_resched();
	}
}

static int xpmem_release(struct inode *inode, struct file *file)
{
	struct xpmem_file *xf = file->private_data;

	/* No other task has the file any more. */
	objects_end(xf);
	kfree(xf);
	return 0;
}

static const struct file_operations xpmem_fops = {
	.owner = THIS_MODULE,
	.open = xpmem_open,
	.release = xpmem_release,
	.unlocked_ioctl = xpmem_ioctl,
	.llseek = noop_llseek,
};

/* Udev gives it to the group hpmmap. */
static struct miscdevice xpmem_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "xpmem",
	.fops = &xpmem_fops,
	.mode = 0660,
};

int hpmmap_xpmem_init(void)
{
	int ret;

	if (!device)
		return 0;
	ret = misc_register(&xpmem_misc);
	if (ret) {
		/* XPMEM's own module, for one. */
		pr_warn("/dev/xpmem cannot be offered: %d\n", ret);
		device = false;
	}
	return 0;
}

void hpmmap_xpmem_exit(void)
{
	if (device)
		misc_deregister(&xpmem_misc);
}
