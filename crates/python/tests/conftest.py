import os

# One thread for each rank; must be set before torch starts its threads.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
