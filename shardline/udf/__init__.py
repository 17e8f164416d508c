"""Where the new fields of records come from: functions, and tables joined by a key.

It knows nothing of datasets, shards or files of records: batches of features go in, columns of new
features come out.
"""

from shardline.udf.base import Bound, Fields
from shardline.udf.batch import batch_fields
from shardline.udf.join import joined_fields
from shardline.udf.record import record_fields
from shardline.udf.results import Made
from shardline.udf.tensor import tensor_fields

__all__ = [
    "Bound",
    "Fields",
    "Made",
    "batch_fields",
    "joined_fields",
    "record_fields",
    "tensor_fields",
]
