"""What watches a job, and says what its steps do."""
