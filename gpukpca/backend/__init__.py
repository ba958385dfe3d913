"""The shim: named gaps of the Array API standard, nothing else.

A function is here because the standard cannot say what it does; the first line of its comment gives the reason.
The array chooses the namespace. There is no backend class, no registry and no environment switch.
"""
