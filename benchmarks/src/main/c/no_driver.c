/* An empty libcuda.so.1: the JavaCPP presets are linked to the driver's library and do not load without one. */
