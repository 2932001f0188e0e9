! SPDX-License-Identifier: LGPL-2.1-or-later
! libhpmmap for Fortran: the functions of hpmmap_window.h, which says what they do. Compile it with
! the program; link with -lhpmmap. Addresses are type(c_ptr), of a variable with the attribute target by c_loc().
module hpmmap_window
  use, intrinsic :: iso_c_binding, only: c_int, c_int64_t, c_ptr, c_size_t
  implicit none

  interface
    integer(c_int64_t) function hpmmap_publish(start, bytes, mode) bind(c)
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: start
      integer(c_size_t), value :: bytes
      integer(c_int), value :: mode
    end function

    integer(c_int) function hpmmap_unpublish(id) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: id
    end function

    type(c_ptr) function hpmmap_attach(id, offset, bytes, flags) bind(c)
      import :: c_int, c_int64_t, c_ptr, c_size_t
      integer(c_int64_t), value :: id
      integer(c_size_t), value :: offset, bytes
      integer(c_int), value :: flags
    end function

    integer(c_int) function hpmmap_detach(address) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: address
    end function

    ! name is c_null_ptr, or c_loc() of characters that c_null_char ends.
    integer(c_int) function hpmmap_job_join(name, rank, size) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: name
      integer(c_int), value :: rank, size
    end function

    integer(c_int) function hpmmap_job_leave() bind(c)
      import :: c_int
    end function

    integer(c_int) function hpmmap_job_rank() bind(c)
      import :: c_int
    end function

    integer(c_int) function hpmmap_job_size() bind(c)
      import :: c_int
    end function

    type(c_ptr) function hpmmap_remote_ptr(rank, ptr) bind(c)
      import :: c_int, c_ptr
      integer(c_int), value :: rank
      type(c_ptr), value :: ptr
    end function

    type(c_ptr) function hpmmap_remote_static(rank, ptr) bind(c)
      import :: c_int, c_ptr
      integer(c_int), value :: rank
      type(c_ptr), value :: ptr
    end function

    integer(c_int) function hpmmap_put(rank, dest, source, bytes) bind(c)
      import :: c_int, c_ptr, c_size_t
      integer(c_int), value :: rank
      type(c_ptr), value :: dest, source
      integer(c_size_t), value :: bytes
    end function

    integer(c_int) function hpmmap_get(rank, dest, source, bytes) bind(c)
      import :: c_int, c_ptr, c_size_t
      integer(c_int), value :: rank
      type(c_ptr), value :: dest, source
      integer(c_size_t), value :: bytes
    end function

    subroutine hpmmap_fence() bind(c)
    end subroutine

    integer(c_int) function hpmmap_barrier() bind(c)
      import :: c_int
    end function
  end interface
end module hpmmap_window
