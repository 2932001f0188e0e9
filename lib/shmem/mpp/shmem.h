/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The header's name before OpenSHMEM 1.1. */
#include <shmem.h>
