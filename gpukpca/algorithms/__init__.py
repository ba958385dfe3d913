"""Numerical work as functions of arrays and frozen settings: nothing here knows scikit-learn or an estimator."""
