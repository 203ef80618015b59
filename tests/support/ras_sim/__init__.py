"""A job's RAS network: what its processes know, and what they answer a client.

Written from NCCL's ``src/ras/client_support.cc``, apart from the readers under test.
"""
