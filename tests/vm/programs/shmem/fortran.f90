! SPDX-License-Identifier: GPL-2.0
! libhpmmap_shmem from Fortran.
program fortran
  use, intrinsic :: iso_c_binding
  use hpmmap_shmem
  implicit none
  integer(c_long), target, save :: number = 0, lock = 0, total(3) = 0
  real(c_double), target, save :: halo(4) = 0, sums(4) = 0
  integer(c_int64_t), target, save :: signal = 0
  real(c_double), pointer :: heap(:)
  real(c_double), target :: edge(4)
  integer(c_intptr_t) :: team, ctx
  integer(c_int) :: me, npes, next, before, i
  type(c_ptr) :: room
  integer :: failures = 0

  call shmem_init()
  me = shmem_my_pe()
  npes = shmem_n_pes()
  next = mod(me + 1, npes)
  before = mod(me + npes - 1, npes)

  room = shmem_malloc(4_c_size_t * 8)
  call c_f_pointer(room, heap, [4])
  heap = me
  call shmem_barrier_all()
  if (nint(shmem_double_g(c_loc(heap(2)), next)) /= next) failures = failures + 1

  edge = [1, 2, 3, 4] + 10 * me
  call shmem_put64_signal(c_loc(halo), c_loc(edge), 4_c_size_t, c_loc(signal), 1_c_int64_t, SHMEM_SIGNAL_SET, next)
  if (shmem_signal_wait_until(c_loc(signal), SHMEM_CMP_EQ, 1_c_int64_t) /= 1) failures = failures + 1
  if (any(nint(halo) /= [1, 2, 3, 4] + 10 * before)) failures = failures + 1

  call shmem_long_atomic_add(c_loc(number), int(me + 1, c_long), 0)
  do i = 1, 20
    call shmem_set_lock(c_loc(lock))
    call shmem_long_p(c_loc(total(1)), shmem_long_g(c_loc(total(1)), 0) + 1, 0)
    call shmem_quiet()
    call shmem_clear_lock(c_loc(lock))
  end do
  call shmem_barrier_all()
  if (shmem_long_g(c_loc(number), 0) /= npes * (npes + 1) / 2) failures = failures + 1
  if (shmem_long_g(c_loc(total(1)), 0) /= 20 * npes) failures = failures + 1

  edge = 0
  if (shmem_double_sum_reduce(SHMEM_TEAM_WORLD, c_loc(sums), c_loc(halo), 4_c_size_t) /= 0) failures = failures + 1
  if (nint(sums(1)) /= npes + 10 * npes * (npes - 1) / 2) failures = failures + 1

  if (shmem_team_split_strided(SHMEM_TEAM_WORLD, me - me, 1, npes, c_null_ptr, 0_c_long, team) /= 0) failures = failures + 1
  if (shmem_team_n_pes(team) /= npes) failures = failures + 1
  if (shmem_team_create_ctx(team, 0_c_long, ctx) /= 0) failures = failures + 1
  call shmem_ctx_destroy(ctx)
  call shmem_team_destroy(team)
  call shmem_free(room)
  if (failures == 0) print '(a,i0,a)', 'PE ', me, ' right'
  call shmem_finalize()
end program fortran
