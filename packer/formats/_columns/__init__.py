"""Columns: arrays per field, n samples long, which hdf5, pth and bmp write and map."""
