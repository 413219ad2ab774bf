"""The libraries that people expect in a code interpreter, by the names of their distributions.

The prompt lists those that the sandbox has. The extra ``interpreter`` of pyproject.toml installs them.
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
