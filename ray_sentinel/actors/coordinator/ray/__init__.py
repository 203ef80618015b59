"""What Ray's control store is asked, and what its replies say."""
