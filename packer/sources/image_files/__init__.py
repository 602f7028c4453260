"""Sources of plain image files: images in folders, and images with masks or other files that share a name."""
