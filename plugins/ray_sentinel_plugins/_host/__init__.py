"""The parts of the host collector, one subject a file: descriptors, a reader, pure parsers."""
