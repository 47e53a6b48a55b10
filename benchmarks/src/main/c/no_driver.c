/* A libcuda.so.1 with nothing in it: the JavaCPP presets are linked to the driver's and do not load without one. */
