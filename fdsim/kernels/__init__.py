"""C kernels of our own for a CPU: compiled at first use, proven against torch, replaced by torch where they cannot be had."""
