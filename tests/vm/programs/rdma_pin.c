// SPDX-License-Identifier: GPL-2.0
/*
 * rdma_pin DEVICE BYTES [FILE]: register anonymous memory, or that of a new file, with an
 * RDMA device, then do as told, one word a line on standard input, and answer on standard
 * output:
 *
 *   register    map memory, write to it and register it    (done once at start)
 *   unmap       unmap it; it stays registered
 *   verify      have the device read it: the content is what was written
 *   cut         the file becomes empty; it stays registered
 *   deregister  end the registration
 *   heir        a child registers memory that it shares with this process, for
 *               reading only, and ends; the device keeps it. Write to it, and
 *               have the device read it: the content is the child's
 */
#include <err.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *region;
static struct ibv_mr *landing_region;
static unsigned char *landing;
static char *memory;
static uintptr_t address;
static size_t length;
static const char *path;

static const size_t piece = 1 << 20;

static void say(const char *word)
{
	puts(word);
	fflush(stdout);
}

static unsigned char content(size_t offset)
{
	return (offset >> 12) * 31 + 7;
}

static void do_register(void)
{
	int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;

	if (path && (fd < 0 || ftruncate(fd, (off_t)length)))
		err(1, "%s", path);
	memory = mmap(NULL, length, PROT_READ | PROT_WRITE, path ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
	if (memory == MAP_FAILED)
		err(1, "mmap");
	for (size_t offset = 0; offset < length; offset += 4096)
		memset(memory + offset, content(offset), 4096);
	address = (uintptr_t)memory;
	region = ibv_reg_mr(pd, memory, length,
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	if (!region)
		err(1, "ibv_reg_mr");
	say("registered");
}

/* The device writes a piece of the region to memory that is still mapped. */
static void read_piece(size_t offset)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)landing, .length = piece, .lkey = landing_region->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = address + offset, .rkey = region->rkey },
	};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int nr;

	if (ibv_post_send(qp, &wr, &bad))
		err(1, "ibv_post_send");
	while ((nr = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	if (nr < 0 || wc.status != IBV_WC_SUCCESS)
		errx(1, "RDMA read: %s", nr < 0 ? "ibv_poll_cq" : ibv_wc_status_str(wc.status));
}

static void do_verify(void)
{
	for (size_t offset = 0; offset < length; offset += piece) {
		memset(landing, 0, piece);
		read_piece(offset);
		for (size_t i = 0; i < piece; i++)
			if (landing[i] != content(offset + i)) {
				printf("changed at %zu: %#x\n", offset + i, landing[i]);
				fflush(stdout);
				exit(1);
			}
	}
	say("intact");
}

static void do_heir(void)
{
	uint32_t *lkey = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const size_t bytes = 2 << 20;
	char *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_sge sge = { .addr = (uintptr_t)shared, .length = piece };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)landing, .rkey = landing_region->rkey },
	};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int nr, status;
	pid_t pid;

	if (lkey == MAP_FAILED || shared == MAP_FAILED)
		err(1, "mmap");
	memset(shared, 'a', bytes);
	pid = fork();
	if (!pid) {
		/* The file, which both have, keeps it. */
		struct ibv_mr *mr = ibv_reg_mr(pd, shared, bytes, 0);

		if (!mr)
			err(1, "ibv_reg_mr of a child");
		*lkey = mr->lkey;
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		errx(1, "the child that registers memory fails");
	memset(shared, 'b', bytes);
	sge.lkey = *lkey;
	if (ibv_post_send(qp, &wr, &bad))
		err(1, "ibv_post_send");
	while ((nr = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	if (nr < 0 || wc.status != IBV_WC_SUCCESS)
		errx(1, "RDMA write: %s", nr < 0 ? "ibv_poll_cq" : ibv_wc_status_str(wc.status));
	for (size_t i = 0; i < piece; i++)
		if (landing[i] != 'a')
			errx(1, "the child's memory is changed at %zu: %#x", i, landing[i]);
	say("kept");
}

/* A queue pair that is connected to itself. */
static void connect_to_self(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE };
	union ibv_gid gid;
	int index = 1;

	/* Index 1 is the address of the interface, 0 its link-local one. */
	if (ibv_query_gid(context, 1, index, &gid))
		err(1, "ibv_query_gid");
	qp = ibv_create_qp(pd, &init);
	if (!qp)
		err(1, "ibv_create_qp");
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		err(1, "ibv_modify_qp INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = gid, .sgid_index = index, .hop_limit = 1 } },
	};
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		err(1, "ibv_modify_qp RTR");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1,
	};
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		err(1, "ibv_modify_qp RTS");
}

static void open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	if (!context)
		errx(1, "there is no RDMA device %s", name);
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	if (!pd || !cq)
		err(1, "ibv_alloc_pd, ibv_create_cq");
	landing = mmap(NULL, piece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (landing == MAP_FAILED)
		err(1, "mmap");
	landing_region = ibv_reg_mr(pd, landing, piece, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!landing_region)
		err(1, "ibv_reg_mr");
	connect_to_self();
}

int main(int argc, char **argv)
{
	char order[64];

	if (argc != 3 && argc != 4)
		errx(2, "usage: rdma_pin DEVICE BYTES [FILE]");
	path = argv[3];
	length = strtoull(argv[2], NULL, 0);
	if (length == 0 || length % piece)
		errx(2, "%s: not a multiple of %zu bytes", argv[2], piece);
	open_device(argv[1]);
	do_register();
	while (scanf("%63s", order) == 1) {
		if (!strcmp(order, "register")) {
			do_register();
		} else if (!strcmp(order, "unmap")) {
			if (munmap(memory, length))
				err(1, "munmap");
			say("unmapped");
		} else if (!strcmp(order, "cut")) {
			if (truncate(path, 0))
				err(1, "%s", path);
			say("empty");
		} else if (!strcmp(order, "verify")) {
			do_verify();
		} else if (!strcmp(order, "deregister")) {
			if (ibv_dereg_mr(region))
				err(1, "ibv_dereg_mr");
			say("deregistered");
		} else if (!strcmp(order, "heir")) {
			do_heir();
		} else {
			errx(2, "unknown order %s", order);
		}
	}
	return 0;
}
