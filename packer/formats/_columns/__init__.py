"""What formats share that stack the values of a field into arrays, as HDF5 and .pth do. No format itself."""
