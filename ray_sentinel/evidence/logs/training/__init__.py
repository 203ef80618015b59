"""What logs show about the training itself: steps, phases, how far it got."""
