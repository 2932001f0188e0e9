// SPDX-License-Identifier: GPL-2.0
/*
 * Marked programs, which register themselves when they are executed.
 *
 * The mark is in the ELF header, so it is in the first bytes of the file that
 * execve has read anyway. To see them this is a format of executables that
 * never takes one: it leaves a work that runs in the new program before its
 * first instruction, or in the old one, which then knows that execve failed. Members'
 * programs are seen here, too, before they are executed.
 */
#include <linux/binfmts.h>
#include <linux/elf.h>
#include <linux/task_work.h>

#include "hpmmap.h"
#include "as/map/gigabyte.h"
#include "task/exec.h"

/* A marked program that is being executed. */
struct marked {
	struct callback_head work;	/* runs in the process */
	struct mm_struct *mm;		/* the new program's, if it comes to that; mmgrab()bed */
	u32 mark;			/* as it is in the file */
	bool gigabytes;			/* it may have entries of 1 GB */
};

/* Whether the calling process may register itself. */
static bool (*may_register)(void);

/* References to the module, given up by works and not yet put. */
static atomic_t puts_pending = ATOMIC_INIT(0);

/* A work cannot put the module that it is code of. */
static void put_work_fn(struct work_struct *work)
{
	int n = atomic_xchg(&puts_pending, 0);

	while (n--)
		module_put(THIS_MODULE);
}
static DECLARE_WORK(put_work, put_work_fn);

/* Set-user-ID, say: execve decides, and tells the program. */
static bool is_secure(const struct mm_struct *mm)
{
	int i;

	for (i = 0; i + 1 < AT_VECTOR_SIZE && mm->saved_auxv[i]; i += 2)
		if (mm->saved_auxv[i] == AT_SECURE)
			return mm->saved_auxv[i + 1];
	return true;
}

/* The launch that a mark stands for. */
static struct hpmmap_launch marked_launch(u32 mark)
{
	u64 page_size = mark & HPMMAP_MARK_F_1G ? HPMMAP_LARGE_BYTES : HPMMAP_BLOCK_BYTES;
	u32 region = (mark & HPMMAP_MARK_STATIC_MASK) >> HPMMAP_MARK_STATIC_SHIFT;

	return (struct hpmmap_launch) {
		.flags = mark & HPMMAP_MARK_LAUNCH_FLAGS,
		.page_size = page_size,
		.static_bytes = region ? max(page_size, HPMMAP_BLOCK_BYTES << (region - 1)) : 0,
	};
}

static void launch(u32 mark, bool gigabytes)
{
	const struct hpmmap_launch arg = marked_launch(mark);
	int ret = hpmmap_launch_marked(&arg, gigabytes);

	/* Without pools it runs as it would without the module. */
	if (ret && ret != -ENODEV)
		pr_warn_ratelimited("marked program %*pE[%d] runs unregistered: %d%s\n",
				    (int)strlen(current->comm), current->comm,
				    current->pid, ret,
				    ret == -ENOMEM ? ", no memory" : "");
}

static void marked_work(struct callback_head *work)
{
	struct marked *m = container_of(work, struct marked, work);

	if (current->mm == m->mm && !(current->flags & PF_EXITING) &&
	    !is_secure(m->mm) && may_register())
		launch(m->mark, m->gigabytes);
	mmdrop(m->mm);
	kfree(m);
	atomic_inc(&puts_pending);
	schedule_work(&put_work);
}

/* 0 where there is none. */
static u32 find_mark(const struct linux_binprm *bprm)
{
	const struct elf64_hdr *ehdr = (const void *)bprm->buf;
	const char *wrong = NULL;
	u32 mark = ehdr->e_flags;
	struct hpmmap_launch arg;

	if (memcmp(ehdr->e_ident, ELFMAG, SELFMAG) ||
	    ehdr->e_ident[EI_CLASS] != ELFCLASS64 ||
	    ehdr->e_machine != EM_X86_64 ||
	    (mark & HPMMAP_MARK_MAGIC_MASK) != HPMMAP_MARK_MAGIC)
		return 0;
	arg = marked_launch(mark);
	if (mark & ~(HPMMAP_MARK_MAGIC_MASK | HPMMAP_MARK_OPTIONS))
		wrong = "unknown options";
	else if (hpmmap_launch_contradicts(&arg))
		wrong = "options that exclude each other";
	if (!wrong)
		return mark;
	pr_warn_ratelimited("%*pE has a mark with %s\n", (int)strlen(bprm->filename),
			    bprm->filename, wrong);
	return 0;
}

static int mark_load_binary(struct linux_binprm *bprm)
{
	u32 mark = find_mark(bprm);
	struct marked *m;

	hpmmap_exec_begins(bprm);
	if (!mark)
		return -ENOEXEC;
	m = kzalloc(sizeof(*m), GFP_KERNEL_ACCOUNT);
	if (!m)
		return -ENOEXEC;
	m->mark = mark;
	/* Before the address space can be seen. */
	m->gigabytes = mark & HPMMAP_MARK_F_1G && !hpmmap_gigabytes_begin();
	m->mm = bprm->mm;
	mmgrab(m->mm);
	/* The caller holds a reference while this runs. */
	__module_get(THIS_MODULE);
	init_task_work(&m->work, marked_work);
	if (task_work_add(current, &m->work, TWA_RESUME)) {
		mmdrop(m->mm);
		kfree(m);
		module_put(THIS_MODULE);
	}
	return -ENOEXEC;
}

static struct linux_binfmt mark_format = {
	.module = THIS_MODULE,
	.load_binary = mark_load_binary,
};

/* Registers marked programs from here on. @may: may the calling process register itself? */
void hpmmap_mark_init(bool (*may)(void))
{
	may_register = may;
	insert_binfmt(&mark_format);
}

void hpmmap_mark_exit(void)
{
	unregister_binfmt(&mark_format);
	/* A work may still be about to return, and before to queue this one. */
	synchronize_rcu_tasks();
	flush_work(&put_work);
}
