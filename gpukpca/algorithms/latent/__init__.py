"""Models with latent variables: initialization, E step, M step, EM, automatic relevance.

Internal: it may change in any version.
"""
