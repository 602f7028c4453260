"""Sources of plain image files: images in folders, and images with masks or other files of similar names."""
