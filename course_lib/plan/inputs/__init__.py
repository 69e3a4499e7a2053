"""What a prediction starts from: hardware, models, layouts, software, and what was calibrated."""
