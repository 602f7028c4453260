"""System: what the operating system gives a process: cores, memory, threads, shared memory, page cache, GPUs."""
