"""Statistics of other engines: pyiceberg refuses a table if one of its statistics files has a blob of a type that it
does not know (0.12: `BlobMetadata`). The specification allows any type; Presto's are
https://prestodb.io/docs/current/connector/iceberg.html (Statistics).
"""

from __future__ import annotations

import sys
from functools import cache

from pyiceberg.table import CommitTableResponse, metadata, update
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile

# All models that have statistics in them; each was built with the types that pyiceberg knows.
_WITH_STATISTICS = (
    BlobMetadata,
    StatisticsFile,
    metadata.TableMetadataV1,
    metadata.TableMetadataV2,
    metadata.TableMetadataV3,
    metadata.TableMetadataWrapper,
    update.SetStatisticsUpdate,
    CommitTableResponse,
)


@cache
def accept_all_types() -> None:
    """Has pyiceberg read tables with any statistics. It takes a tenth of a second, so only where a table needs it."""
    BlobMetadata.model_fields["type"].annotation = str
    rest = sys.modules.get("pyiceberg.catalog.rest")  # imported already if there is such a catalog
    for model in (*_WITH_STATISTICS, *([rest.TableResponse] if rest else [])):
        model.model_rebuild(force=True)
