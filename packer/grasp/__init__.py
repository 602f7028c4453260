"""Grasp: what grasp networks (GG-CNN, GR-ConvNet) train on, exactly as their own loaders make it."""
