# SPDX-License-Identifier: GPL-2.0
"""The demonstration: LAMMPS and hpcc under four memory managers."""
