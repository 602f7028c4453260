"""Trees: the files of a data set by relative path, in a folder, an archive or a store."""
