"""``ray-sentinel demo``: a real training job on a real Ray cluster, one rank of which gets stuck.

What was drawn (the fault and the rank) is known to this package and to the training script only;
the sentinel is deployed as a user would and finds out by itself.
"""
