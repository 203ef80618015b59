"""Answers of NCCL's and RCCL's RAS service, read and put together; ``waitgraph.ras`` explains
them."""
