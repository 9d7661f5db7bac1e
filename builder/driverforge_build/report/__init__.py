"""What a plan or a build is told as, beside the table and the JSON: what CI systems read."""
