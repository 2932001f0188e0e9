# SPDX-License-Identifier: GPL-2.0
"""The seeds' figures and tables, measured here: `make study`."""
