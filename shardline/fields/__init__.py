"""Where the new fields of records come from: functions, and tables joined by a key.

It knows nothing of datasets, shards or files of records: batches of features go in, columns of new
features come out.
"""

from shardline.fields.batch_functions import batch_fields
from shardline.fields.bound import Bound, Fields
from shardline.fields.joins import joined_fields
from shardline.fields.made import Made
from shardline.fields.record_functions import record_fields
from shardline.fields.tensor_functions import tensor_fields

__all__ = [
    "Bound",
    "Fields",
    "Made",
    "batch_fields",
    "joined_fields",
    "record_fields",
    "tensor_fields",
]
