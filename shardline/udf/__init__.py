"""Where the new fields of records come from: functions, and tables joined by a key.

It knows nothing of datasets, shards or files of records: batches of features go in, columns of new
features come out.
"""

from shardline.udf.batch_udf import batch_fields
from shardline.udf.record_udf import record_fields
from shardline.udf.table_join import joined_fields
from shardline.udf.tensor_udf import tensor_fields
from shardline.udf.udf_declaration import UDF, BoundUDF
from shardline.udf.udf_result import UDFResult

__all__ = [
    "UDF",
    "BoundUDF",
    "UDFResult",
    "batch_fields",
    "joined_fields",
    "record_fields",
    "tensor_fields",
]
