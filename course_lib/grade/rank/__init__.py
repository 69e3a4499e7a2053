"""The process that runs a learner's code: nothing that it says is believed without a check."""
