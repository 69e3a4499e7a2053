"""What is around the training loop: options, what they are checked for, folder, log, report."""
