"""Whole logs of failed (and healthy) jobs, made from a seed, in the formats of real programs.

Each scenario is a job of 8 ranks on 2 nodes that trains for thousands of steps, with the chatter
of real jobs, decoys (signatures of other classes that harm nothing, or that training survived),
then the failure, and its echoes: what the peers, the launcher, Ray and the scheduler print because
of it. A scenario is written as one main log, as one file a rank, or as a harvested Ray tree.
"""
