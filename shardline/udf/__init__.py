"""Where the new fields of records come from: functions, and tables joined by a key.

It knows nothing of datasets, shards or files of records: batches of features go in, columns of new
features come out.
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
