"""The only room that imports CuPy. It knows arrays and numbers, no kernel class, no operator, no policy."""
