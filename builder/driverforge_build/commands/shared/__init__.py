"""What commands share: options, what they stand for, and what is printed while one runs and at its end."""
