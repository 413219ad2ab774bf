"""The libraries that people expect of a code interpreter, by the names of their distributions.

A model is told those of them that its sandbox has; we install the extra ``interpreter`` of pyproject.toml.
"""

LIBRARIES = (
    "numpy",
    "pandas",
    "matplotlib",
    "scipy",
    "scikit-learn",
    "seaborn",
    "plotly",
    "sympy",
    "statsmodels",
    "networkx",
    "pillow",
    "openpyxl",
    "python-docx",
    "python-pptx",
    "pypdf",
    "reportlab",
    "requests",
    "beautifulsoup4",
    "lxml",
    "pyarrow",
    "polars",
    "duckdb",
    "xgboost",
    "lightgbm",
    "torch",
    "nltk",
)
