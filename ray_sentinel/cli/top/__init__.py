"""``ray-sentinel top``: the cluster on a terminal, live. Nothing else imports it, or Textual."""
