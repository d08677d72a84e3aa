"""The reconciler that finds, proves and repairs lost transactional messages. An import of this package loads no other
module."""
