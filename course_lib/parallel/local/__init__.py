"""Training that meets only now and then: steps on each rank alone, then a mean of weights."""
