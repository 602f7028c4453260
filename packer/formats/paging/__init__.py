"""What LMDB makes of records on the disk: pages of a B+tree. Read here without the library, and never trusted."""
