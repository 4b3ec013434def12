"""Lists jobs, shows one as a tree, and waits for one."""
