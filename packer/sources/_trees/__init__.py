"""Where the files of a data set lie: in a folder, a tar or a zip file, read alike by relative path."""
