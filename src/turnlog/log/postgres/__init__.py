"""The store behind `postgresql://`: any number of processes on any number of machines share its sessions."""
