"""System: operating system resources of a process: cores, memory, threads, shared memory, CPU time."""
