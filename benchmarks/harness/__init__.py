"""What runs the contestants: environments, processes, figures."""
