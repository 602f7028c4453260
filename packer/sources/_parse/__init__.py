"""What sources read with: folder listings, label files, point clouds. No source itself."""
