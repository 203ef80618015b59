"""What older tools for the same work could do, fact by fact, and the part of ours that answers.

Each module holds the facts of one subject, in our own words. ``tests/unit/test_inventory.py`` puts
every one of them to the product.
"""
