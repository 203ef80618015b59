"""What collectors measure, as rules, cases and the page see it."""
