"""Number formats: what they can hold, and what becomes of gradients in them."""
