"""Arrays: data sets whose samples are the rows of large arrays, as in HDF5, .npz, .npy and N5."""
