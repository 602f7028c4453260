"""What sources read with: folder listings, folder layouts, label files, point clouds, path patterns."""
