"""Programs in the place of packer's own, for packer.system.isolated_program."""
