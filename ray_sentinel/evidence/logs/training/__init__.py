"""What logs say of the training itself: steps, phases, how far it got."""
