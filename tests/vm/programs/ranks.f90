! SPDX-License-Identifier: GPL-2.0
! libhpmmap from Fortran: each rank writes to the next one's variable. The environment names the job.
program ranks
  use, intrinsic :: iso_c_binding
  use hpmmap_window
  implicit none
  integer(c_int64_t), save, target :: mine = -1
  integer(c_int64_t), pointer :: theirs
  integer(c_int64_t), target :: got
  integer(c_int) :: rank, size
  type(c_ptr) :: there

  if (hpmmap_job_join(c_null_ptr, 0, 0) /= 0) error stop 'hpmmap_job_join'
  rank = hpmmap_job_rank()
  size = hpmmap_job_size()
  there = hpmmap_remote_static(modulo(rank + 1, size), c_loc(mine))
  if (.not. c_associated(there)) error stop 'hpmmap_remote_static'
  call c_f_pointer(there, theirs)
  theirs = 1000 + rank
  call hpmmap_fence()
  if (hpmmap_barrier() /= 0) error stop 'hpmmap_barrier'
  if (mine /= 1000 + modulo(rank + size - 1, size)) error stop 'another value'
  if (hpmmap_get(rank, c_loc(got), c_loc(mine), 8_c_size_t) /= 0) error stop 'hpmmap_get'
  if (got /= mine) error stop 'hpmmap_get: another value'
  if (hpmmap_barrier() /= 0) error stop 'hpmmap_barrier'
  if (hpmmap_job_leave() /= 0) error stop 'hpmmap_job_leave'
  print '(a,i0,a)', 'rank ', rank, ' right'
end program ranks
