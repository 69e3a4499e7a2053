"""What lies on the disk: the manifest, the files of ranks, the folder of checkpoints."""
