"""What people, agents and kernels see of a filesystem. No rules live here."""
