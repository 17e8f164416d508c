"""Computation of new features by functions and by tables joined on a key.

This package does not depend on datasets, shards or record files: batches of features are
input, columns of new features are output.
"""

from shardline.udf.batch_function import batch_udf
from shardline.udf.key_join import table_join
from shardline.udf.record_function import record_udf
from shardline.udf.tensor_function import tensor_udf
from shardline.udf.udf_declaration import UDF, BoundUDF
from shardline.udf.udf_result import UDFResult

__all__ = [
    "UDF",
    "BoundUDF",
    "UDFResult",
    "batch_udf",
    "record_udf",
    "table_join",
    "tensor_udf",
]
