! SPDX-License-Identifier: LGPL-2.1-or-later
! libhpmmap_shmem for Fortran: the functions of shmem.h by their C names, as OpenSHMEM 1.5 has no Fortran interface of
! its own. Compile it with the program; link with -lhpmmap_shmem. Symmetric objects are what shmem_malloc() returns
! (c_f_pointer()), and variables with the attributes target and save, of the main program or of modules. All addresses are
! type(c_ptr), by c_loc(). PEs are counted from 0. Teams and contexts are integer(c_intptr_t).
module hpmmap_shmem
  use, intrinsic :: iso_c_binding
  implicit none

  integer(c_int), parameter :: SHMEM_CMP_EQ = 1, SHMEM_CMP_NE = 2, SHMEM_CMP_GT = 3, SHMEM_CMP_GE = 4, &
    SHMEM_CMP_LT = 5, SHMEM_CMP_LE = 6
  integer(c_int), parameter :: SHMEM_SIGNAL_SET = 0, SHMEM_SIGNAL_ADD = 1
  integer(c_int), parameter :: SHMEM_THREAD_SINGLE = 0, SHMEM_THREAD_FUNNELED = 1, SHMEM_THREAD_SERIALIZED = 2, &
    SHMEM_THREAD_MULTIPLE = 3
  integer(c_intptr_t), parameter :: SHMEM_TEAM_INVALID = 0, SHMEM_TEAM_WORLD = 1, SHMEM_TEAM_SHARED = 2
  integer(c_intptr_t), parameter :: SHMEM_CTX_INVALID = 0, SHMEM_CTX_DEFAULT = 1

  interface

    ! Setup, memory, order, locks.
    subroutine shmem_init() bind(c); end subroutine
    subroutine shmem_finalize() bind(c); end subroutine
    subroutine shmem_barrier_all() bind(c); end subroutine
    subroutine shmem_sync_all() bind(c); end subroutine
    subroutine shmem_fence() bind(c); end subroutine
    subroutine shmem_quiet() bind(c); end subroutine
    integer(c_int) function shmem_my_pe() bind(c); import; end function
    integer(c_int) function shmem_n_pes() bind(c); import; end function
    subroutine shmem_global_exit(status) bind(c); import
      integer(c_int), value :: status; end subroutine
    type(c_ptr) function shmem_malloc(size) bind(c); import
      integer(c_size_t), value :: size; end function
    type(c_ptr) function shmem_calloc(count, size) bind(c); import
      integer(c_size_t), value :: count, size; end function
    type(c_ptr) function shmem_align(alignment, size) bind(c); import
      integer(c_size_t), value :: alignment, size; end function
    type(c_ptr) function shmem_realloc(ptr, size) bind(c); import
      type(c_ptr), value :: ptr; integer(c_size_t), value :: size; end function
    subroutine shmem_free(ptr) bind(c); import
      type(c_ptr), value :: ptr; end subroutine
    type(c_ptr) function shmem_ptr(dest, pe) bind(c); import
      type(c_ptr), value :: dest; integer(c_int), value :: pe; end function
    subroutine shmem_set_lock(lock) bind(c); import
      type(c_ptr), value :: lock; end subroutine
    subroutine shmem_clear_lock(lock) bind(c); import
      type(c_ptr), value :: lock; end subroutine
    integer(c_int) function shmem_test_lock(lock) bind(c); import
      type(c_ptr), value :: lock; end function

    ! Puts and gets of nelems elements of 8 to 128 bits or, "mem", of bytes: all types have one of these sizes.
    subroutine shmem_putmem(dest, source, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; integer(c_int), value :: pe; end subroutine
    subroutine shmem_putmem_nbi(dest, source, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; integer(c_int), value :: pe; end subroutine
    subroutine shmem_getmem(dest, source, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; integer(c_int), value :: pe; end subroutine
    subroutine shmem_getmem_nbi(dest, source, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; integer(c_int), value :: pe; end subroutine
    subroutine shmem_putmem_signal(dest, source, nelems, sig_addr, signal, sig_op, pe) bind(c); import
      type(c_ptr), value :: dest, source
      integer(c_size_t), value :: nelems
      type(c_ptr), value :: sig_addr
      integer(c_int64_t), value :: signal
      integer(c_int), value :: sig_op, pe; end subroutine
    subroutine shmem_put8(dest, source, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; integer(c_int), value :: pe; end subroutine
    subroutine shmem_put8_nbi(dest, source, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; integer(c_int), value :: pe; end subroutine
    subroutine shmem_iput8(dest, source, dst, sst, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source
      integer(c_ptrdiff_t), value :: dst, sst
      integer(c_size_t), value :: nelems
      integer(c_int), value :: pe; end subroutine
    subroutine shmem_get8(dest, source, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; integer(c_int), value :: pe; end subroutine
    subroutine shmem_get8_nbi(dest, source, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; integer(c_int), value :: pe; end subroutine
    subroutine shmem_iget8(dest, source, dst, sst, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source
      integer(c_ptrdiff_t), value :: dst, sst
      integer(c_size_t), value :: nelems
      integer(c_int), value :: pe; end subroutine
    subroutine shmem_put8_signal(dest, source, nelems, sig_addr, signal, sig_op, pe) bind(c); import
      type(c_ptr), value :: dest, source
      integer(c_size_t), value :: nelems
      type(c_ptr), value :: sig_addr
      integer(c_int64_t), value :: signal
      integer(c_int), value :: sig_op, pe; end subroutine
    subroutine shmem_put16(dest, source, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; integer(c_int), value :: pe; end subroutine
    subroutine shmem_put16_nbi(dest, source, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; integer(c_int), value :: pe; end subroutine
    subroutine shmem_iput16(dest, source, dst, sst, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source
      integer(c_ptrdiff_t), value :: dst, sst
      integer(c_size_t), value :: nelems
      integer(c_int), value :: pe; end subroutine
    subroutine shmem_get16(dest, source, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; integer(c_int), value :: pe; end subroutine
    subroutine shmem_get16_nbi(dest, source, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; integer(c_int), value :: pe; end subroutine
    subroutine shmem_iget16(dest, source, dst, sst, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source
      integer(c_ptrdiff_t), value :: dst, sst
      integer(c_size_t), value :: nelems
      integer(c_int), value :: pe; end subroutine
    subroutine shmem_put16_signal(dest, source, nelems, sig_addr, signal, sig_op, pe) bind(c); import
      type(c_ptr), value :: dest, source
      integer(c_size_t), value :: nelems
      type(c_ptr), value :: sig_addr
      integer(c_int64_t), value :: signal
      integer(c_int), value :: sig_op, pe; end subroutine
    subroutine shmem_put32(dest, source, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; integer(c_int), value :: pe; end subroutine
    subroutine shmem_put32_nbi(dest, source, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; integer(c_int), value :: pe; end subroutine
    subroutine shmem_iput32(dest, source, dst, sst, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source
      integer(c_ptrdiff_t), value :: dst, sst
      integer(c_size_t), value :: nelems
      integer(c_int), value :: pe; end subroutine
    subroutine shmem_get32(dest, source, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; integer(c_int), value :: pe; end subroutine
    subroutine shmem_get32_nbi(dest, source, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; integer(c_int), value :: pe; end subroutine
    subroutine shmem_iget32(dest, source, dst, sst, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source
      integer(c_ptrdiff_t), value :: dst, sst
      integer(c_size_t), value :: nelems
      integer(c_int), value :: pe; end subroutine
    subroutine shmem_put32_signal(dest, source, nelems, sig_addr, signal, sig_op, pe) bind(c); import
      type(c_ptr), value :: dest, source
      integer(c_size_t), value :: nelems
      type(c_ptr), value :: sig_addr
      integer(c_int64_t), value :: signal
      integer(c_int), value :: sig_op, pe; end subroutine
    subroutine shmem_put64(dest, source, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; integer(c_int), value :: pe; end subroutine
    subroutine shmem_put64_nbi(dest, source, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; integer(c_int), value :: pe; end subroutine
    subroutine shmem_iput64(dest, source, dst, sst, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source
      integer(c_ptrdiff_t), value :: dst, sst
      integer(c_size_t), value :: nelems
      integer(c_int), value :: pe; end subroutine
    subroutine shmem_get64(dest, source, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; integer(c_int), value :: pe; end subroutine
    subroutine shmem_get64_nbi(dest, source, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; integer(c_int), value :: pe; end subroutine
    subroutine shmem_iget64(dest, source, dst, sst, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source
      integer(c_ptrdiff_t), value :: dst, sst
      integer(c_size_t), value :: nelems
      integer(c_int), value :: pe; end subroutine
    subroutine shmem_put64_signal(dest, source, nelems, sig_addr, signal, sig_op, pe) bind(c); import
      type(c_ptr), value :: dest, source
      integer(c_size_t), value :: nelems
      type(c_ptr), value :: sig_addr
      integer(c_int64_t), value :: signal
      integer(c_int), value :: sig_op, pe; end subroutine
    subroutine shmem_put128(dest, source, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; integer(c_int), value :: pe; end subroutine
    subroutine shmem_put128_nbi(dest, source, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; integer(c_int), value :: pe; end subroutine
    subroutine shmem_iput128(dest, source, dst, sst, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source
      integer(c_ptrdiff_t), value :: dst, sst
      integer(c_size_t), value :: nelems
      integer(c_int), value :: pe; end subroutine
    subroutine shmem_get128(dest, source, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; integer(c_int), value :: pe; end subroutine
    subroutine shmem_get128_nbi(dest, source, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; integer(c_int), value :: pe; end subroutine
    subroutine shmem_iget128(dest, source, dst, sst, nelems, pe) bind(c); import
      type(c_ptr), value :: dest, source
      integer(c_ptrdiff_t), value :: dst, sst
      integer(c_size_t), value :: nelems
      integer(c_int), value :: pe; end subroutine
    subroutine shmem_put128_signal(dest, source, nelems, sig_addr, signal, sig_op, pe) bind(c); import
      type(c_ptr), value :: dest, source
      integer(c_size_t), value :: nelems
      type(c_ptr), value :: sig_addr
      integer(c_int64_t), value :: signal
      integer(c_int), value :: sig_op, pe; end subroutine
    integer(c_int64_t) function shmem_signal_wait_until(sig_addr, cmp, cmp_value) bind(c); import
      type(c_ptr), value :: sig_addr; integer(c_int), value :: cmp; integer(c_int64_t), value :: cmp_value; end function

    ! int: integer(c_int).
    subroutine shmem_int_p(dest, val, pe) bind(c); import
      type(c_ptr), value :: dest; integer(c_int), value :: val; integer(c_int), value :: pe; end subroutine
    integer(c_int) function shmem_int_g(source, pe) bind(c); import
      type(c_ptr), value :: source; integer(c_int), value :: pe; end function
    integer(c_int) function shmem_int_atomic_fetch(source, pe) bind(c); import
      type(c_ptr), value :: source; integer(c_int), value :: pe; end function
    subroutine shmem_int_atomic_set(dest, val, pe) bind(c); import
      type(c_ptr), value :: dest; integer(c_int), value :: val; integer(c_int), value :: pe; end subroutine
    integer(c_int) function shmem_int_atomic_swap(dest, val, pe) bind(c); import
      type(c_ptr), value :: dest; integer(c_int), value :: val; integer(c_int), value :: pe; end function
    subroutine shmem_int_atomic_add(dest, val, pe) bind(c); import
      type(c_ptr), value :: dest; integer(c_int), value :: val; integer(c_int), value :: pe; end subroutine
    integer(c_int) function shmem_int_atomic_fetch_add(dest, val, pe) bind(c); import
      type(c_ptr), value :: dest; integer(c_int), value :: val; integer(c_int), value :: pe; end function
    subroutine shmem_int_atomic_inc(dest, pe) bind(c); import
      type(c_ptr), value :: dest; integer(c_int), value :: pe; end subroutine
    integer(c_int) function shmem_int_atomic_fetch_inc(dest, pe) bind(c); import
      type(c_ptr), value :: dest; integer(c_int), value :: pe; end function
    integer(c_int) function shmem_int_atomic_compare_swap(dest, cond, val, pe) bind(c); import
      type(c_ptr), value :: dest; integer(c_int), value :: cond, val; integer(c_int), value :: pe; end function
    subroutine shmem_int_wait_until(ivar, cmp, val) bind(c); import
      type(c_ptr), value :: ivar; integer(c_int), value :: cmp; integer(c_int), value :: val; end subroutine
    integer(c_int) function shmem_int_test(ivar, cmp, val) bind(c); import
      type(c_ptr), value :: ivar; integer(c_int), value :: cmp; integer(c_int), value :: val; end function
    integer(c_int32_t) function shmem_int32_atomic_fetch_and(dest, val, pe) bind(c); import
      type(c_ptr), value :: dest; integer(c_int32_t), value :: val; integer(c_int), value :: pe; end function
    integer(c_int) function shmem_int32_and_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function
    integer(c_int32_t) function shmem_int32_atomic_fetch_or(dest, val, pe) bind(c); import
      type(c_ptr), value :: dest; integer(c_int32_t), value :: val; integer(c_int), value :: pe; end function
    integer(c_int) function shmem_int32_or_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function
    integer(c_int32_t) function shmem_int32_atomic_fetch_xor(dest, val, pe) bind(c); import
      type(c_ptr), value :: dest; integer(c_int32_t), value :: val; integer(c_int), value :: pe; end function
    integer(c_int) function shmem_int32_xor_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function
    integer(c_int) function shmem_int_sum_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function
    integer(c_int) function shmem_int_prod_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function
    integer(c_int) function shmem_int_max_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function
    integer(c_int) function shmem_int_min_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function

    ! long: integer(c_long).
    subroutine shmem_long_p(dest, val, pe) bind(c); import
      type(c_ptr), value :: dest; integer(c_long), value :: val; integer(c_int), value :: pe; end subroutine
    integer(c_long) function shmem_long_g(source, pe) bind(c); import
      type(c_ptr), value :: source; integer(c_int), value :: pe; end function
    integer(c_long) function shmem_long_atomic_fetch(source, pe) bind(c); import
      type(c_ptr), value :: source; integer(c_int), value :: pe; end function
    subroutine shmem_long_atomic_set(dest, val, pe) bind(c); import
      type(c_ptr), value :: dest; integer(c_long), value :: val; integer(c_int), value :: pe; end subroutine
    integer(c_long) function shmem_long_atomic_swap(dest, val, pe) bind(c); import
      type(c_ptr), value :: dest; integer(c_long), value :: val; integer(c_int), value :: pe; end function
    subroutine shmem_long_atomic_add(dest, val, pe) bind(c); import
      type(c_ptr), value :: dest; integer(c_long), value :: val; integer(c_int), value :: pe; end subroutine
    integer(c_long) function shmem_long_atomic_fetch_add(dest, val, pe) bind(c); import
      type(c_ptr), value :: dest; integer(c_long), value :: val; integer(c_int), value :: pe; end function
    subroutine shmem_long_atomic_inc(dest, pe) bind(c); import
      type(c_ptr), value :: dest; integer(c_int), value :: pe; end subroutine
    integer(c_long) function shmem_long_atomic_fetch_inc(dest, pe) bind(c); import
      type(c_ptr), value :: dest; integer(c_int), value :: pe; end function
    integer(c_long) function shmem_long_atomic_compare_swap(dest, cond, val, pe) bind(c); import
      type(c_ptr), value :: dest; integer(c_long), value :: cond, val; integer(c_int), value :: pe; end function
    subroutine shmem_long_wait_until(ivar, cmp, val) bind(c); import
      type(c_ptr), value :: ivar; integer(c_int), value :: cmp; integer(c_long), value :: val; end subroutine
    integer(c_int) function shmem_long_test(ivar, cmp, val) bind(c); import
      type(c_ptr), value :: ivar; integer(c_int), value :: cmp; integer(c_long), value :: val; end function
    integer(c_int64_t) function shmem_int64_atomic_fetch_and(dest, val, pe) bind(c); import
      type(c_ptr), value :: dest; integer(c_int64_t), value :: val; integer(c_int), value :: pe; end function
    integer(c_int) function shmem_int64_and_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function
    integer(c_int64_t) function shmem_int64_atomic_fetch_or(dest, val, pe) bind(c); import
      type(c_ptr), value :: dest; integer(c_int64_t), value :: val; integer(c_int), value :: pe; end function
    integer(c_int) function shmem_int64_or_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function
    integer(c_int64_t) function shmem_int64_atomic_fetch_xor(dest, val, pe) bind(c); import
      type(c_ptr), value :: dest; integer(c_int64_t), value :: val; integer(c_int), value :: pe; end function
    integer(c_int) function shmem_int64_xor_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function
    integer(c_int) function shmem_long_sum_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function
    integer(c_int) function shmem_long_prod_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function
    integer(c_int) function shmem_long_max_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function
    integer(c_int) function shmem_long_min_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function

    ! float: real(c_float).
    subroutine shmem_float_p(dest, val, pe) bind(c); import
      type(c_ptr), value :: dest; real(c_float), value :: val; integer(c_int), value :: pe; end subroutine
    real(c_float) function shmem_float_g(source, pe) bind(c); import
      type(c_ptr), value :: source; integer(c_int), value :: pe; end function
    real(c_float) function shmem_float_atomic_fetch(source, pe) bind(c); import
      type(c_ptr), value :: source; integer(c_int), value :: pe; end function
    subroutine shmem_float_atomic_set(dest, val, pe) bind(c); import
      type(c_ptr), value :: dest; real(c_float), value :: val; integer(c_int), value :: pe; end subroutine
    real(c_float) function shmem_float_atomic_swap(dest, val, pe) bind(c); import
      type(c_ptr), value :: dest; real(c_float), value :: val; integer(c_int), value :: pe; end function
    integer(c_int) function shmem_float_sum_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function
    integer(c_int) function shmem_float_prod_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function
    integer(c_int) function shmem_float_max_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function
    integer(c_int) function shmem_float_min_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function

    ! double: real(c_double).
    subroutine shmem_double_p(dest, val, pe) bind(c); import
      type(c_ptr), value :: dest; real(c_double), value :: val; integer(c_int), value :: pe; end subroutine
    real(c_double) function shmem_double_g(source, pe) bind(c); import
      type(c_ptr), value :: source; integer(c_int), value :: pe; end function
    real(c_double) function shmem_double_atomic_fetch(source, pe) bind(c); import
      type(c_ptr), value :: source; integer(c_int), value :: pe; end function
    subroutine shmem_double_atomic_set(dest, val, pe) bind(c); import
      type(c_ptr), value :: dest; real(c_double), value :: val; integer(c_int), value :: pe; end subroutine
    real(c_double) function shmem_double_atomic_swap(dest, val, pe) bind(c); import
      type(c_ptr), value :: dest; real(c_double), value :: val; integer(c_int), value :: pe; end function
    integer(c_int) function shmem_double_sum_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function
    integer(c_int) function shmem_double_prod_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function
    integer(c_int) function shmem_double_max_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function
    integer(c_int) function shmem_double_min_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function

    ! Complex reductions, and collectives of bytes.
    integer(c_int) function shmem_complexf_sum_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function
    integer(c_int) function shmem_complexf_prod_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function
    integer(c_int) function shmem_complexd_sum_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function
    integer(c_int) function shmem_complexd_prod_reduce(team, dest, source, nreduce) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nreduce; end function
    integer(c_int) function shmem_broadcastmem(team, dest, source, nelems, root) bind(c); import
      integer(c_intptr_t), value :: team
      type(c_ptr), value :: dest, source
      integer(c_size_t), value :: nelems
      integer(c_int), value :: root; end function
    integer(c_int) function shmem_collectmem(team, dest, source, nelems) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; end function
    integer(c_int) function shmem_fcollectmem(team, dest, source, nelems) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; end function
    integer(c_int) function shmem_alltoallmem(team, dest, source, nelems) bind(c); import
      integer(c_intptr_t), value :: team; type(c_ptr), value :: dest, source; integer(c_size_t), value :: nelems; end function

    ! Teams and contexts; a configuration is c_null_ptr.
    integer(c_int) function shmem_team_split_strided(parent, start, stride, size, config, mask, new_team) bind(c); import
      integer(c_intptr_t), value :: parent
      integer(c_int), value :: start, stride, size
      type(c_ptr), value :: config
      integer(c_long), value :: mask
      integer(c_intptr_t), intent(out) :: new_team; end function
    integer(c_int) function shmem_team_split_2d(parent, xrange, xconfig, xmask, xteam, yconfig, ymask, yteam) bind(c); import
      integer(c_intptr_t), value :: parent
      integer(c_int), value :: xrange
      type(c_ptr), value :: xconfig
      integer(c_long), value :: xmask
      integer(c_intptr_t), intent(out) :: xteam
      type(c_ptr), value :: yconfig
      integer(c_long), value :: ymask
      integer(c_intptr_t), intent(out) :: yteam; end function
    subroutine shmem_team_destroy(team) bind(c); import
      integer(c_intptr_t), value :: team; end subroutine
    integer(c_int) function shmem_team_my_pe(team) bind(c); import
      integer(c_intptr_t), value :: team; end function
    integer(c_int) function shmem_team_n_pes(team) bind(c); import
      integer(c_intptr_t), value :: team; end function
    integer(c_int) function shmem_team_sync(team) bind(c); import
      integer(c_intptr_t), value :: team; end function
    integer(c_int) function shmem_team_translate_pe(src_team, src_pe, dest_team) bind(c); import
      integer(c_intptr_t), value :: src_team; integer(c_int), value :: src_pe; integer(c_intptr_t), value :: dest_team
    end function
    integer(c_int) function shmem_team_create_ctx(team, options, ctx) bind(c); import
      integer(c_intptr_t), value :: team; integer(c_long), value :: options; integer(c_intptr_t), intent(out) :: ctx
    end function
    subroutine shmem_ctx_destroy(ctx) bind(c); import
      integer(c_intptr_t), value :: ctx; end subroutine
    subroutine shmem_ctx_fence(ctx) bind(c); import
      integer(c_intptr_t), value :: ctx; end subroutine
    subroutine shmem_ctx_quiet(ctx) bind(c); import
      integer(c_intptr_t), value :: ctx; end subroutine
    subroutine shmem_ctx_putmem(ctx, dest, source, nelems, pe) bind(c); import
      integer(c_intptr_t), value :: ctx
      type(c_ptr), value :: dest, source
      integer(c_size_t), value :: nelems
      integer(c_int), value :: pe; end subroutine
    subroutine shmem_ctx_getmem(ctx, dest, source, nelems, pe) bind(c); import
      integer(c_intptr_t), value :: ctx
      type(c_ptr), value :: dest, source
      integer(c_size_t), value :: nelems
      integer(c_int), value :: pe; end subroutine
  end interface
end module hpmmap_shmem
