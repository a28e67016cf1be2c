"""Services that `batchmerge up` starts on this machine, in place of the ones that production has.

`stack.py` says which there are, in which order they start, and what is remembered about them. A service is one module
(`kafka_broker`, `spark_server`, `zookeeper`, `clickhouse`, `bigquery_emulator`) that gives a `Service`: how to start
it, how to see that it is ready, and its entry in `connections.yaml`.
"""
