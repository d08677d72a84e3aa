"""The reconciler that finds, proves and repairs lost transactional messages. Imports nothing on its own."""
