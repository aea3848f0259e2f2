"""How large a table's manifests may grow.

A reader of one window skips the manifests of other windows by their bounds and decodes the rest
whole. With Iceberg's 8 MB a month of minutely windows is one manifest, which pyiceberg decodes in
seconds (``benchmarks/landing/bench_history.py``). 512 kB are some 700 data files of bronze.
"""

TARGET_PROPERTY = "commit.manifest.target-size-bytes"
TARGET_BYTES = 512 * 1024
