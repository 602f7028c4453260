"""Statistics of a pack: sizes, modes, classes, channels, depths, labels, duplicates.

    scan -> one collector per field -> text, or plot (PNG)

A collector measures a sample in any thread and adds up measurements in the order of the samples: one result, whatever
the number of threads, and memory that does not grow with the pictures.
"""
